"""A Collector as plain values and back: a part of the visits that was counted elsewhere travels so.

Everything `Collector.merge` and `Collector.findings` need is in it; the finder is not, for it is the same everywhere.
"""

from __future__ import annotations

from array import array
from typing import Any

from whatelse.cohort.counting import Collector
from whatelse.cohort.findings import Finder


def freeze(collector: Collector) -> dict[str, Any]:
    """Names as lists of text, rows as bytes, counts of words and pairs as lists. O(what was collected)."""
    collector.read()
    labels, bigrams = collector.labels, collector.bigrams
    return {
        "ids": labels.ids,
        "other": labels.other,
        "named": labels.named,
        "true": bytes(labels._true),
        "known": bytes(labels._known),
        "words": list(collector.words),
        "facts": list(collector.facts),
        "left": sorted(collector.left),
        "kinds": [sorted(kind) for kind in collector.fields.kinds],
        "which": collector.fields.which.tobytes(),
        "word": collector._word.tobytes(),
        "word_end": collector._word_end.tobytes(),
        "fact": collector._fact.tobytes(),
        "fact_end": collector._fact_end.tobytes(),
        "numbers": [
            {"name": name, "rows": rows.tobytes(), "values": values.tobytes()}
            for name, (rows, values) in sorted(collector._numbers.items())
        ],
        "n_words": bigrams.n_words,
        "floor": bigrams.floor,
        "texts": [{"text": text, "count": count} for text, count in bigrams.words.items()],
        "pairs": [{"a": a, "b": b, "count": count} for (a, b), count in bigrams.pairs.items()],
    }


def thaw(finder: Finder, part: dict[str, Any]) -> Collector:
    """What `freeze` made, but for the counts of words and pairs, which are added up by themselves."""
    collector = Collector(finder)
    labels = collector.labels
    labels.ids, labels.other, labels.named = list(part["ids"]), part["other"], part["named"]
    labels._true, labels._known = bytearray(part["true"]), bytearray(part["known"])
    for table, names in ((collector.words, part["words"]), (collector.facts, part["facts"])):
        table.update((name, number) for number, name in enumerate(names))
    collector.left.update(part["left"])
    collector.fields.kinds = {frozenset(kind): k for k, kind in enumerate(part["kinds"])}
    collector.fields.which = array("i", part["which"])
    for own, code, name in (("_word", "i", "word"), ("_fact", "i", "fact")):
        setattr(collector, own, array(code, part[name]))
        setattr(collector, f"{own}_end", array("q", part[f"{name}_end"]))
    for number in part["numbers"]:
        collector._numbers[number["name"]] = array("q", number["rows"]), array("d", number["values"])
    return collector
