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


@dataclass(frozen=True, slots=True)
class Case:
    """What the writer is told of one visit: `on` findings by section, conditions whose anchor is written, and rightly."""

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
    """A department's phrases made ready. `write` is a pure function of the case and its random numbers."""

    def __init__(self, department: Department) -> None:
        style: dict[str, Any] = dict(department.style)
        self.slots = {name: tuple(values) for name, values in style["slots"].items()}
        self.phrases = [tuple(self._compile(p) for p in phrases) for phrases in department.phrases]
        profiles = list(department.profiles.values())
        self.complaints = [tuple(self._compile(p) for p in profile.get("complaint", ())) for profile in profiles]
        self.anchors = [
            {f: tuple(self._compile(p) for p in profile["anchor"].get(f, ())) for f in (*FIELDS, "elsewhere")}
            for profile in profiles[: len(department.conditions)]
        ]
        lists = "openers bare_openers md_openers also denies last_negative histories exams courses closings md_closings"
        self.lists: dict[str, tuple[Phrase, ...]] = {
            name: tuple(self._compile(p, keep=("age", "s", "sex", "sx")) for p in style[name]) for name in lists.split()
        }
        self.misspellings: dict[str, str] = style["misspellings"]
        self.misspelled = re.compile("|".join(self.misspellings))

    def _compile(self, text: str, keep: Sequence[str] = ()) -> Phrase:
        """Text with {slots} cut into literals and choices; slots in `keep` stay as they are."""
        parts = _SLOT.split(text)
        if len(parts) == 1:
            return text
        cut: list[str | tuple[str, ...]] = []
        for k, part in enumerate(parts):
            cut.append(part if k % 2 == 0 else "{" + part + "}" if part in keep else self.slots[part])
        return tuple(cut)

    def write(self, case: Case, draws: Sequence[float]) -> Written:
        """The notes of a visit. `draws` are uniform numbers."""
        u: Callable[[], float] = cycle(draws).__next__

        def choose(options: Sequence[Any]) -> Any:
            return options[int(u() * len(options))]

        def say(phrase: Phrase) -> str:
            if type(phrase) is str:
                return phrase
            return "".join([part if type(part) is str else choose(part) for part in phrase])

        def phrase(j: int, author: int) -> str:
            options = self.phrases[j]
            r = u()  # people repeat their own ways of saying things
            k = (author * 7 + j) % len(options) if r < 0.6 else int((r - 0.6) * 2.5 * len(options))
            way = options[k]
            return way if type(way) is str else say(way)

        def listing(name: str, author: int) -> str:
            options = self.lists[name]
            r = u()
            way = options[author % len(options) if r < 0.7 else int((r - 0.7) / 0.3 * len(options))]
            return way if type(way) is str else say(way)

        symptoms, negatives, story, history, exam, course = case.on[:6]
        nurse, doctor = case.nurse, case.doctor
        anchors: dict[str, list[str]] = {f: [] for f in FIELDS}
        own_complaint = ""
        for condition, rightly in case.anchors:
            ways = self.anchors[condition]
            fields = [f for f in FIELDS if ways[f]] if rightly else []
            if not fields:
                anchors["triage" if u() < 0.6 else "md"].append(say(choose(ways["elsewhere"])))
                continue
            for field in {choose(fields), choose(fields)}:
                if field == "complaint" and condition == case.primary:
                    own_complaint = say(choose(ways[field]))
                else:
                    anchors[field].append(say(choose(ways[field])))

        sex, s = ("male", "M") if case.male else ("female", "F")
        if u() < 0.5:
            sex = sex[0] if nurse % 3 == 0 else ("man" if case.male else "woman") if case.age > 17 else sex

        said = [phrase(j, nurse) for j in symptoms]
        first = said[:3] if u() < 0.5 else said[:2]
        rest = said[len(first) :]
        complaint = own_complaint or (say(choose(self.complaints[case.primary])) if u() < 0.85 or not said else said[0])
        if anchors["complaint"]:
            complaint += ("/" if u() < 0.5 else ", ") + anchors["complaint"][0]

        def opening(name: str, sx: str, author: int) -> str:
            text = listing(name, author)
            return text.replace("{age}", str(case.age)).replace("{s}", s).replace("{sex}", sex).replace("{sx}", sx)

        triage = [opening("openers", ", ".join(first), nurse) if first else opening("bare_openers", "", nurse)]
        triage += anchors["triage"]
        told = [phrase(j, nurse) for j in story]
        if told:
            cut = 1 + int(u() * 3)
            triage += [", ".join(told[:cut])] + ([", ".join(told[cut:])] if told[cut:] else [])
        if rest:
            triage.append(listing("also", nurse) + ", ".join(rest))
        if negatives:
            denied = [_bare(phrase(j, nurse)) for j in negatives]
            joiner = listing("last_negative", nurse)
            head = ", ".join(denied[:-1])
            triage.append(listing("denies", nurse) + (head + joiner if head else "") + denied[-1])
        if history:
            triage.append(listing("histories", nurse) + ", ".join([phrase(j, nurse) for j in history]))
        if nurse % 5 == 0:
            triage.append(
                f"T {97 + int(u() * 3)}.{int(u() * 10)} HR {62 + int(u() * 45)} BP {104 + int(u() * 56)}/{58 + int(u() * 34)}"
            )
        triage.append(listing("closings", nurse))

        md: list[str] = []
        if exam or course or anchors["md"]:
            shown = ", ".join([phrase(j, doctor) for j in symptoms[:2]]) or "above"
            md = [opening("md_openers", shown, doctor), *anchors["md"]]
            if exam:
                md.append(listing("exams", doctor) + ", ".join([phrase(j, doctor) for j in exam]))
            if course:
                said = [phrase(j, doctor) for j in course]
                cut = 1 + int(u() * len(said))
                md.append(listing("courses", doctor) + ", ".join(said[:cut]))
                md.append(", ".join(said[cut:]))
            md.append(listing("md_closings", doctor))

        note = self._finish(triage, nurse, u)
        comments = self._finish(md, doctor + 3, u)
        home = [Code("name", name, name) for name in anchors["home"]]
        given = [Code("name", name, name) for name in anchors["given"]]
        return Written(complaint, note, comments, home, given)

    def _finish(self, sentences: list[str], author: int, u: Callable[[], float]) -> str:
        """Sentences put together by the author's habits, with now and then a slip of the finger."""
        end = (". ", ". ", "; ", ".\n", ". ")[author % 5]
        text = end.join([sentence for sentence in sentences if sentence])
        if u() < 0.12:
            text = _slip(text, u())
        if author % 4 == 1 and u() < 0.5:
            text = self.misspelled.sub(lambda match: self.misspellings[match[0]], text)
        return text.upper() if author % 11 == 7 else text


def words(department: Department, case: Case) -> Written:
    """The visit as a list: one word for each finding and each anchor, a line each so that no two are neighbours."""
    texts = [[department.keys[j] for j in case.on[k]] for k in range(6)]
    negatives = ["-" + key for key in texts[SECTIONS.index("negative")]]
    plain = [department.profiles[department.conditions[i]]["anchor"]["plain"] for i, _ in case.anchors]
    symptom, _, story, history, exam, course = texts
    return Written("", "\n".join([*plain, *symptom, *negatives, *story, *history]), "\n".join([*exam, *course]), [], [])


def _bare(phrase: str) -> str:
    """A symptom as it is denied: without its plus sign and its count."""
    return re.sub(r" x\d+d?$| to 10\d$", "", phrase.lstrip("+"))


def _slip(text: str, where: float) -> str:
    """Two neighbouring letters changed over, or left alone where there are no two."""
    k = int(where * max(len(text) - 2, 0))
    if not text[k : k + 2].isalpha():
        return text
    return text[:k] + text[k + 1] + text[k] + text[k + 2 :]

