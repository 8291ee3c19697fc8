"""The text of a record as shown to an annotator: a person or a language model.

Billing and truth are not shown: they would decide instead.
"""

from __future__ import annotations

from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Visit

NAMES = tuple(name.replace("_", " ") for name in ("age", "sex", *TEXT_FIELDS, *CODE_FIELDS, "numbers", "also_shown"))


def record_cells(visit: Visit) -> dict[str, str]:
    """The text of each part of a record, by NAMES; empty where it has none."""
    texts = [getattr(visit, name) or "" for name in TEXT_FIELDS]
    codes = [
        "; ".join(code.name or f"{code.system} {code.code}" for code in getattr(visit, name) or ())
        for name in CODE_FIELDS
    ]
    numbers = "; ".join(f"{name} {value:g}" for name, value in visit.numbers or ())
    shown = "; ".join(f"{name} {text}" for name, text in visit.shown)
    age = "" if visit.age is None else f"{visit.age:g}"
    return dict(zip(NAMES, (age, visit.sex or "", *texts, *codes, numbers, shown), strict=True))


def record_text(visit: Visit) -> str:
    """A record as lines of `part: text`, without the parts that it lacks."""
    return "\n".join(f"{name}: {text}" for name, text in record_cells(visit).items() if text)
