"""Reasons: what speaks for and against a condition, where it stands in the record, and why a decision moved it."""

from __future__ import annotations

import numpy as np

from whatelse.explanations import GROUPS, Place, group, in_words, lower, telling, title
from whatelse.explanations import Reason as Line
from whatelse.reading import Reading
from whatelse.server import schemas as s
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Known

LINES = 24  # findings that `why` weighs
WORTH_A_MARK = 0.3  # log odds
MARKS_PER_TAG, RAISED_BY = 8, 4
MOVED = 0.02  # a move that is worth saying
EXPECTED, MOST_EXPECTED = 0.5, 4  # share of cases that have a finding which is missed; how many are said


def why(reading: Reading, state: Known, condition: str) -> s.Why:
    """The findings for and against a tag; one that is decided is explained as if it were open."""
    tagger = reading.tagger
    known = tagger.settle(state).without(condition)
    because, answered = reading.why(known, condition, LINES), {*known.present, *known.absent}
    profile = tagger.profiles_.get(condition)
    return s.Why(
        model=tagger.digest_,
        condition=condition,
        title=title(condition, tagger),
        total=because.total,
        prior=because.prior,
        reasons=_reasons(reading, because.reasons, answered),
        absent=because.absent,
        others={name: v for name, v in because.others.items() if abs(v) > MOVED},
        sureness=because.sureness,
        rest=because.rest + sum(v for v in because.others.values() if abs(v) <= MOVED),
        expected=_expected(reading, known, condition),
        settle=profile.settle if profile else "",
        usual=float(tagger.rates_.prior[tagger.conditions_.index(condition)]),
        textbook=profile.share if profile else None,
    )


def _reasons(reading: Reading, lines: tuple[Line, ...], answered: set[str]) -> list[s.Reason]:
    """Lines of findings; those that one place of the record brings are one line, named by the narrowest."""
    tagger, places = reading.tagger, reading.places
    together: dict[object, list[Line]] = {}
    for line in lines:
        first = next(iter(_said_at(reading, line.finding)), None)
        key = line.finding if first is None else (first.field, first.start, first.item, line.log_odds > 0)
        together.setdefault(key, []).append(line)
    wider, out = tagger.vocabulary_.lexicon.ancestors, []
    for same in together.values():
        above = {up for line in same for up in wider(line.finding.rpartition(":")[2])}
        narrow = [line for line in same if line.finding.rpartition(":")[2] not in above] or same
        best = max(narrow, key=lambda line: (_length(reading, line.finding), abs(line.log_odds)))
        finding = best.finding
        out.append(
            s.Reason(
                finding=finding,
                text=_own_words(reading, finding) or in_words(finding, tagger),
                group=group(finding, tagger),
                log_odds=sum(line.log_odds for line in same),
                present=best.present,
                denied=finding.startswith("neg:")
                or (not best.present and (f"neg:{finding}" in places or finding in answered)),
                places=[_mark(place, finding, tagger) for place in _said_at(reading, finding)],
            )
        )
    return sorted(out, key=lambda reason: (GROUPS.index(reason.group), -abs(reason.log_odds)))


def _expected(reading: Reading, known: Known, condition: str) -> list[str]:
    """Findings that at least EXPECTED of all cases have and the record does not mention, commonest first."""
    tagger = reading.tagger
    model, names = tagger.model_.noisyor, tagger.vocabulary_.names
    if not tagger.vocabulary_.lexicon.entries:
        return []
    share = 1 - model.fail[tagger.conditions_.index(condition)]
    likely = np.flatnonzero(share >= EXPECTED)
    said = {name.rpartition(":")[2] for name in (*reading.places, *known.present, *known.absent)}
    wider = tagger.vocabulary_.lexicon.ancestors
    out = []
    for j in likely[np.argsort(-share[likely])].tolist():
        name = names[j]
        if ":" not in name and name not in said and not any(up in said for up in wider(name)):
            out.append(in_words(name, tagger))
    return out[:MOST_EXPECTED]


def marks(reading: Reading, state: State) -> s.Reading:
    """The findings that fit the tags that are shown and those confirmed, and where they stand."""
    tagger, places = reading.tagger, reading.places
    known = tagger.settle(state)
    suggested = reading.suggest(known)
    shown = [tag.condition for tag in (*suggested.must_not_miss, *suggested.likely)]
    speaks: dict[str, tuple[list[str], list[str]]] = {}
    explains: dict[str, list[str]] = {}
    for kind, conditions in enumerate((shown, list(known.confirmed))):
        for condition in conditions:
            lines = fitting(reading, known, condition)
            for line in lines:
                speaks.setdefault(line.finding, ([], []))[kind].append(condition)
            if kind == 0:
                told = [reason for reason in _reasons(reading, lines, set()) if reason.group != "patient"]
                told.sort(key=lambda reason: (reason.group == "drugs", -reason.log_odds))
                explains[condition] = [reason.text for reason in told[:RAISED_BY]]
    for tag in suggested.known:  # where the record names it
        speaks.setdefault(f"anchor:{tag.condition}", ([], []))[1].append(tag.condition)
    found = [
        _mark(place, finding, tagger, *both)
        for finding, both in speaks.items()
        for place in places.get(finding, ())
        if place.start is not None or place.item is not None
    ]
    return s.Reading(model=tagger.digest_, version=state.version, marks=found, explains=explains)


def fitting(reading: Reading, known: Known, condition: str) -> tuple[Line, ...]:
    """The findings of the record that a condition makes likelier, best first: at most MARKS_PER_TAG.

    Each counts as if no other condition could explain it, w log(P(j | condition) / leak) plus the evidence's weight:
    what a clinician means by "it would fit". `why` says how much each brings beside the other conditions.
    """
    tagger = reading.tagger
    here = np.union1d(reading.present, tagger.finding_indices(known.present))
    here = here[[telling(tagger.vocabulary_.names[j], tagger) for j in here.tolist()]]
    i, model = tagger.conditions_.index(condition), tagger.model_
    leak, fail = np.maximum(model.noisyor.leak[here], 1e-9), model.noisyor.fail[i, here]
    gain = model.noisyor.weight[here] * np.log((leak + (1 - leak) * (1 - fail)) / leak)
    gain = gain + model.evidence.weight[i, here]
    best = [k for k in np.argsort(-gain, kind="stable")[:MARKS_PER_TAG].tolist() if gain[k] >= WORTH_A_MARK]
    names = [tagger.vocabulary_.names[here[k]] for k in best]
    return tuple(
        Line(name, float(gain[k]), True, reading.places.get(name, ())) for k, name in zip(best, names, strict=True)
    )


def moved(reading: Reading, before: Known, after: Known) -> s.Moved:
    """The condition that a change of what is known moved most, by how much, and because of what."""
    tagger = reading.tagger
    before, after = tagger.settle(before), tagger.settle(after)
    was = {tag.condition: tag for tag in reading.suggest(before).tags}
    now = {tag.condition: tag for tag in reading.suggest(after).tags}
    symptoms = {name for name, profile in tagger.profiles_.items() if profile.kind == "symptom"}
    both = [name for name in now if name in was and name not in symptoms]
    big = [name for name in both if abs(now[name].probability - was[name].probability) >= MOVED]
    if not big:
        return s.Moved(sentence=f"Nothing else moved by {MOVED:.0%} or more.")
    shown = {name for known in (before, after) for name in _shown(reading, known)}
    first = max(
        [name for name in big if name in shown] or big,
        key=lambda name: abs(now[name].probability - was[name].probability),
    )
    old, new = was[first].probability, now[first].probability
    verb = "rose" if new > old else "fell"
    because = _because(reading, before, after, first, new > old)
    more = f" {len(big) - 1} more moved." if len(big) > 1 else ""
    reason = f", because {because}" if because else ""
    return s.Moved(sentence=f"{title(first, tagger)} {verb} from {percent(old)} to {percent(new)}{reason}.{more}")


def _shown(reading: Reading, known: Known) -> list[str]:
    found = reading.suggest(known)
    return [tag.condition for tag in (*found.likely, *found.must_not_miss)]


def _because(reading: Reading, before: Known, after: Known, condition: str, rose: bool) -> str:
    """Why a condition moved: an answer, company of another condition, or a finding that another one explains."""
    tagger = reading.tagger
    for names, word in ((after.present, "is present"), (after.absent, "is absent")):
        if new := [f for f in names if f not in before.present and f not in before.absent]:
            return f"{in_words(new[0], tagger)} {word}"
    changed = {*before.confirmed, *before.rejected} ^ {*after.confirmed, *after.rejected}
    changed |= {name for name in after.confirmed if name in before.rejected}
    if not changed:
        return "the answer was taken back"
    name, confirmed = lower(title(min(changed), tagger)), min(changed) in after.confirmed
    if rose == confirmed:
        return f"it often comes with {name}" if rose else f"it often comes with {name}, which is not confirmed"
    one, two = (
        {line.finding: line.log_odds for line in reading.why(known.without(condition), condition, LINES).reasons}
        for known in (before, after)
    )
    shift = {finding: two.get(finding, 0.0) - one.get(finding, 0.0) for finding in {*one, *two}}
    best = (max if rose else min)(shift, key=lambda finding: shift[finding], default="")
    if best and abs(shift[best]) > MOVED and (shift[best] > 0) == rose:
        explains = "no longer explains" if rose else "explains"
        return f"{name} {explains} {in_words(best, tagger)}"
    return f"it seldom comes with {name}"


def percent(p: float) -> str:
    """As the page writes it."""
    return ">99%" if p > 0.995 else "<1%" if p < 0.005 else f"{p:.0%}"


def _own_words(reading: Reading, finding: str) -> str | None:
    """What the note says where a finding is a pattern of digits ("##:##"); None for others."""
    for place in reading.places.get(finding, ()) if "#" in finding else ():
        if place.start is not None:
            note: str = getattr(reading.visit, place.field)
            return note[place.start : place.end]
    return None


def _said_at(reading: Reading, finding: str) -> list[Place]:
    """Where a finding is, or where it is denied."""
    found = reading.places.get(finding) or reading.places.get(f"neg:{finding}") or ()
    once = {(p.field, p.start, p.item): p for p in found if p.start is not None or p.item is not None}
    return list(once.values())


def _length(reading: Reading, finding: str) -> int:
    """Characters of the note that say a finding."""
    return max(((place.end or 0) - (place.start or 0) for place in _said_at(reading, finding)), default=0)


def _mark(
    place: Place, finding: str, tagger: Tagger, conditions: list[str] | None = None, explained: list[str] | None = None
) -> s.Mark:
    at = {name: getattr(place, name) for name in ("field", "start", "end", "item")}
    said, text = "denied" if place.negated else "present", in_words(finding, tagger)
    return s.Mark(**at, text=text, assertion=said, conditions=conditions or [], explained=explained or [])
