"""ReadNote: a note as it was understood, for people: mentions, values, words that were not read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from whatelse.io.text_table import TextTable
from whatelse.text.function_words import says_nothing
from whatelse.text.measure import Measurement
from whatelse.text.measurements import Numbers

LABELS = {"present": "", "negated": "NO", "possible": "possible", "historical": "history", "hypothetical": "if"}
COLOURS = {"present": "#2e7d3233", "negated": "#b71c1c2b", "possible": "#f9a82540", "historical": "#1565c033"}
OTHER_COLOUR = "#7b7b7b33"


class Mention(NamedTuple):
    """A concept found in a note, `text[start:end]` of a field.

    assertion  one of ASSERTIONS; cue: where the phrase stands that set it, or None
    finding    the finding that the mention is: `neg:fever`, `hx:stroke`; "" if it is none (hypothetical, an allergy)
    """

    concept: str
    field: str
    start: int
    end: int
    assertion: str
    cue: tuple[int, int] | None = None
    value: Measurement | None = None
    finding: str = ""


class Unread(NamedTuple):
    """A word that belongs to no concept, value, age or duration."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class ReadNote:
    """A note and what was understood of it.

    mentions  in reading order
    unread    words without a concept, grammar and form words included (`ignored` leaves those out)
    words     how many words the note has; numbers: measurements, ages and durations
    """

    text: str
    field: str
    mentions: tuple[Mention, ...]
    unread: tuple[Unread, ...]
    words: int
    numbers: Numbers

    @property
    def ignored(self) -> tuple[Unread, ...]:
        """Words that say something and were not understood."""
        return tuple(word for word in self.unread if not says_nothing(word.text))

    def quote(self, start: int, end: int) -> str:
        """A place of the note on one line."""
        return " ".join(self.text[start:end].split())

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "field": self.field,
            "mentions": [
                {
                    "text": self.text[m.start : m.end],
                    "start": m.start,
                    "end": m.end,
                    "concept": m.concept,
                    "assertion": m.assertion,
                    "finding": m.finding or None,
                    "cue": None if m.cue is None else self.text[slice(*m.cue)],
                    "value": None
                    if m.value is None
                    else {"name": m.value.name, "value": m.value.value, "unit": m.value.unit},
                }
                for m in self.mentions
            ],
            "values": [
                {"name": m.name, "value": m.value, "unit": m.unit, "start": m.start, "end": m.end}
                for m in self.numbers.measurements
            ],
            "ages": [age.years for age in self.numbers.ages],
            "ignored": [word.text for word in self.ignored],
            "impossible_values": self.numbers.impossible,
        }

    def table(self) -> TextTable:
        """A row for each mention, and what was ignored."""
        rows = [
            (
                self.quote(m.start, m.end),
                m.concept.replace("_", " "),
                m.assertion,
                self.quote(*m.cue) if m.cue else "",
                m.finding or "(no finding)",
            )
            for m in self.mentions
        ]
        below = list[str]()
        if values := [f"{m.name.replace('_', ' ')} {m.value:g} {m.unit}".strip() for m in self.numbers.measurements]:
            below.append("values: " + ", ".join(values))
        if self.numbers.ages:
            below.append("age: " + ", ".join(f"{age.years:g} years" for age in self.numbers.ages))
        if words := dict.fromkeys(word.text for word in self.ignored):
            below.append("not understood: " + ", ".join(words))
        if self.numbers.impossible:
            below.append(f"impossible values, ignored: {self.numbers.impossible}")
        header = ("in the note", "concept", "assertion", "because of", "finding")
        return (
            TextTable("", header, tuple(rows), tuple(below))
            if rows
            else TextTable("no concept found", ("",), (), tuple(below))
        )

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        """For a notebook: the note with its mentions marked, words that were not understood dotted."""
        return f'<div style="white-space: pre-wrap; line-height: 2">{"".join(self._marked())}</div>'

    def _marked(self) -> Iterator[str]:
        at = 0
        for start, end, here in self._places():
            yield escape(self.text[at:start])
            inside = escape(self.text[start:end])
            if not here:
                yield f'<span title="not understood" style="text-decoration: underline dotted #888">{inside}</span>'
            else:
                title = escape("; ".join(f"{m.concept.replace('_', ' ')} ({m.assertion})" for m in here), quote=True)
                colour = COLOURS.get(here[0].assertion, OTHER_COLOUR)
                label = LABELS.get(here[0].assertion, "other person")
                small = f"<sup> {label}</sup>" if label else ""
                style = f"background: {colour}; color: inherit; border-radius: 3px; padding: 1px 2px"
                yield f'<mark title="{title}" style="{style}">{inside}{small}</mark>'
            at = end
        yield escape(self.text[at:])

    def _places(self) -> Iterator[tuple[int, int, list[Mention]]]:
        """Places of mentions, those that overlap together, and of ignored words, in reading order."""
        marks = [(m.start, m.end, m) for m in self.mentions] + [(w.start, w.end, None) for w in self.ignored]
        marks.sort(key=lambda mark: mark[:2])
        start, end, here = 0, 0, list[Mention]()
        for a, b, mention in marks:
            if a >= end:
                if end:
                    yield start, end, here
                start, here = a, []
            end = max(end, b)
            here += [] if mention is None else [mention]
        if end:
            yield start, end, here
