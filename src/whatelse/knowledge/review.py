"""A reviewer's sheet of one condition: what a clinician should check first, most serious first.

An entry claims, for each finding, how often cases have it (p), how many times as often that is as among all visits
(p / rate), and with the share how many of all visits with the finding are cases (share p / rate). The last number is
the easiest to judge: "of all visits with neck stiffness 30% have meningitis".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from whatelse.knowledge.base import Knowledge
from whatelse.knowledge.check import problems
from whatelse.knowledge.entries import MUST_NOT_MISS, Condition

TELLING = 10.0  # times as often as all visits: a finding that tells
STRONG = 30.0  # times as often: a claim to check
MOST_CASES = 0.5  # of all visits with a finding that have this condition: a claim to check
FEW_FINDINGS = 5
MISSED = 0.2  # share of cases of a dangerous condition without any telling finding
CASES, TIMES = 20, 2.5  # records contradict an entry: at least so many cases, so many times off
LISTED = 6


def review(
    base: Knowledge, condition: Condition, records: Mapping[str, float] | None = None, cases: int = 0
) -> list[str]:
    """Lines to check, most serious first. records: finding -> share of the `cases` of a cohort that have it."""
    lines = [*_inconsistent(base, condition), *_missing(condition), *_contradicted(base, condition, records, cases)]
    return [*lines, *_dangerous(base, condition), *_strongest(base, condition), *_alike(base, condition)]


def times_as_often(base: Knowledge, finding: str, frequency: float) -> float:
    """How many times as often cases have a finding as all visits; 0 if the base has no rate of it."""
    concept = None if ":" in finding else base.concept(finding)
    return frequency / concept.rate if concept is not None and concept.rate else 0.0


def _inconsistent(base: Knowledge, condition: Condition) -> list[str]:
    own = [line.partition(": ")[2] for line in problems(base) if line.startswith(f"{condition.name}:")]
    wider = [
        name for name in condition.is_a if name in base.conditions and base.conditions[name].share < condition.share
    ]
    both = [finding for finding in condition.against if finding in condition.findings]
    own += [f"it is a form of {base.title(name)}, which is rarer than it" for name in wider]
    own += [f"{base.title(finding)} is a finding and speaks against it" for finding in both]
    return [f"inconsistent: {line}" for line in own]


def _missing(condition: Condition) -> list[str]:
    wanted: dict[str, object] = {
        "ICD-10-CM codes": condition.codes.get("icd10"),
        "what would settle it": condition.settle,
    }
    if condition.kind in ("disease", "injury"):
        wanted |= {"what it is mistaken for": condition.mistaken_for}
        wanted |= {"results that nearly prove it": condition.proof or condition.danger < MUST_NOT_MISS}
        wanted |= {f"findings (it has {len(condition.findings)})": len(condition.findings) >= FEW_FINDINGS}
    return [f"missing: {what}" for what, there in wanted.items() if not there]


def _contradicted(base: Knowledge, condition: Condition, records: Mapping[str, float] | None, cases: int) -> list[str]:
    """Findings that cases of a cohort have much more or much less often than the entry says."""
    if records is None or cases < CASES:
        return []
    off = []
    for finding, frequency in condition.findings.items():
        if finding in records:
            counted = max(records[finding], 0.5 / cases)
            if max(counted / frequency, frequency / counted) >= TIMES:
                off.append((abs(math.log(counted / frequency)), finding, frequency, records[finding]))
    return [
        f"records contradict: {base.title(finding)} in {counted:.0%} of {cases} cases, the entry says {frequency:.0%}"
        for _, finding, frequency, counted in sorted(off, reverse=True)[:LISTED]
    ]


def _dangerous(base: Knowledge, condition: Condition) -> list[str]:
    """A condition that must not be missed but has no telling finding in many cases."""
    if not condition.must_not_miss:
        return []
    telling = [p for f, p in condition.findings.items() if times_as_often(base, f, p) >= TELLING]
    silent = math.prod(1 - p for p in telling)
    if silent < MISSED:
        return []
    return [f"must not be missed, and {silent:.0%} of cases have no finding that is {TELLING:g} times the usual"]


def _strongest(base: Knowledge, condition: Condition) -> list[str]:
    claims = sorted(((times_as_often(base, f, p), f, p) for f, p in condition.findings.items()), reverse=True)
    lines = []
    for times, finding, frequency in claims[:LISTED]:
        of_visits = condition.share * times
        if times >= STRONG or of_visits >= MOST_CASES:
            line = f"strong claim: {base.title(finding)} in {frequency:.0%} of cases, {times:,.0f} times the usual"
            lines.append(f"{line}; so {min(of_visits, 1):.1%} of all visits with it have this condition")
    return lines


def _alike(base: Knowledge, condition: Condition) -> list[str]:
    """Conditions that share most findings, and what tells this one apart."""
    own = condition.findings.keys()
    shared = sorted(
        ((len(own & other.findings.keys()), other) for other in base.conditions.values() if other is not condition),
        key=lambda pair: -pair[0],
    )
    lines = []
    for count, other in shared[:3]:
        apart = sorted(
            (f for f in own if condition.findings[f] >= 3 * other.findings.get(f, 0.0)),
            key=lambda f: -times_as_often(base, f, condition.findings[f]),
        )
        told = ", ".join(base.title(f).lower() for f in apart[:3]) or "nothing"
        if count:
            lines.append(f"shares {count} findings with {other.title}; told apart by: {told}")
    return lines
