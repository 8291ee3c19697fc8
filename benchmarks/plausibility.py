"""Plausibility: finds content of a visit that cannot be true, by the rules of plausibility.yaml.

The rules are independent of the simulator and apply to any visit with an age and a sex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from whatelse.visits import Code, Visit


@dataclass(frozen=True, slots=True)
class Rule:
    """Nothing of this is found in patients from `low` to below `high` of that sex, if it names one."""

    why: str
    low: float
    high: float
    sex: str | None
    text: re.Pattern[str] | None
    home: tuple[str, ...]
    given: tuple[str, ...]
    truth: frozenset[str]


@lru_cache(maxsize=1)
def rules() -> tuple[tuple[Rule, ...], tuple[tuple[str, tuple[re.Pattern[str], ...]], ...]]:
    """The rules, and the contradictions (why, patterns that do not stand together)."""
    read = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    found = tuple(
        Rule(
            why=r["why"],
            low=r["ages"][0],
            high=r["ages"][1],
            sex=r.get("sex"),
            text=_words(r["text"]) if "text" in r else None,
            home=(*r.get("drugs", ()), *r.get("home", ())),
            given=(*r.get("drugs", ()), *r.get("given", ())),
            truth=frozenset(r.get("truth", ())),
        )
        for r in read["rules"]
    )
    return found, tuple((c["why"], tuple(_words([p]) for p in c["text"])) for c in read["contradictions"])


def implausibilities(visit: Visit) -> list[str]:
    """One line for each implausible item of the visit."""
    if visit.age is None or visit.sex is None:
        return []
    text = "\n".join(t for t in (visit.chief_complaint, visit.triage_note, visit.md_comments) if t)
    found = []
    these, contradictions = rules()
    for rule in these:
        if not rule.low <= visit.age < rule.high or (rule.sex is not None and rule.sex != visit.sex):
            continue
        if rule.text is not None and (match := rule.text.search(text)):
            found.append(f"{rule.why}: {match[0].lower()}")
        found += [f"{rule.why}: {name} at home" for name in _named(visit.medication_history, rule.home)]
        found += [f"{rule.why}: {name} given" for name in _named(visit.dispensed, rule.given)]
        found += [f"{rule.why}: {name}" for name in sorted(rule.truth & set(visit.truth or ()))]
    for why, patterns in contradictions:
        if all(pattern.search(text) for pattern in patterns):
            found.append(why)
    return found


def _named(codes: Iterable[Code] | None, parts: tuple[str, ...]) -> list[str]:
    names = [code.name or code.code for code in codes or ()]
    return [name for name in names if any(part in name.lower() for part in parts)]


def _words(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"(?<![\w/])(?:" + "|".join(patterns) + r")(?![\w/])", re.IGNORECASE)
