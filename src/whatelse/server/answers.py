"""Answers: what a Reading says of a visit in a given state, as it goes over the wire.

A stored visit that is open on a screen is asked about many times, and a decision does not change its record: its
Reading is kept for a while, and so is what each of its versions was answered, as the JSON that was sent: as
objects it would take seven times the memory, and the garbage collector would stop everybody to look through them.
Nothing of a typed visit is kept.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from whatelse.explanations import Suggestions, group, in_words, titles
from whatelse.reading import GRAVE, Reading
from whatelse.server import schemas as s
from whatelse.server.lru import Lru
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.types import Floats, Int32s
from whatelse.visits import Code, Known, Visit

READINGS, ANSWERED = 1_000, 20_000  # visits, and versions of visits, that are kept
LISTED = 50  # tags that an answer lists, at most, besides those with a part
ASKED, CANDIDATES, TESTS = 4, 12, 3
UNSHOWN = 0.02  # probability of a condition of danger GRAVE that is asked about though it is not shown
TOLERANCE = 0.01  # of probabilities that are shown as whole percents


class Shown(NamedTuple):
    """What was on the screen at one version of a visit: all of it as JSON; all open tags by rank, as numbers of
    conditions, and the probability of each condition."""

    json: bytes
    known: Known
    order: Int32s
    probabilities: Floats
    parts: tuple[tuple[str, ...], tuple[str, ...]]  # likely, must not be missed

    def of(self, tagger: Tagger, condition: str) -> float:
        """The probability of an open condition."""
        return float(self.probabilities[tagger.conditions_.index(condition)])


class Answers:
    """Readings by model and visit; what was shown by model, visit and version, which a state is a function of."""

    def __init__(self) -> None:
        self._readings: Lru[tuple[str, str], Reading] = Lru(READINGS)
        self._shown: Lru[tuple[str, str, int], Shown] = Lru(ANSWERED)
        self._asked: Lru[tuple[str, str, int], list[s.Question]] = Lru(READINGS)

    def questions(self, tagger: Tagger, visit: Visit, state: State) -> list[s.Question]:
        """What to ask of a stored visit."""
        key = (tagger.digest_, visit.id, state.version)
        return self._asked.made(key, lambda: questions(self.reading(tagger, visit), state))

    def reading(self, tagger: Tagger, visit: Visit) -> Reading:
        """A stored visit, read once."""
        return self._readings.made((tagger.digest_, visit.id), lambda: read(tagger, visit))

    def shown(self, tagger: Tagger, visit: Visit, state: State) -> Shown:
        """Where a stored visit stands."""
        key = (tagger.digest_, visit.id, state.version)
        return self._shown.made(key, lambda: _shown(self.reading(tagger, visit), state))

    def renew(self, tagger: Tagger, visit: Visit, state: State) -> None:
        """A visit whose record has changed is read anew, and so is where it stands."""
        reading = self._readings.put((tagger.digest_, visit.id), read(tagger, visit))
        self._shown.put((tagger.digest_, visit.id, state.version), _shown(reading, state))
        self._asked.drop((tagger.digest_, visit.id, state.version))

    def was_shown(self, digest: str, visit: str, version: int) -> Shown | None:
        """What was answered for this version by this model, if it is still kept."""
        return self._shown.get((digest, visit, version))


def read(tagger: Tagger, visit: Visit) -> Reading:
    """A visit as the page asks about it: to within TOLERANCE, in time for a click."""
    return tagger.read(visit, max(tagger.tolerance, TOLERANCE))


def _shown(reading: Reading, state: State) -> Shown:
    answered, found = view(reading, state)
    conditions = {name: i for i, name in enumerate(reading.tagger.conditions_)}
    order = np.array([conditions[tag.condition] for tag in found.tags], np.int32)
    probabilities = np.full(len(conditions), np.nan)
    probabilities[order] = [tag.probability for tag in found.tags]
    shown = (tuple(t.condition for t in found.likely), tuple(t.condition for t in found.must_not_miss))
    known = Known(tuple(answered.state.confirmed), tuple(answered.state.rejected))
    return Shown(answered.model_dump_json().encode(), known, order, probabilities, shown)


def view(reading: Reading, state: State) -> tuple[s.View, Suggestions]:
    """Suggestions for a visit, on the wire and as they are. Cost: one query."""
    tagger, known = reading.tagger, reading.tagger.settle(state)
    found, denied, names = reading.suggest(known), reading.denials(known), titles(reading.tagger)
    part_of, listed = found.part_of, []
    for rank, tag in enumerate(found.tags, start=1):
        part = part_of.get(tag.condition, "")
        if rank > LISTED and not part:
            continue
        profile, against = tagger.profiles_.get(tag.condition), denied.get(tag.condition, ())
        listed.append(
            s.Tag(
                condition=tag.condition,
                title=names[tag.condition],
                rank=rank,
                probability=tag.probability,
                baseline=tag.baseline,
                part=part,  # type: ignore[arg-type]
                danger=tag.danger,
                settle=profile.settle.partition(";")[0] if profile and part else "",
                evidence="for" if tag.probability > tag.baseline else "against" if against else "missing",
                denied=[in_words(word, tagger) for word in against],
            )
        )
    answered = s.View(
        model=tagger.digest_,
        state=_state(tagger, state, known),
        tags=listed,
        open=len(found.tags),
        certified=found.certified,
        error_bound=found.error_bound,
        caveat=found.caveat,
    )
    return answered, found


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


# ---- what to ask, what to do


def questions(reading: Reading, state: Known, about: str | None = None) -> list[s.Question]:
    """The findings whose answer would tell most, of conditions that are shown, or dangerous and UNSHOWN; or `about`."""
    tagger, out = reading.tagger, []
    known = tagger.settle(state)
    found = reading.suggest(known)
    shown = {tag.condition for tag in (*found.likely, *found.must_not_miss)}
    for q in reading.ask(known, about=about, most=CANDIDATES):
        profile = tagger.profiles_.get(q.about)
        dangerous = profile is None or (profile.danger >= GRAVE and profile.kind != "symptom")
        if about is not None or q.about in shown or (dangerous and q.now >= UNSHOWN):
            kind: Any = "examine" if group(q.finding, tagger) == "signs" else "ask"
            out.append(s.Question(**asdict(q), text=in_words(q.finding, tagger), kind=kind))
    return out[:ASKED]


def tests(answered: s.View) -> list[s.Test]:
    """What would settle the likely conditions that are still open to doubt."""
    told = [tag for tag in answered.tags if tag.part == "likely" and tag.probability <= 0.9]
    open_tags = [tag for tag in told if tag.settle and not tag.settle.lower().startswith("clinical")]  # nothing to do
    wanted = sorted((t for t in open_tags if t.danger >= GRAVE), key=lambda tag: (-tag.danger, -tag.probability))
    return [s.Test(about=tag.condition, text=tag.settle, now=tag.probability) for tag in wanted[:TESTS]]


# ---- typed visits


def typed(asked: s.TypedVisit) -> Visit:
    """A visit that somebody is typing. A note field that is empty has nothing in it yet: it is unknown, not silent."""
    given: dict[str, Any] = {name: value if value != "" else None for name, value in asked}
    for field in ("medication_history", "dispensed"):
        if given[field] is not None:
            given[field] = tuple(Code("name", name.strip().lower(), name.strip()) for name in given[field])
    return Visit(id="typed", **given)
