"""Chunks: up to VISITS visits of one Collector as one row of a DataFrame.

Workers read the notes once. Later steps (pairs of words, choice of findings, rows of the dataset) use the numbers in
the chunks. A chunk comes from one file; chunks sorted by file and first row give the visits in order. Chunks hold words
of the records and stay in Spark's storage until the cohort is built.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa

from whatelse.cohort.counting import Collector
from whatelse.cohort.findings import Finder
from whatelse.errors import WhatelseError
from whatelse.spark.reading import Stream

VISITS = 2_000  # of a chunk at most
Place = tuple[str, int]
"""File and row of a visit."""

_COUNTED: dict[str, list[tuple[str, pa.DataType]]] = {
    "numbers": [("name", pa.string()), ("rows", pa.binary()), ("values", pa.binary())],
    "measured": [("name", pa.string()), ("value", pa.float64()), ("count", pa.int64())],
    "texts": [("text", pa.string()), ("count", pa.int64())],
    "pairs": [("a", pa.string()), ("b", pa.string()), ("count", pa.int64())],
}
SCHEMA = pa.schema(
    [("rising", pa.bool_()), ("rows", pa.list_(pa.int64())), ("kinds", pa.list_(pa.list_(pa.string())))]
    + [(name, pa.string()) for name in ("file", "report", "problem")]
    + [(name, pa.int64()) for name in ("first", "last", "visits", "other", "named", "n_words")]
    + [(name, pa.list_(pa.string())) for name in ("ids", "words", "facts", "left")]
    + [(name, pa.binary()) for name in ("true", "known", "which", "word", "word_end", "fact", "fact_end")]
    + [(name, pa.list_(pa.struct(fields))) for name, fields in _COUNTED.items()]
)
ARRAYS = ["ids", "other", "named", "true", "known", "words", "facts", "left", "kinds", "which"]
ARRAYS += ["word", "word_end", "fact", "fact_end", "numbers"]  # what `thaw` needs
_CODES = {"word": "i", "word_end": "q", "fact": "i", "fact_end": "q"}  # arrays of a Collector and their type codes


def collect(
    stream: Stream, batches: Iterable[pa.RecordBatch], finder: Finder, first_of: Mapping[str, Place]
) -> Iterator[pa.RecordBatch]:
    """The chunks of one partition. A row that cannot be used ends it, with the problem in the last chunk.

    first_of   ids that several visits have, and which of these is the first: the others are left out
    """
    collector, rows, file = Collector(finder), list[int](), ""
    problem: str | None = None
    place: Place = ("", 0)
    try:
        for name, row, visit in stream.visits(batches):
            if rows and (name != file or len(rows) >= VISITS):
                yield _row(collector, file, rows, stream, None)
                collector, rows = Collector(finder), []
            place = file, row = name, row
            if first_of.get(visit.id, place) != place:
                stream.report.left_out["duplicate id"] += 1
                continue
            collector.add(visit)
            rows.append(row)
    except WhatelseError as error:
        problem = _said(error, place)
        collector, rows = Collector(finder), []
    if rows or problem or stream.report.left_out or stream.report.unread:
        yield _row(collector, file, rows, stream, problem)


def _said(error: WhatelseError, place: Place) -> str:
    """An error with its place as JSON. Errors quote no record."""
    row = getattr(error, "row", None)
    text = str(error)
    if row is None:  # an error of the collector counts visits from its own beginning
        row, text = place[1], f"{place[0]}, row {place[1]}: {text.partition(': ')[2] or text}"
    file = getattr(error, "file", None)
    return json.dumps({"file": str(file or place[0]), "row": row, "kind": type(error).__name__, "text": text})


def _row(collector: Collector, file: str, rows: list[int], stream: Stream, problem: str | None) -> pa.RecordBatch:
    part: dict[str, Any] = freeze(collector)
    measured = [
        {"name": name, "value": value, "count": count}
        for name, values in collector.numbers().items()
        for value, count in sorted(Counter(values.tolist()).items())
    ]
    report = {"left_out": dict(stream.report.left_out), "unread": dict(stream.report.unread)}
    stream.report.left_out.clear()
    stream.report.unread.clear()
    part |= {
        "file": file,
        "first": rows[0] if rows else 0,
        "last": rows[-1] if rows else 0,
        "rising": all(a < b for a, b in pairwise(rows)),
        "visits": len(rows),
        "rows": rows,
        "measured": measured,
        "report": json.dumps(report),
        "problem": problem,
    }
    return pa.record_batch([pa.array([part[name]], SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA)


def freeze(collector: Collector) -> dict[str, Any]:
    """A collector as columns of a chunk: names as lists of text, rows as bytes, counts of words and pairs as lists."""
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
        **{name: getattr(collector, f"_{name}").tobytes() for name in _CODES},
        "numbers": [
            {"name": name, "rows": rows.tobytes(), "values": values.tobytes()}
            for name, (rows, values) in sorted(collector._numbers.items())
        ],
        "n_words": bigrams.n_words,
        "texts": [{"text": text, "count": count} for text, count in bigrams.words.items()],
        "pairs": [{"a": a, "b": b, "count": count} for (a, b), count in bigrams.pairs.items()],
    }


def thaw(finder: Finder, part: dict[str, Any]) -> Collector:
    """The collector of a chunk, without its counts of words and pairs: Spark adds these."""
    collector = Collector(finder)
    labels = collector.labels
    labels.ids, labels.other, labels.named = list(part["ids"]), part["other"], part["named"]
    labels._true, labels._known = bytearray(part["true"]), bytearray(part["known"])
    for table, names in ((collector.words, part["words"]), (collector.facts, part["facts"])):
        table.update((name, number) for number, name in enumerate(names))
    collector.left.update(part["left"])
    collector.fields.kinds = {frozenset(kind): k for k, kind in enumerate(part["kinds"])}
    collector.fields.which = array("i", part["which"])
    for name, code in _CODES.items():
        setattr(collector, f"_{name}", array(code, part[name]))
    for number in part["numbers"]:
        collector._numbers[number["name"]] = array("q", number["rows"]), array("d", number["values"])
    return collector
