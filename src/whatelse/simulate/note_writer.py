"""NoteWriter: writes the notes of one visit with the habits of one author. Phrases have slots; typing errors happen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Phrase = str | tuple[str | tuple[str, ...], ...]  # with slots: literal text and lists to choose from, in turn
Piece = tuple[str, int]  # text, and the tag of its cause (`notes.py`)
NONE = -1  # the tag of text without a cause
OWN_WAY = 0.75  # how often a writer says a thing in the writer's own way
MAY_BE = 12  # under this age a patient is a boy or a girl, for whom a parent may speak
_SLOT = re.compile(r"\{(\w+)\}")
_LATER = ("age", "s", "sex", "sx", "side", "part", "parent", "since", "for", "when")


@dataclass(frozen=True, slots=True)
class Case:
    """Input of the writer: findings by section, reasons said, conditions named and mentioned, measures."""

    on: list[list[int]]
    reasons: list[int]
    named: list[int]
    mentioned: list[int]
    primary: int
    lead: int
    age: int
    male: bool
    nurse: int
    doctor: int
    talk: tuple[float, float]
    measure: list[float]
    hour: int  # of arrival
    late: bool  # after the department changed its templates

    @property
    def months(self) -> int:
        """Age in months of a child under two: what the notes say and the record has."""
        return 2 + (self.nurse * 7 + self.doctor * 3) % 9 + 12 * self.age


class NoteWriter:
    """One author. `u` gives the next random number. Authors mostly repeat their own wording."""

    __slots__ = ("author", "case", "lists", "phrases", "side", "slots", "u")

    def __init__(
        self,
        phrases: list[tuple[Phrase, ...]],
        lists: dict[str, tuple[Phrase, ...]],
        slots: dict[str, tuple[str, ...]],
        side: str,
        u: Callable[[], float],
        author: int,
        case: Case,
    ) -> None:
        self.phrases, self.lists, self.slots, self.side = phrases, lists, slots, side
        self.u, self.author, self.case = u, author, case

    def say(self, phrase: Phrase) -> str:
        """A phrase with its slots filled."""
        if type(phrase) is str:
            return phrase.replace("{side}", self.side) if "{side}" in phrase else phrase
        u = self.u
        text = "".join([part if type(part) is str else part[int(u() * len(part))] for part in phrase])
        return text.replace("{side}", self.side) if "{side}" in text else text

    def choose(self, ways: tuple[Phrase, ...]) -> str:
        """Any of these ways to say a thing."""
        return self.say(ways[int(self.u() * len(ways))])

    def own(self, ways: tuple[Phrase, ...], k: int) -> str:
        """Mostly the author's own way to say thing k."""
        r = self.u()
        size = len(ways)
        return self.say(ways[(self.author * 7 + k * 3) % size if r < OWN_WAY else int((r - OWN_WAY) * 4 * size)])

    def phrase(self, finding: int) -> str:
        """A finding in words."""
        return self.own(self.phrases[finding], finding)

    def habit(self, name: str, k: int = 0) -> str:
        """Mostly the author's own entry of a list of the department."""
        ways = self.lists[name]
        r = self.u()
        return self.say(ways[(self.author * 5 + k * 7) % len(ways) if r < 0.6 else int((r - 0.6) * 2.5 * len(ways))])

    def opening(self, name: str, symptoms: list[Piece], lasting: str | None = None) -> list[Piece]:
        """The first sentence: who the patient is, and the symptoms where the list `name` has a place for them.

        lasting: for how long, if the complaint says so.
        """
        case = self.case
        sex, s = ("male", "M") if case.male else ("female", "F")
        if case.age > 17 and self.author % 3 == 0:
            sex = "man" if case.male else "woman"
        elif case.age < MAY_BE and self.author % 3 == 0:
            sex = "boy" if case.male else "girl"
        text = self.habit(name)
        if case.age < 2:
            months = f"{case.months}mo"
            text = text.replace("{age} yo", "{age}").replace("{age}y/o", "{age}").replace("{age}y ", "{age} ")
            text = text.replace("{age}{s}", "{age} {s}").replace("{age}", months)
        elif name.startswith("parent"):
            text = text.replace("{age} old", "{age}").replace("{age}", f"{case.age}yo")
        else:
            text = text.replace("{age}", str(case.age))
        for slot, values in (("{since}", "since"), ("{for}", "for")):
            if slot in text and lasting:
                text = text.replace(slot, lasting if slot == "{for}" else f"{lasting} ago")
            elif slot in text:
                text = text.replace(slot, self.slots[values][int(self.u() * len(self.slots[values]))])
        if "{when}" in text:
            text = text.replace("{when}", self.habit("whens"))
        if "{parent}" in text:
            text = text.replace("{parent}", self.habit("parents"))
        before, _, after = text.replace("{s}", s).replace("{sex}", sex).partition("{sx}")
        if "{sx}" not in text:
            return [(before, NONE)]
        return [piece for piece in [(before, NONE), *symptoms, (after, NONE)] if piece[0]]


def cut(text: str, slots: dict[str, tuple[str, ...]]) -> Phrase:
    """A text with {slots} cut into literals and choices; slots that are filled later stay as they are."""
    parts = _SLOT.split(text)
    if not any(name in slots and name not in _LATER for name in parts[1::2]):
        return text
    return tuple(
        part if k % 2 == 0 else "{" + part + "}" if part in _LATER else slots[part] for k, part in enumerate(parts)
    )


def slip(text: str, where: float) -> str:
    """A typing error: two neighbouring letters inside a word of four letters or more are exchanged."""
    k = int(where * max(len(text) - 2, 0))
    if k == 0 or len(text[k - 1 : k + 3]) < 4 or not text[k - 1 : k + 3].isalpha():
        return text
    return text[:k] + text[k + 1] + text[k] + text[k + 2 :]
