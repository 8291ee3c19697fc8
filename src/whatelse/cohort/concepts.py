"""Which findings of the knowledge base each column of a cohort corresponds to.

rfv:painful urination            dysuria
rx:acetaminophen-hydrocodone     rx:acetaminophen, rx:hydrocodone
vital:temperature >= 100.4 f     fever
chronic:dementia                 dementia
age:70-80                        age:old
abd_pain, neg:abd_pain           abdominal_pain, neg:abdominal_pain   (words of a cohort without concepts)
fever, hx:stroke, sex:F          themselves
"""

from __future__ import annotations

from collections.abc import Iterable

from whatelse.cohort.coded import LASTING_SYSTEMS, VITAL_CODES, says_more
from whatelse.knowledge import age_band
from whatelse.sources.vitals import RULES
from whatelse.text.assertion import HISTORICAL, NEGATED, PRESENT
from whatelse.text.lexicon import DRUG, DRUG_CLASS, Lexicon, load_lexicon
from whatelse.text.matcher import ASSERTION, ID, MENTION, NOTE, TYPE
from whatelse.text.reader import NoteReader, finding_name

PREFIXES = ("neg", "possible", "family", "hx", "rx")
VITALS = {
    f"{rule.code.system}:{(rule.code.name or rule.code.code).lower()}": concept
    for rules in RULES.values()
    for rule in rules
    if (concept := VITAL_CODES.get((rule.code.system, rule.code.code))) is not None
} | {"pain:none": "neg:pain"}


def concepts_of_finding(name: str, lexicon: Lexicon | None = None) -> tuple[str, ...]:
    """The findings of the knowledge base that a finding corresponds to; none if it means none of them.

    The narrowest ones: `lexicon.ancestors` has the wider ones, which each of them implies.
    """
    return concepts_of_findings([name], lexicon)[0]


def concepts_of_findings(names: Iterable[str], lexicon: Lexicon | None = None) -> list[tuple[str, ...]]:
    """`concepts_of_finding` of many names in one pass."""
    lexicon = load_lexicon() if lexicon is None else lexicon
    found: list[tuple[str, ...]] = []
    labels: dict[int, tuple[str, str]] = {}  # place in `found` -> prefix, label
    for name in names:
        prefix, colon, rest = name.partition(":")
        own = _itself(name, prefix, rest, lexicon)
        if own is None and prefix not in ("age", "anchor"):
            labels[len(found)] = (prefix, rest.replace("_", " ")) if colon else ("", name.replace("_", " "))
        found.append(own or ())
    if labels and lexicon.entries:
        for place, read in zip(labels, _read(list(labels.values()), lexicon), strict=True):
            found[place] = read
    return found


def _itself(name: str, prefix: str, rest: str, lexicon: Lexicon) -> tuple[str, ...] | None:
    """The finding, where its name says it without its label being read."""
    plain = rest if prefix in PREFIXES else name
    if plain in lexicon.by_name or lexicon.composed(plain) is not None or prefix == "sex":
        return (name,)
    if name in VITALS:
        return (VITALS[name],)
    if prefix == "age":
        low = rest.partition("-")[0]
        return (f"age:{age_band(float(low) + 5)}",) if low.isdigit() else (name,)
    return None


_readers: list[tuple[Lexicon, NoteReader]] = []  # the last one: compiling takes seconds


def _reader(lexicon: Lexicon) -> NoteReader:
    if not _readers or _readers[0][0] is not lexicon:
        _readers[:] = [(lexicon, NoteReader(lexicon))]
    return _readers[0][1]


def _read(labels: list[tuple[str, str]], lexicon: Lexicon) -> list[tuple[str, ...]]:
    """Findings that labels mean, by their prefix (a code system, or how a note says it)."""
    reader = _reader(lexicon)
    with reader.lock:
        items = reader.items([label for _, label in labels]).tolist()
        more = says_more(reader, items, len(labels))
    found: list[dict[str, None]] = [{} for _ in labels]
    for item in items:
        prefix, _ = labels[item[NOTE]]
        drug = prefix in ("rx", "hx")
        if item[TYPE] != MENTION or (more[item[NOTE]] and prefix in ("", "neg")):
            continue
        name = reader.concepts[item[ID]]
        entry = lexicon.by_name.get(name)
        kind, lasting = (entry.kind, entry.lasting) if entry else ("", False)
        if drug:
            finding = f"{prefix}:{name}" if kind in (DRUG, DRUG_CLASS) else ""
        elif prefix == "neg":
            finding = finding_name(name, kind, lasting, NEGATED)
        else:
            old = prefix in LASTING_SYSTEMS and item[ASSERTION] == PRESENT
            finding = finding_name(name, kind, lasting, HISTORICAL if old else item[ASSERTION])
        if finding:
            found[item[NOTE]][finding] = None
    implied = [{wider for name in names for wider in lexicon.ancestors(name)} for names in found]
    # the narrowest: "knee pain, ache" is `knee_pain`, not also `pain`
    return [tuple(n for n in names if n not in wider) for names, wider in zip(found, implied, strict=True)]
