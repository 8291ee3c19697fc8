"""Writing a visit down: chief complaint, triage note and MD comments, as people write or as a list of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from whatelse.simulate.content import SECTIONS, Department
from whatelse.visits import Code

Phrase = str | tuple[str | tuple[str, ...], ...]  # with slots: literal text and lists to choose from, in turn
FIELDS = ("complaint", "triage", "md", "home", "given")
_SLOT = re.compile(r"\{(\w+)\}")
_OPENINGS = ("openers", "bare_openers", "md_openers")
_LISTS = (
    *_OPENINGS,
    "modifiers",
    "also",
    "denies",
    "last_negative",
    "histories",
    "exams",
    "courses",
    "asides",
    "md_asides",
)
_LATER = ("age", "s", "sex", "sx")  # slots that the opening fills itself


@dataclass(frozen=True, slots=True)
class Case:
    """What the writer is told of a visit: findings by section, and (condition, is it true) for each anchor to write."""

    on: list[list[int]]
    anchors: list[tuple[int, bool]]
    primary: int
    age: int
    male: bool
    nurse: int
    doctor: int


@dataclass(slots=True)
class Written:
    """The text fields, and the anchor drugs that were written instead of words."""

    complaint: str
    triage: str
    md: str
    home: list[Code]
    given: list[Code]


class Writer:
    """A department's phrases made ready."""

    def __init__(self, department: Department) -> None:
        style: dict[str, Any] = dict(department.style)
        slots = {name: tuple(values) for name, values in style["slots"].items()}
        profiles = list(department.profiles.values())
        self.phrases = [_compile(phrases, slots) for phrases in department.phrases]
        self.complaints = [_compile(profile.get("complaint", ()), slots) for profile in profiles]
        self.anchors = [
            {field: _compile(profile["anchor"].get(field, ()), slots) for field in (*FIELDS, "elsewhere")}
            for profile in profiles[: len(department.conditions)]
        ]
        self.lists = {name: _compile(style[name], slots) for name in _LISTS}
        self.weight = [row.tolist() for row in department.rate]  # what matters most to a visit is written first
        self.healthy = department.names.index("nopmh")
        self.misspellings: dict[str, str] = style["misspellings"]
        self.misspelled = re.compile("|".join(self.misspellings))

    def write(self, case: Case, draws: Sequence[float]) -> Written:
        """The notes of a visit: a function of the case and of `draws`, uniform numbers."""
        u: Callable[[], float] = cycle(draws).__next__
        nurse, doctor = _Pen(self, u, case.nurse), _Pen(self, u, case.doctor + 3)
        own, anchors = self._anchors(case, nurse)
        matters = self.weight[case.primary].__getitem__
        symptoms = sorted(case.on[0], key=matters, reverse=True)
        said = [nurse.phrase(j) for j in symptoms]
        usual = 0.85 if case.primary < len(self.anchors) else 0.5
        complaint = own or (nurse.choose(self.complaints[case.primary]) if u() < usual or not said else said[0])
        if anchors["complaint"]:
            complaint += ("/" if u() < 0.5 else ", ") + anchors["complaint"][0]
        return Written(
            complaint,
            self._finish(self._triage(case, nurse, said, anchors["triage"]), nurse),
            self._finish(self._comments(case, doctor, symptoms[:2], anchors["md"]), doctor),
            [Code("name", name, name) for name in anchors["home"]],
            [Code("name", name, name) for name in anchors["given"]],
        )

    def _anchors(self, case: Case, pen: _Pen) -> tuple[str, dict[str, list[str]]]:
        """The chief complaint if an anchor is it, and what to write of the anchors in each field."""
        own = ""
        wanted: dict[str, list[str]] = {field: [] for field in FIELDS}
        for condition, true in case.anchors:
            ways = self.anchors[condition]
            if not true:
                wanted["triage" if pen.u() < 0.6 else "md"].append(pen.choose(ways["elsewhere"]))
                continue
            fields = [field for field in FIELDS if ways[field]]
            for field in dict.fromkeys([fields[int(pen.u() * len(fields))] for _ in range(2)]):
                text = pen.choose(ways[field])
                if field == "complaint" and condition == case.primary:
                    own = text
                else:
                    wanted[field].append(text)
        return own, wanted

    def _triage(self, case: Case, pen: _Pen, said: list[str], anchors: list[str]) -> list[str]:
        """The nurse's sentences."""
        _, negatives, story, history = case.on[:4]
        u = pen.u
        first = 1 + int(u() * 3)
        complaints = ", ".join(said[:first]) + pen.habit("modifiers") if said else ""
        sentences = [pen.opening("openers" if said else "bare_openers", case, complaints), *anchors]
        if story:
            told, cut = [pen.phrase(j) for j in story], 1 + int(u() * 3)
            sentences += [", ".join(told[:cut]), ", ".join(told[cut:])]
        if said[first:]:
            sentences.append(pen.habit("also") + ", ".join(said[first:]))
        if negatives:
            denied = [pen.phrase(j) for j in negatives]
            last = pen.habit("last_negative") if len(denied) > 1 else ""
            sentences.append(pen.habit("denies") + ", ".join(denied[:-1]) + last + denied[-1])
        if len(history) > 1:
            history = [j for j in history if j != self.healthy]
        if history:
            sentences.append(pen.habit("histories") + ", ".join([pen.phrase(j) for j in history]))
        if pen.author % 5 == 0:
            pulse, pressure, low = 62 + int(u() * 45), 104 + int(u() * 56), 58 + int(u() * 34)
            sentences.append(f"T {97 + int(u() * 3)}.{int(u() * 10)} HR {pulse} BP {pressure}/{low}")
        sentences += [pen.habit("asides", k) for k in range(2 + pen.author % 5 + int(u() * 3))]
        return sentences

    def _comments(self, case: Case, pen: _Pen, symptoms: list[int], anchors: list[str]) -> list[str]:
        """The physician's sentences; none if there is nothing to say."""
        exam, course = case.on[4:6]
        if not (exam or course or anchors):
            return []
        shown = ", ".join([pen.phrase(j) for j in symptoms]) or "as above"
        sentences = [pen.opening("md_openers", case, shown), *anchors]
        if exam:
            sentences.append(pen.habit("exams") + ", ".join([pen.phrase(j) for j in exam]))
        if course:
            done, cut = [pen.phrase(j) for j in course], 1 + int(pen.u() * 4)
            sentences += [pen.habit("courses") + ", ".join(done[:cut]), ", ".join(done[cut:])]
        sentences += [pen.habit("md_asides", k) for k in range(int(pen.u() * 3))]
        return sentences

    def _finish(self, sentences: list[str], pen: _Pen) -> str:
        """Sentences put together by the author's habits, with now and then a slip of the finger."""
        end = (". ", ". ", "; ", ".\n", ". ")[pen.author % 5]
        text = end.join([sentence for sentence in dict.fromkeys(sentences) if sentence])
        if pen.u() < 0.12:
            text = _slip(text, pen.u())
        if pen.author % 4 == 1 and pen.u() < 0.5:
            text = self.misspelled.sub(lambda match: self.misspellings[match[0]], text)
        return text.upper() if pen.author % 11 == 7 else text


class _Pen:
    """An author at work: `u` gives the next random number. People mostly repeat their own ways of saying things."""

    __slots__ = ("author", "lists", "phrases", "u")

    def __init__(self, writer: Writer, u: Callable[[], float], author: int) -> None:
        self.phrases, self.lists, self.u, self.author = writer.phrases, writer.lists, u, author

    def say(self, phrase: Phrase) -> str:
        if type(phrase) is str:
            return phrase
        u = self.u
        return "".join([part if type(part) is str else part[int(u() * len(part))] for part in phrase])

    def choose(self, ways: tuple[Phrase, ...]) -> str:
        return self.say(ways[int(self.u() * len(ways))])

    def phrase(self, finding: int) -> str:
        ways = self.phrases[finding]
        r = self.u()
        way = ways[(self.author * 7 + finding) % len(ways) if r < 0.6 else int((r - 0.6) * 2.5 * len(ways))]
        return way if type(way) is str else self.say(way)

    def habit(self, name: str, k: int = 0) -> str:
        ways = self.lists[name]
        r = self.u()
        way = ways[(self.author * 5 + k * 7) % len(ways) if r < 0.6 else int((r - 0.6) * 2.5 * len(ways))]
        return way if type(way) is str else self.say(way)

    def opening(self, name: str, case: Case, symptoms: str) -> str:
        sex, s = ("male", "M") if case.male else ("female", "F")
        if case.age > 17 and self.author % 3 == 0:
            sex = "man" if case.male else "woman"
        text = self.habit(name).replace("{age}", str(case.age)).replace("{s}", s)
        return text.replace("{sex}", sex).replace("{sx}", symptoms)


def words(department: Department, case: Case) -> Written:
    """The visit as a list: one word for each finding and each anchor, a line each so that no two are neighbours."""
    texts = [[department.keys[j] for j in case.on[k]] for k in range(6)]
    negatives = ["-" + key for key in texts[SECTIONS.index("negative")]]
    plain = [department.profiles[department.conditions[i]]["anchor"]["plain"] for i, _ in case.anchors]
    symptom, _, story, history, exam, course = texts
    return Written("", "\n".join([*plain, *symptom, *negatives, *story, *history]), "\n".join([*exam, *course]), [], [])


def _compile(texts: Sequence[str], slots: dict[str, tuple[str, ...]]) -> tuple[Phrase, ...]:
    """Texts with {slots} cut into literals and choices; slots that are filled later stay as they are."""
    return tuple(_cut(text, slots) for text in texts)


def _cut(text: str, slots: dict[str, tuple[str, ...]]) -> Phrase:
    parts = _SLOT.split(text)
    if not any(name in slots for name in parts[1::2]):
        return text
    return tuple(
        part if k % 2 == 0 else "{" + part + "}" if part in _LATER else slots[part] for k, part in enumerate(parts)
    )


def _slip(text: str, where: float) -> str:
    """Two neighbouring letters changed over, or nothing where there are no two."""
    k = int(where * max(len(text) - 2, 0))
    if not text[k : k + 2].isalpha():
        return text
    return text[:k] + text[k + 1] + text[k] + text[k + 2 :]
