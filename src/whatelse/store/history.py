"""From lines of history to the state of a visit, and from a request to the next line. No database here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from whatelse.errors import WhatelseError
from whatelse.visits import Known

Kind = Literal["tag", "finding", "undo"]
Verdict = Literal["confirmed", "rejected", "present", "absent", "open"]
VERDICTS: dict[str, tuple[str, ...]] = {
    "tag": ("confirmed", "rejected", "open"),
    "finding": ("present", "absent", "open"),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody wants recorded. `version`: the visit's version they saw; `request`: the same for a retry.

    kind "undo" takes back the newest line that has not been taken back; its subject and verdict are found then.
    """

    visit: str
    version: int
    kind: Kind
    subject: str
    verdict: Verdict
    actor: str
    model: str
    request: str
    shown: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of history in brief: all that a state is made of."""

    visit: str
    version: int
    kind: str
    subject: str
    verdict: str
    undoes: int | None
    actor: str


@dataclass(frozen=True, slots=True)
class Entry(Line):
    """One line of history."""

    at: datetime
    model: str
    shown: dict[str, Any]
    request: str


@dataclass(frozen=True)
class State(Known):
    """What is decided about a visit, names in the order they were decided, and the version of the visit it is of."""

    version: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """The line that is now durable, and the visit's state with it. `repeated`: it was there already."""

    entry: Entry
    state: State
    repeated: bool = False


class Conflict(WhatelseError):
    """The visit has moved on since it was looked at; `state` is where it is now, `latest` its newest line."""

    def __init__(self, state: State, latest: Line | None) -> None:
        super().__init__(f"the visit is at version {state.version} by now; look again and decide on that")
        self.state, self.latest = state, latest


class Reused(WhatelseError):
    """A decision that cannot be taken: its key was another's, there is nothing to undo, no database keeps its text."""


LENGTHS = {"visit": 1_000, "subject": 1_000, "actor": 1_000, "model": 64, "request": 64}


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of surrogate pairs


def check(wanted: Decision) -> None:
    """Reused unless every database can keep it: text without NUL or half a surrogate pair, of a sane length."""
    for name, most in LENGTHS.items():
        text = getattr(wanted, name)
        if len(text) > most or _UNSTORABLE.search(text):
            raise Reused(
                f"the decision's {name} cannot be stored: at most {most} characters, all of them valid Unicode"
            )
    try:
        if "\\u0000" in json.dumps(wanted.shown, allow_nan=False):
            raise ValueError
    except (TypeError, ValueError):
        raise Reused("what was shown cannot be stored: it is not plain JSON") from None


def state_of(lines: Sequence[Line]) -> State:
    """The state after `lines`, a visit's history in order of version."""
    verdicts: dict[tuple[str, str], str] = {}
    for line in lines:
        verdicts.pop((line.kind, line.subject), None)
        if line.verdict != "open":
            verdicts[line.kind, line.subject] = line.verdict
    names = {
        v: tuple(s for (_, s), w in verdicts.items() if w == v) for v in ("confirmed", "rejected", "present", "absent")
    }
    return State(version=lines[-1].version if lines else 0, **names)


def next_line(lines: Sequence[Line], wanted: Decision, now: datetime) -> Entry:
    """The line that `wanted` becomes after `lines`; Conflict if it was decided on an older version."""
    version = lines[-1].version if lines else 0
    if wanted.version != version:
        raise Conflict(state_of(lines), lines[-1] if lines else None)
    kind, subject, verdict, undoes = str(wanted.kind), wanted.subject, str(wanted.verdict), None
    if kind == "undo":
        undone = {line.undoes for line in lines}
        last = next((line for line in reversed(lines) if line.undoes is None and line.version not in undone), None)
        if last is None:
            raise Reused("there is nothing left to undo on this visit")
        kind, subject, undoes = last.kind, last.subject, last.version
        before = [line for line in lines[: undoes - 1] if (line.kind, line.subject) == (kind, subject)]
        verdict = before[-1].verdict if before else "open"
    elif verdict not in VERDICTS[kind]:
        raise Reused(f"a {kind} can be {', '.join(VERDICTS[kind])}; not {verdict}")
    return Entry(
        wanted.visit, version + 1, kind, subject, verdict, undoes, wanted.actor, now, wanted.model, wanted.shown,
        wanted.request,
    )  # fmt: skip


def same_request(line: Entry, wanted: Decision) -> bool:
    """Whether `line` is what came of an earlier try of `wanted`."""
    undo = wanted.kind == "undo"
    same = (line.visit, line.actor, line.undoes is not None) == (wanted.visit, wanted.actor, undo)
    return same and (undo or (line.kind, line.subject, line.verdict) == (wanted.kind, wanted.subject, wanted.verdict))
