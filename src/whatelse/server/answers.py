"""Answers: what a Reading says of a visit in a given state, as it goes over the wire.

A stored visit that is open on a screen is asked about many times, and a decision does not change its record: its
Reading is kept for a while, and so is what each of its versions was answered, as the JSON that was sent: as
objects it would take seven times the memory, and the garbage collector would stop everybody to look through them.
Nothing of a typed visit is kept.
"""

from __future__ import annotations

from typing import NamedTuple

from whatelse.explanations import Place
from whatelse.reading import Reading
from whatelse.server import schemas as s
from whatelse.server.findings import in_words, telling, title, titles
from whatelse.server.lru import Lru
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Code, Known, Visit

READINGS, ANSWERED = 1_000, 20_000  # visits, and versions of visits, that are kept
READ_TAGS = 5  # open tags whose findings are marked in the note
WORTH_A_MARK = 0.3  # log odds
MARKS_PER_TAG = 6
ASKED = 5


class Shown(NamedTuple):
    """What was on the screen at one version of a visit: all of it as JSON, and each open tag's probability by rank."""

    json: bytes
    known: Known
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]


class Answers:
    """Readings by model and visit; what was shown by model, visit and version, which a state is a function of."""

    def __init__(self) -> None:
        self._readings: Lru[tuple[str, str], Reading] = Lru(READINGS)
        self._shown: Lru[tuple[str, str, int], Shown] = Lru(ANSWERED)

    def reading(self, tagger: Tagger, visit: Visit) -> Reading:
        """A stored visit, read once."""
        return self._readings.made((tagger.digest_, visit.id), lambda: tagger.read(visit))

    def shown(self, tagger: Tagger, visit: Visit, state: State) -> Shown:
        """Where a stored visit stands."""
        key = (tagger.digest_, visit.id, state.version)
        return self._shown.made(key, lambda: _shown(view(self.reading(tagger, visit), state)))

    def renew(self, tagger: Tagger, visit: Visit, state: State) -> None:
        """A visit whose record has changed is read anew, and so is where it stands."""
        read = self._readings.put((tagger.digest_, visit.id), tagger.read(visit))
        self._shown.put((tagger.digest_, visit.id, state.version), _shown(view(read, state)))

    def was_shown(self, digest: str, visit: str, version: int) -> Shown | None:
        """What was answered for this version by this model, if it is still kept."""
        return self._shown.get((digest, visit, version))


def _shown(answered: s.View) -> Shown:
    return Shown(
        answered.model_dump_json().encode(),
        Known(tuple(answered.state.confirmed), tuple(answered.state.rejected)),
        tuple(tag.condition for tag in answered.tags),
        tuple(tag.probability for tag in answered.tags),
    )


def view(reading: Reading, state: State) -> s.View:
    """Suggestions for a visit. Cost: one query."""
    tagger, known = reading.tagger, reading.tagger.settle(state)
    found, denied, names = reading.suggest(known), reading.denials(known), titles(reading.tagger)
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
        state=_state(tagger, state, known),
        tags=tags,
        certified=found.certified,
        error_bound=found.error_bound,
        caveat=found.caveat,
    )


def _state(tagger: Tagger, state: State, known: Known) -> s.State:
    """A state with its findings in words; `known` is the part of it that this model has names for."""
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


def why(reading: Reading, state: Known, condition: str) -> s.Why:
    """The findings for and against a tag; one that is decided is explained as if it were open."""
    tagger, places = reading.tagger, reading.places
    known = tagger.settle(state).without(condition)
    because, answered = reading.why(known, condition), {*known.present, *known.absent}
    reasons = [
        s.Reason(
            finding=reason.finding,
            text=_own_words(reading, reason.finding) or in_words(reason.finding, tagger),
            log_odds=reason.log_odds,
            present=reason.present,
            denied=not reason.present and (f"neg:{reason.finding}" in places or reason.finding in answered),
            places=[_mark(place, reason.finding, tagger, [], []) for place in _said_at(reading, reason.finding)],
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
        absent=because.absent,
        others=because.others,
        sureness=because.sureness,
        rest=because.rest,
    )


def marks(reading: Reading, state: State) -> s.Reading:
    """The findings that matter to the likeliest open tags and to those confirmed. Cost: one `why` for each."""
    tagger, places = reading.tagger, reading.places
    known = tagger.settle(state)
    # worth reading for: the likeliest, as long as the record speaks for them at all
    ranked = reading.suggest(known).tags[:READ_TAGS]
    first = [tag.condition for i, tag in enumerate(ranked) if tag.probability > tag.baseline or i < 2]
    speaks: dict[str, tuple[list[str], list[str]]] = {}
    explains: dict[str, list[str]] = {}
    for group, conditions in enumerate((first, list(known.confirmed))):
        for condition in conditions:
            strong = [
                reason.finding
                for reason in reading.why(known.without(condition), condition).reasons
                if reason.present and reason.log_odds >= WORTH_A_MARK and telling(reason.finding, tagger)
            ][:MARKS_PER_TAG]
            for finding in strong:
                speaks.setdefault(finding, ([], []))[group].append(condition)
            if group == 0:
                shown = [f for f in strong if not f.startswith(("neg:", "age:", "sex:"))]
                explains[condition] = [in_words(f, tagger) for f in shown[:3]]
    denied = reading.denials(known)
    for finding in dict.fromkeys(word for condition in first for word in denied.get(condition, ())):
        speaks.setdefault(f"neg:{finding}", ([], []))
    found = [_mark(place, f, tagger, *both) for f, both in speaks.items() for place in places.get(f, ())]
    found = [mark for mark in found if mark.start is not None or mark.item is not None]
    return s.Reading(model=tagger.digest_, version=state.version, marks=found, explains=explains)


def questions(reading: Reading, state: Known, about: str | None = None) -> list[s.Question]:
    """The few findings whose answer would tell most."""
    tagger = reading.tagger
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
        for q in reading.ask(tagger.settle(state), about=about, most=ASKED)
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
    return [place for place in found if place.start is not None or place.item is not None]


def _mark(place: Place, finding: str, tagger: Tagger, conditions: list[str], explained: list[str]) -> s.Mark:
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
