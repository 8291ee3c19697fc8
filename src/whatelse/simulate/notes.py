"""Writes the chief complaint, triage note and MD comments of a visit, as prose or as a list of words.

A note is a list of pieces, each with the tag of its cause: a finding's column, or one of the ranges below. Pieces keep
their length when they are joined, so a tag marks a stretch of the text (`causes.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from whatelse.simulate.content import SECTIONS, Department
from whatelse.simulate.note_writer import MAY_BE, NONE, Case, NoteWriter, Phrase, Piece, cut, slip
from whatelse.simulate.rates import MEASURES

REASON, NAMED, MENTION = 10_000, 20_000, 30_000  # tags: REASON + reason; NAMED, MENTION + condition
SPOKEN_FOR = 6  # under this age a parent always speaks, under MAY_BE half of the time
KINDS = ("history", "resolved", "family", "ruleout", "someone", "copied")
INJURIES = {"fracture", "sprain or strain", "contusion", "laceration", "head injury", "burn", "assault injury"}
_LISTS = (
    *("openers", "parent_openers", "injury_openers", "parent_injury_openers", "whens", "parents", "modifiers"),
    *("asides", "child_asides", "md_asides", "md_child_asides", "md_openers", "also", "denies", "child_denies"),
    *("last_negative", "histories", "problems", "exams", "courses", "impressions"),
)
_VITAL = [
    MEASURES.index(name) for name in ("temperature", "pulse", "systolic", "diastolic", "respirations", "saturation")
]
_LASTING = re.compile(r" x (\d+d)$")  # of a complaint
_OPENING = re.compile(r"^(?:pt )?(?:c/o|w/|here for|here w/) ")
_PAIN = MEASURES.index("pain")


@dataclass(slots=True)
class Written:
    """The text fields and their pieces. home: further drugs at home (name, tag) by which a condition was named."""

    complaint: str
    triage: str
    md: str
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    home: list[tuple[str, int]] = field(default_factory=list)


class Writer:
    """Writes notes with the phrases of a department."""

    def __init__(self, department: Department) -> None:
        style: dict[str, Any] = dict(department.style)
        self.slots = {name: tuple(values) for name, values in style["slots"].items()}
        self.phrases = [self._compile(phrases) for phrases in department.phrases]
        profiles = [department.profiles[name] for name in department.conditions]
        self.anchors = [
            {k: self._compile(p["anchor"].get(k, ())) for k in ("triage", "md", "home", "small_triage", "small_md")}
            for p in profiles
        ]
        self.under = [p["anchor"].get("under", 0) for p in profiles]
        self.said = [
            {k: self._compile(entry.get(k, ())) for k in ("says", "named", "small")} for entry in department.said
        ]
        place = {name: i for i, name in enumerate(department.conditions)}
        self.names = [place.get(entry.get("names", ""), -1) for entry in department.said]
        self.key = department.reason_key.tolist()
        self.section, self.keys = department.section.tolist(), department.keys
        self.mentions = [
            {k: self._compile(department.mentions[name].get(k) or ()) for k in (*KINDS, "denied")}
            for name in department.conditions
        ]
        self.denied_from = department.mention_from.tolist()
        self.lists = {name: self._compile(style[name]) for name in _LISTS}
        self.normals, self.child_normals = style["normals"], style["child_normals"]
        self.sides = style["sides"]
        self.blanks = {text: kind for kind, texts in style["blanks"].items() for text in texts}
        self.weight = [row.tolist() for row in department.rate]  # what matters most to a visit is written first
        column = {name: j for j, name in enumerate(department.names)}
        self.healthy = column["nopmh"]
        self.parts = {column[key] for key in (*style["parts"], "neckpain", "headstrike")}
        self.errands = set(style["errands"])
        self.unfit = [({column[key] for key in rule["beside"]}, set(rule["texts"])) for rule in style["unfit"]]
        self.times: dict[str, tuple[int, int, str]] = style["times"]
        self.timed = re.compile("|".join(self.times))
        self.blanked = {kind: {column[key] for key in keys} for kind, keys in style["blanked"].items()}
        self.causes = [*department.conditions, *department.reasons]
        self.accidents = {place["fall"], place["vehicle collision"]}
        self.misspellings: dict[str, str] = style["misspellings"]
        self.misspelled = re.compile("|".join(self.misspellings))

    def _compile(self, texts: Sequence[str]) -> tuple[Phrase, ...]:
        return tuple(cut(text, self.slots) for text in texts)

    def write(self, case: Case, draws: Sequence[float]) -> Written:
        """The notes of a visit: a function of the case and of `draws`, uniform numbers."""
        u: Callable[[], float] = cycle(draws).__next__
        right = int(u() < 0.5)
        nurse, doctor = (
            NoteWriter(
                self.phrases, self.lists, self.slots, self.sides[author % len(self.sides)][right], u, author, case
            )
            for author in (case.nurse, case.doctor + 43)
        )
        said = [self._reason(nurse, r) for r in case.reasons]
        home: list[tuple[str, int]] = []
        triage_names, md_names = self._names(case, nurse, doctor, said, home)
        triage_mentions, md_mentions = self._mentions(case, nurse)
        complaint = self._complaint(case, nurse, said)
        triage = self._finish(self._triage(case, nurse, said, triage_names, triage_mentions), nurse)
        md = self._finish(self._comments(case, doctor, md_names, md_mentions), doctor)
        pieces = {"chief_complaint": complaint, "triage_note": triage, "md_comments": md}
        texts = ["".join([text for text, _ in part]) for part in pieces.values()]
        return Written(texts[0], texts[1], texts[2], pieces, home)

    # ---- what is said

    def _reason(self, writer: NoteWriter, reason: int) -> tuple[str, int, bool]:
        """(words, tag, whether they name the condition). A nurse has a word for each thing, and seldom another."""
        ways = self.said[reason]
        if ways["named"]:
            names = (writer.author * 31 + reason * 17) % 100 < 88 if writer.u() < 0.8 else writer.u() < 0.88
            if names and writer.case.age >= 3:
                return writer.own(ways["named"], reason), REASON + reason, True
        small = ways["small"] if writer.case.age < 5 and ways["small"] else ways["says"]
        return writer.own(small, reason), REASON + reason, False

    def _complaint(self, case: Case, writer: NoteWriter, said: list[tuple[str, int, bool]]) -> list[Piece]:
        text, tag, _ = said[0]
        pieces = [(self._part(text, case, said), tag)]
        both = len(said) > 1 and (writer.author % 3 == 0 or writer.u() < 0.15)
        if both and "{" not in said[1][0] and said[1][0] not in text and len(text) < 24:
            pieces += [("/" if writer.author % 2 else ", ", NONE), (said[1][0], said[1][1])]
        change = (str.upper, str.upper, str.lower, str.capitalize)[writer.author % 4]
        first = [(change(pieces[0][0]), pieces[0][1])]
        return first + [(t.upper() if change is str.upper else t, tag) for t, tag in pieces[1:]]

    def _part(self, text: str, case: Case, said: list[tuple[str, int, bool]]) -> str:
        """A text with a {part} names the part of the body that was said next, if one was."""
        if "{part}" not in text:
            return text
        for (words, tag, _), r in zip(said[1:], case.reasons[1:], strict=True):
            if self.key[r] in self.parts and tag != said[0][1] and "{" not in words:
                return text.replace("{part}", words)
        return text.replace(", {part}", "").replace(" {part}", "")

    def _names(
        self,
        case: Case,
        nurse: NoteWriter,
        doctor: NoteWriter,
        said: list[tuple[str, int, bool]],
        home: list[tuple[str, int]],
    ) -> tuple[list[Piece], list[Piece]]:
        """Where the conditions that are named are written: by the nurse, the physician, or as a drug at home."""
        triage: list[Piece] = []
        md: list[Piece] = []
        for i in case.named:
            ways, small = self.anchors[i], case.age < self.under[i]
            r = nurse.u()
            if ways["home"] and r < 0.5:
                home.append((nurse.choose(ways["home"]), NAMED + i))
            elif r < 0.55:
                triage.append((nurse.own(ways["small_triage" if small else "triage"], i), NAMED + i))
            else:
                md.append((doctor.own(ways["small_md" if small else "md"], i), NAMED + i))
        for (_, tag, named), r in zip(said, case.reasons, strict=True):  # an accident is told, not complained of
            i = self.names[r]
            if named and i in self.accidents and tag - REASON == r and not any(t == NAMED + i for _, t in triage):
                form = "small_triage" if case.age < self.under[i] else "triage"
                triage.append((nurse.own(self.anchors[i][form], i), REASON + r))
        return triage, md

    def _mentions(self, case: Case, nurse: NoteWriter) -> tuple[list[Piece], list[Piece]]:
        """Conditions written without being there: history, family, ruled out, somebody else's, copied forward."""
        triage: list[Piece] = []
        md: list[Piece] = []
        for i in case.mentioned:
            ways = self.mentions[i]
            kinds = [kind for kind in KINDS if ways[kind]]
            kind = kinds[int(nurse.u() * len(kinds))]
            piece = (nurse.choose(ways[kind]), MENTION + 10 * i + KINDS.index(kind))
            (md if kind in ("ruleout", "copied") or nurse.u() < 0.3 else triage).append(piece)
        return triage, md

    # ---- the notes

    def _triage(
        self,
        case: Case,
        writer: NoteWriter,
        said: list[tuple[str, int, bool]],
        names: list[Piece],
        mentions: list[Piece],
    ) -> list[list[Piece]]:
        """The nurse's sentences."""
        u, child = writer.u, case.age < MAY_BE
        parent = case.age < SPOKEN_FOR or (child and u() < 0.5)
        symptoms, story = self._symptoms(case, writer, said), case.on[2]
        first = 1 + int(u() * 2.6)
        injury = self.causes[case.primary] in INJURIES or case.lead in self.accidents
        style = ("parent_" if parent else "") + ("injury_" if injury else "") + "openers"
        sentences = []
        words, tag, _ = said[0]
        words = _LASTING.sub("", words)
        chief, lasting = self.key[case.reasons[0]], found[1] if (found := _LASTING.search(said[0][0])) else None
        if self.section[chief] != 0 or not symptoms:  # what happened, not a symptom that happens to be there
            if names:
                sentences.append(writer.opening(style, [names.pop(0)], lasting))
            elif self.keys[chief] in self.errands:
                errand = "eval" if self.keys[chief] == "pcp" else words
                sentences.append([(f"{'' if writer.author % 2 else 'pt '}here for {errand}", tag)])
            else:
                sentences.append(
                    writer.opening(style, [(self._part(words, case, said).replace("? ", ""), tag)], lasting)
                )
            first = 0
        else:
            opening = symptoms[:first]
            if not injury and u() < 0.5:
                opening = [*opening, (writer.habit("modifiers"), NONE)]
            sentences.append(writer.opening(style, _list(opening), lasting))
        sentences += [[piece] for piece in names if not _told(piece[0], sentences[0])]
        sent = {self.key[r] for r in case.reasons} if writer.author % 3 else set()  # few write who sent the patient
        told = [(writer.phrase(j), j) for j in story if self.keys[j] != "pcp" or j not in sent]
        if told:
            cut = 1 + int(u() * 3)
            sentences += [_list(told[:cut]), _list(told[cut:])]
        if symptoms[first:]:
            sentences.append([(writer.habit("also"), NONE), *_list(symptoms[first:])])
        sentences.append(self._denies(case, writer, child))
        history = case.on[3]
        if len(history) > 1:
            history = [j for j in history if j != self.healthy]
        past = [(writer.phrase(j), j) for j in history]
        if history == [self.healthy]:
            sentences.append(past)
        elif past:
            sentences.append([(writer.habit("histories"), NONE), *_list(past)])
        sentences += [[piece] for piece in mentions]
        sentences.append(self._vitals(case, writer))
        asides = int(case.talk[0] * (0.6 + 1.6 * u()) + (1 if case.late and writer.author % 2 else 0))
        return sentences + self._asides(case, writer, "child_asides" if child else "asides", asides)

    def _asides(self, case: Case, writer: NoteWriter, name: str, count: int) -> list[list[Piece]]:
        """Stock phrases of the author that do not contradict the findings."""
        if not count:
            return []
        here = self._all(case)
        unfit = set().union(*(texts for beside, texts in self.unfit if beside & here))
        said = (writer.habit(name, k) for k in range(count + 2 * bool(unfit)))
        return [[(text, NONE)] for text in said if text not in unfit][:count]

    def _symptoms(self, case: Case, writer: NoteWriter, said: list[tuple[str, int, bool]]) -> list[Piece]:
        """Symptoms as pieces. Reasons for the visit come first, in the complaint's words if these name a condition."""
        pieces: list[Piece] = []
        done = set()
        on = set(case.on[0])
        for (words, tag, named), r in zip(said, case.reasons, strict=True):
            j = self.key[r]
            if self.section[j] != 0 or j in done or j not in on:
                continue
            done.add(j)
            plain = named and "?" not in words and self.names[r] not in self.accidents
            words = _LASTING.sub("", words)
            pieces.append((words, tag) if plain and writer.u() < 0.75 else (writer.phrase(j), j))
        matters = self.weight[case.primary].__getitem__
        rest = sorted((j for j in case.on[0] if j not in done), key=matters, reverse=True)
        return pieces + [(writer.phrase(j), j) for j in rest]

    def _denies(self, case: Case, writer: NoteWriter, child: bool) -> list[Piece]:
        negatives = [(writer.phrase(j), j) for j in case.on[1]]
        if negatives and writer.u() < 0.4:  # a pertinent negative may be of one of the conditions
            i = int(writer.u() * len(self.mentions))
            here = {self.names[r] for r in case.reasons} | set(case.named) | set(case.mentioned)
            old = case.age >= max(self.denied_from[i], 6)
            if self.mentions[i]["denied"] and i not in here and old and i != case.lead:
                negatives.append((writer.choose(self.mentions[i]["denied"]), NONE))
        if not negatives:
            return []
        negatives = list({text: (text, j) for text, j in negatives}.values())
        start: list[Piece] = [(writer.habit("child_denies" if child else "denies"), NONE)]
        if len(negatives) == 1:
            return start + negatives
        return start + _list(negatives[:-1]) + [(writer.habit("last_negative"), NONE), negatives[-1]]

    def _vitals(self, case: Case, writer: NoteWriter) -> list[Piece]:
        """Vital signs as measured. Some nurses write them down, others do not."""
        temperature, pulse, systolic, diastolic, breath, oxygen = [case.measure[k] for k in _VITAL]
        parts = []
        if writer.author % 4 == 0 or writer.u() < 0.12:
            parts = [
                f"T {temperature / 10:.1f}" if temperature == temperature else "",
                f"HR {pulse:.0f}" if pulse == pulse else "",
                f"BP {systolic:.0f}/{diastolic:.0f}" if systolic == systolic and diastolic == diastolic else "",
                f"RR {breath:.0f}" if breath == breath else "",
                f"O2 {oxygen:.0f}% RA" if oxygen == oxygen and oxygen >= 92 else "",
            ]
        pain = case.measure[_PAIN]
        if pain == pain and case.age >= 4 and (writer.author % 3 == 1 or writer.u() < 0.1):
            parts.append(f"pain {pain:.0f}/10")
        text = " ".join([part for part in parts if part])
        return [(text, NONE)] if text else []

    def _comments(self, case: Case, writer: NoteWriter, names: list[Piece], mentions: list[Piece]) -> list[list[Piece]]:
        """The physician's sentences; none for a simple visit of one who writes little."""
        u, child = writer.u, case.age < MAY_BE
        exam, course = case.on[4:6]
        if not names and not mentions and (not (exam or course) or case.talk[1] < 0.35):
            return []
        shown = [(writer.phrase(j), j) for j in self._main(case)[:2]]
        sentences = [writer.opening("md_openers", _list(shown) or [("as above", NONE)])]
        found = [(writer.phrase(j), j) for j in exam]
        if writer.author % 5 == 2 and case.talk[1] > 0.7:  # a template of a normal examination, then the findings
            normal = (self.child_normals if child else self.normals)[writer.author % (2 if child else 3)]
            here = {kind for kind, keys in self.blanked.items() if keys & self._all(case)}
            blank = [(text, NONE) for text in normal[: 2 + int(u() * 4)] if self.blanks.get(text) not in here]
            sentences.append([(writer.habit("exams"), NONE), *_list([*blank, *found])])
        elif found:
            sentences.append([(writer.habit("exams"), NONE), *_list(found)])
        done = [(writer.phrase(j), j) for j in course]
        if done:
            cut = 1 + int(u() * 4)
            sentences += [[(writer.habit("courses"), NONE), *_list(done[:cut])], _list(done[cut:])]
        for piece in names:
            sentences.append([(writer.habit("impressions"), NONE), piece])
        copied = [piece for piece in mentions if (piece[1] - MENTION) % 10 == KINDS.index("copied")]
        if copied:
            sentences.append([(writer.habit("problems"), NONE), *_list(copied)])
        sentences += [[piece] for piece in mentions if piece not in copied]
        asides = int(case.talk[1] * 1.8 * u())
        return sentences + self._asides(case, writer, "md_child_asides" if child else "md_asides", asides)

    def _all(self, case: Case) -> set[int]:
        return {j for k, part in enumerate(case.on) if k not in (1, 6, 7) for j in part}

    def _main(self, case: Case) -> list[int]:
        matters = self.weight[case.primary].__getitem__
        keys = [self.key[r] for r in case.reasons]
        return sorted(case.on[0], key=lambda j: (j in keys[:1], matters(j)), reverse=True)

    def _timed(self, text: str, hour: int) -> str:
        """A text with words for a time of day that fit the hour of arrival: nobody fell "tonight" at noon."""

        def fitting(found: re.Match[str]) -> str:
            first, last, other = self.times[found[0]]
            return found[0] if first <= (hour + 19) % 24 + 5 < last else other

        return self.timed.sub(fitting, text)

    def _finish(self, sentences: list[list[Piece]], writer: NoteWriter) -> list[Piece]:
        """Sentences put together by the author's habits, with now and then a slip of the finger."""
        end = (". ", ". ", "; ", ".\n", ". ")[writer.author % 5]
        pieces: list[Piece] = []
        seen = set()
        for sentence in sentences:
            key = sentence[0][0] if len(sentence) == 1 else ""
            if not sentence or key in seen:
                continue
            seen.add(key or None)
            if pieces:
                pieces.append((end, NONE))
            pieces += sentence
        pieces = [(self._timed(text, writer.case.hour), tag) for text, tag in pieces]
        if writer.author % 4 == 1 and writer.u() < 0.5:
            pieces = [(self.misspelled.sub(lambda m: self.misspellings[m[0]], text), tag) for text, tag in pieces]
        if pieces and writer.u() < 0.15:
            k = int(writer.u() * len(pieces))
            pieces[k] = (slip(pieces[k][0], writer.u()), pieces[k][1])
        return [(text.upper(), tag) for text, tag in pieces] if writer.author % 11 == 7 else pieces


def _told(text: str, sentence: list[Piece]) -> bool:
    """Whether a sentence already holds a text ("c/o back pain" after "back pain since Monday")."""
    return _OPENING.sub("", text) in "".join([piece for piece, _ in sentence])


def words(department: Department, case: Case) -> Written:
    """The visit as a list: one word for each finding and each anchor, a line each so that no two are neighbours."""
    texts = [[(department.keys[j], j) for j in case.on[k]] for k in range(6)]
    negatives = [("-" + key, j) for key, j in texts[SECTIONS.index("negative")]]
    plain = [(department.profiles[department.conditions[i]]["anchor"]["plain"], NAMED + i) for i in case.named]
    symptom, _, story, history, exam, course = texts
    triage, md = _list([*plain, *symptom, *negatives, *story, *history], "\n"), _list([*exam, *course], "\n")
    pieces: dict[str, list[Piece]] = {"chief_complaint": [], "triage_note": triage, "md_comments": md}
    return Written("", "".join([t for t, _ in triage]), "".join([t for t, _ in md]), pieces)


def _list(pieces: Sequence[Piece], comma: str = ", ") -> list[Piece]:
    """Pieces with commas between them, none twice."""
    result: list[Piece] = []
    seen = set()
    for text, tag in pieces:
        if text in seen or not text:
            continue
        seen.add(text)
        if result and not text.startswith(","):
            result.append((comma, NONE))
        result.append((text, tag))
    return result
