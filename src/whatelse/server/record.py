"""The record as the page shows it, and as it was read: mentions by assertion, measured values, drugs by class."""

from __future__ import annotations

from collections.abc import Iterator

from whatelse.explanations import capitals, in_words
from whatelse.knowledge.entries import title_of
from whatelse.server import schemas as s
from whatelse.tagger import Tagger
from whatelse.text.lexicon import DRUG, DRUG_CLASS, QUALITY, SITE
from whatelse.text.measure import Measurement
from whatelse.text.measurements import load_measures
from whatelse.visits import TEXT_FIELDS, Code, Visit

LABELS = {
    "temperature": "Temp", "heart_rate": "HR", "blood_pressure": "BP", "systolic_bp": "Systolic BP",
    "respiratory_rate": "RR", "oxygen_saturation": "SpO2", "gcs": "GCS", "glucose": "Glucose", "pain_score": "Pain",
}  # fmt: skip
UNITS = {"temperature": " °C", "oxygen_saturation": "%", "pain_score": "/10"}
_SAYS = {"negated": "denied", "historical": "history", "other": "family"}


def record(visit: Visit) -> s.Record:
    """The record itself: what is for evaluation only (billing, truth) stays out."""
    shown = {name: getattr(visit, name) for name in s.Record.model_fields}
    for field in ("medication_history", "dispensed"):
        if shown[field] is not None:
            shown[field] = [code.name or code.code for code in shown[field]]
    return s.Record(**shown | {"coded": None if visit.coded is None else [_coded(code) for code in visit.coded]})


def as_read(tagger: Tagger, visit: Visit) -> s.AsRead:
    """How the record was read. Models that read words alone have no mentions."""
    lexicon = tagger.vocabulary_.lexicon
    mentions = list(_mentions(tagger, visit)) if lexicon.entries else []
    classes = {}
    for code in (*(visit.medication_history or ()), *(visit.dispensed or ())):
        name = code.name or code.code
        entry = lexicon.by_name.get(name.lower().replace(" ", "_"))
        if entry is not None and entry.kind == DRUG and entry.is_a:
            classes[name] = capitals(title_of(entry.is_a[0]))
    return s.AsRead(mentions=mentions, vitals=list(_vitals(visit)), classes=classes)


def _mentions(tagger: Tagger, visit: Visit) -> Iterator[s.Mark]:
    reader, kinds = tagger.vocabulary_.reader.finder.reader, tagger.vocabulary_.lexicon.by_name
    for field in TEXT_FIELDS:
        for mention in reader.mentions(getattr(visit, field) or "", field, visit.age):
            kind = kinds[mention.concept].kind if mention.concept in kinds else ""
            if kind in (SITE, QUALITY) or mention.value is not None:
                continue
            drug = kind in (DRUG, DRUG_CLASS) and mention.assertion == "present"
            says = "drug" if drug else _SAYS.get(mention.assertion, mention.assertion)
            text = in_words(mention.concept, tagger)
            yield s.Mark(field=field, start=mention.start, end=mention.end, text=text, assertion=says)


def _vitals(visit: Visit) -> Iterator[s.Vital]:
    """The measured values, first of each kind, in the order of LABELS; blood pressure as one."""
    measures, first = load_measures(), dict[str, tuple[str, Measurement]]()
    for item in measures.of_columns(visit.numbers or ()):
        first.setdefault(item.name, ("numbers", item))
    for field in TEXT_FIELDS[1:]:
        for item in measures.read(getattr(visit, field) or "").measurements:
            first.setdefault(item.name, (field, item))
    for name in (*LABELS, *(name for name in first if name not in LABELS)):
        if name == "blood_pressure" and {"systolic_bp", "diastolic_bp"} <= first.keys():
            field, upper = first.pop("systolic_bp")
            _, low = first.pop("diastolic_bp")
            yield _vital("BP", f"{upper.value:.0f}/{low.value:.0f}", (upper, low), visit.age, field)
        elif name in first:
            field, item = first[name]
            label = LABELS.get(name, title_of(name))
            yield _vital(label, f"{round(item.value, 1):g}{UNITS.get(name, '')}", (item,), visit.age, field)


def _vital(label: str, text: str, items: tuple[Measurement, ...], age: float | None, field: str) -> s.Vital:
    """A value with what it means at this age: "fever", "low blood pressure"; nothing if it is normal."""
    found = load_measures().findings(items, age)
    means = [title_of(name).lower() for name in found if not name.startswith("neg:")]
    at = items[0].start
    place = None if at < 0 else s.Mark(field=field, start=at, end=items[-1].end, text=label)
    return s.Vital(label=label, text=text, means=means[:1], place=place)


def _coded(code: Code) -> str:
    name = (code.name or code.code).replace("-", " ").replace("_", " ")
    return f"{code.system}: {name}"
