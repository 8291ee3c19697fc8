"""Answers: a Tagger's answers about a visit in a given state, as they go over the wire.

What a visit's version was shown is remembered for a while: it is asked for again with every decision (what was on the
screen when it was made), and by everybody who looks at the same visit. It is remembered as the JSON that was sent: as
objects it would take seven times the memory, and the garbage collector would stop everybody to look through them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from whatelse.server import schemas as s
from whatelse.server.findings import Located, denials, in_words, locate, telling, title, titles
from whatelse.server.remember import Memory
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Code, Visit

REMEMBERED = 20_000
READ_TAGS = 5  # open tags whose findings are marked in the note
WORTH_A_MARK = 0.3  # log odds
MARKS_PER_TAG = 6
ASKED = 5


class Answers:
    """Remembers views by model, visit and version; the state of a visit is a function of its version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()
        self._denied = Memory(REMEMBERED)

    def json(self, tagger: Tagger, visit: Visit, state: State) -> bytes:
        """Where a stored visit stands: an s.View as it goes over the wire."""
        key = (tagger.digest_, visit.id, state.version)
        if (known := self.known(*key)) is not None:
            return known
        absent = settle(tagger, state).absent
        denied = self._denied.get(
            (tagger.digest_, visit.id, absent), lambda: denials(tagger, locate(tagger, visit), absent)
        )
        made = view(tagger, visit, state, denied).model_dump_json().encode()
        with self._lock:
            self._views[key] = made
            while len(self._views) > REMEMBERED:
                self._views.popitem(last=False)
        return made

    def view(self, tagger: Tagger, visit: Visit, state: State) -> s.View:
        """The same to look into."""
        return s.View.model_validate_json(self.json(tagger, visit, state))

    def known(self, digest: str, visit: str, version: int) -> bytes | None:
        """What was answered for this version by this model, if it is still remembered."""
        key = (digest, visit, version)
        with self._lock:
            if (known := self._views.get(key)) is not None:
                self._views.move_to_end(key)
            return known


def view(tagger: Tagger, visit: Visit, state: State, denied: dict[str, list[str]] | None = None) -> s.View:
    """Suggestions for a visit. Cost: one query, and the reading of its notes unless `denied` is given."""
    known = settle(tagger, state)
    found = tagger.suggest(visit, known.confirmed, known.rejected, known.present, known.absent)
    denied = denials(tagger, locate(tagger, visit), known.absent) if denied is None else denied
    names = titles(tagger)
    tags = [
        s.Tag(
            condition=tag.condition,
            title=names[tag.condition],
            rank=rank,
            probability=tag.probability,
            baseline=tag.baseline,
            evidence="for" if tag.probability > tag.baseline else "against" if tag.condition in denied else "missing",
            denied=[in_words(word, tagger) for word in denied.get(tag.condition, ())],
        )
        for rank, tag in enumerate(found.tags, start=1)
    ]
    return s.View(
        model=tagger.digest_,
        state=state_out(tagger, state),
        tags=tags,
        certified=found.certified,
        error_bound=found.error_bound,
    )


def settle(tagger: Tagger, state: State) -> State:
    """The part of a state that this model knows: an older one may have had other conditions or findings."""
    conditions, findings = set(tagger.conditions_), tagger.vocabulary_.index
    return State(
        state.version,
        tuple(c for c in state.confirmed if c in conditions),
        tuple(c for c in state.rejected if c in conditions),
        tuple(f for f in state.present if f in findings),
        tuple(f for f in state.absent if f in findings),
    )


def state_out(tagger: Tagger, state: State) -> s.State:
    """A state with its findings in words."""
    known = settle(tagger, state)
    decided = {*state.confirmed, *state.rejected, *state.present, *state.absent}
    kept = {*known.confirmed, *known.rejected, *known.present, *known.absent}
    return s.State(
        version=state.version,
        confirmed=list(known.confirmed),
        rejected=list(known.rejected),
        present=[s.Finding(finding=f, text=in_words(f, tagger)) for f in known.present],
        absent=[s.Finding(finding=f, text=in_words(f, tagger)) for f in known.absent],
        unknown=sorted(decided - kept),
    )


def why(tagger: Tagger, visit: Visit, state: State, condition: str) -> s.Why:
    """The findings for and against a tag; one that is decided is explained as if it were open."""
    known = _without(settle(tagger, state), condition)
    because = tagger.why(visit, condition, known.confirmed, known.rejected, known.present, known.absent)
    places, answered = locate(tagger, visit), {*known.present, *known.absent}
    reasons = [
        s.Reason(
            finding=reason.finding,
            text=_own_words(reason.finding, visit, places) or in_words(reason.finding, tagger),
            log_odds=reason.log_odds,
            present=reason.present,
            denied=not reason.present and (f"neg:{reason.finding}" in places or reason.finding in answered),
            places=[_mark(p, reason.finding, tagger, [], []) for p in _places(reason.finding, places)],
        )
        for reason in because.reasons
    ]
    return s.Why(
        model=tagger.digest_,
        condition=condition,
        title=title(condition, tagger),
        total=because.total,
        prior=because.prior,
        reasons=reasons,
        others=because.others,
        rest=because.rest,
    )


def reading(tagger: Tagger, visit: Visit, state: State, tags: list[s.Tag]) -> s.Reading:
    """The findings that matter to the likeliest open tags and to those confirmed. Cost: one `why` for each."""
    known, places = settle(tagger, state), locate(tagger, visit)
    # worth reading for: the likeliest, as long as the record speaks for them at all
    first = [tag.condition for i, tag in enumerate(tags[:READ_TAGS]) if tag.evidence == "for" or i < 2]
    speaks: dict[str, tuple[list[str], list[str]]] = {}
    explains: dict[str, list[str]] = {}
    for group, conditions in enumerate((first, list(known.confirmed))):
        for condition in conditions:
            given = _without(known, condition)
            because = tagger.why(visit, condition, given.confirmed, given.rejected, given.present, given.absent)
            strong = [
                r.finding
                for r in because.reasons
                if r.present and r.log_odds >= WORTH_A_MARK and telling(r.finding, tagger)
            ][:MARKS_PER_TAG]
            for finding in strong:
                speaks.setdefault(finding, ([], []))[group].append(condition)
            if group == 0:
                shown = [f for f in strong if not f.startswith(("neg:", "age:", "sex:"))]
                explains[condition] = [in_words(f, tagger) for f in shown[:3]]
    for finding in denied_words(denials(tagger, places, known.absent), first):
        speaks.setdefault(f"neg:{finding}", ([], []))
    marks = [_mark(place, f, tagger, *both) for f, both in speaks.items() for place in places.get(f, ())]
    marks = [mark for mark in marks if mark.start is not None or mark.item is not None]
    return s.Reading(model=tagger.digest_, version=state.version, marks=marks, explains=explains)


def denied_words(denied: dict[str, list[str]], conditions: list[str]) -> list[str]:
    """What is denied about any of the conditions, each once."""
    return list(dict.fromkeys(word for c in conditions for word in denied.get(c, ())))


def questions(tagger: Tagger, visit: Visit, state: State, about: str | None = None) -> list[s.Question]:
    """The few findings whose answer would tell most."""
    known = settle(tagger, state)
    asked = tagger.ask(visit, known.confirmed, known.rejected, known.present, known.absent, about=about, most=ASKED)
    return [
        s.Question(
            finding=q.finding,
            text=in_words(q.finding, tagger),
            about=q.about,
            information=q.information,
            now=q.now,
            if_yes=q.if_yes,
            if_no=q.if_no,
        )
        for q in asked
    ]


def record(visit: Visit) -> s.Record:
    """The record as the page shows it: what is for evaluation only (billing, truth) stays out."""
    return s.Record(
        id=visit.id,
        age=visit.age,
        sex=visit.sex,
        chief_complaint=visit.chief_complaint,
        triage_note=visit.triage_note,
        md_comments=visit.md_comments,
        medication_history=_names(visit.medication_history),
        dispensed=_names(visit.dispensed),
        coded=None if visit.coded is None else [f"{c.system} {c.name or c.code}" for c in visit.coded],
        time=visit.time,
    )


def typed(asked: s.TypedVisit) -> Visit:
    """A visit that somebody is typing. A note field that is empty has nothing in it yet: it is unknown, not silent."""
    return Visit(
        id="typed",
        age=asked.age,
        sex=asked.sex,
        chief_complaint=asked.chief_complaint or None,
        triage_note=asked.triage_note or None,
        md_comments=asked.md_comments or None,
        medication_history=_codes(asked.medication_history),
        dispensed=_codes(asked.dispensed),
    )


def _codes(names: list[str] | None) -> tuple[Code, ...] | None:
    return None if names is None else tuple(Code("name", name.strip().lower(), name.strip()) for name in names)


def _names(codes: tuple[Code, ...] | None) -> list[str] | None:
    return None if codes is None else [code.name or code.code for code in codes]


def _without(state: State, condition: str) -> State:
    return State(
        state.version,
        tuple(c for c in state.confirmed if c != condition),
        tuple(c for c in state.rejected if c != condition),
        state.present,
        state.absent,
    )


def _own_words(finding: str, visit: Visit, places: dict[str, list[Located]]) -> str | None:
    """What the note says where a finding is a pattern of digits ("##:##"); None for others."""
    for place in places.get(finding, ()) if "#" in finding else ():
        if place.start is not None:
            note: str = getattr(visit, place.field)
            return note[place.start : place.end]
    return None


def _places(finding: str, places: dict[str, list[Located]]) -> list[Located]:
    """Where a finding is, or where it is denied."""
    found = places.get(finding) or places.get(f"neg:{finding}") or []
    return [place for place in found if place.start is not None or place.item is not None]


def _mark(place: Located, finding: str, tagger: Tagger, conditions: list[str], explained: list[str]) -> s.Mark:
    return s.Mark(
        field=place.field,
        start=place.start,
        end=place.end,
        item=place.item,
        text=in_words(finding, tagger),
        negated=place.negated,
        conditions=conditions,
        explained=explained,
    )
