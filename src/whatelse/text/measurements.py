"""Measurements: vital signs, laboratory values, scores, ages and durations written in notes or given in columns.

`measures.yaml` has a table of measures: names, units, possible values, limits by age. A number of a note counts where
one of the names stands before it ("bp 85/50", "temp of 39", "t102.3"), or where its form says what it is ("92% on RA",
"101.5 F", "8/10 pain"). Doses, dates, times and phone numbers have no such name and are no measurements.

    read(text)  ->  Numbers: measurements, ages, durations, each with its place, and how many values were impossible
    findings(measurements, age)  ->  concepts: fever, hypotension, ...; `neg:` before those that a normal value denies
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from operator import attrgetter
from typing import Any

import yaml

from whatelse.errors import InputError
from whatelse.text import number_forms as forms
from whatelse.text.measure import Measure, Measurement, read_measure
from whatelse.text.pieces import lower
from whatelse.text.time_phrases import Age, Duration, read_times


@dataclass(frozen=True)
class Numbers:
    """What the numbers of a note say.

    measurements, ages, durations   in reading order
    impossible                      values with a name that no patient can have ("temp 3"): ignored
    """

    measurements: tuple[Measurement, ...] = ()
    ages: tuple[Age, ...] = ()
    durations: tuple[Duration, ...] = ()
    impossible: int = 0

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The places of the note that are read, sorted, without repetition."""
        found = {(item.start, item.end) for item in self.measurements}
        found |= {(item.start, item.end) for item in self.ages} | {(item.start, item.end) for item in self.durations}
        return sorted(found)


NOTHING = Numbers()


ARROWS = ("->", "-->", "→", "=>")  # between a value and a later one
COLDEST = 92  # degrees Fahrenheit of a temperature without a name before it
PLACE = attrgetter("start")
REMEMBERED = 1 << 16  # values as written that are kept
_DIGIT = re.compile(r"\d")

# What stands behind a name: values by measure, and whether the name is short
Parsed = tuple[tuple[tuple[Measure, float], ...], bool]


class Measures:
    """The table of measures made ready for use. `content` is the table itself, as JSON values."""

    def __init__(self, content: Mapping[str, Any], source: str = "measures") -> None:
        self.content = dict(content)
        self.measures: dict[str, Measure] = {}
        self.columns: dict[str, Measure] = {}
        self.names: dict[str, tuple[Measure, bool]] = {}  # name without blanks -> measure, short or not
        self.further: dict[str, re.Pattern[str]] = {}
        self.near: dict[float, tuple[Measure, re.Pattern[str]]] = {}
        written: list[str] = []
        for name, row in self.content.items():
            try:
                written += self._add(name, row)
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                raise InputError(f"measure '{name}' is not as measures.yaml says: {problem!r}", file=source) from None
        unknown = {part for measure in self.measures.values() for part in measure.pair} - set(self.measures)
        if unknown:
            raise InputError(f"a pair names a measure that there is not: {min(unknown)}", file=source)
        self._named = re.compile(
            rf"(?<![a-z0-9])(?P<name>{forms.any_of(written)})(?![a-z]){forms.LINK}{forms.NUMBER}{forms.SECOND}{forms.ROUTE}(?:\s?(?P<unit>{forms.UNITS}))?"
            rf"(?=(?P<no>{forms.NO_VALUE}|(?!x\s?\d)[a-z])?)"
        )
        self._parsed = lru_cache(REMEMBERED)(self._parse)

    def _add(self, name: str, row: Mapping[str, Any]) -> list[str]:
        measure = read_measure(name, row)
        self.measures[name] = measure
        short = list(row.get("short", ()))
        names = [*row["names"], *short]
        for phrase in names:
            self.names[re.sub(r"\s", "", phrase)] = (measure, phrase in short)
        for phrase in (name, *row["names"], *row.get("columns", ())):
            self.columns.setdefault(_plain(phrase), measure)
        if "near" in row:
            words = re.compile(rf"\b(?:{'|'.join(map(re.escape, row['near']))})\b")
            self.near.update(dict.fromkeys(measure.of, (measure, words)))
        between, percent = "|".join(map(re.escape, row.get("further", ARROWS))), "" if measure.unit == "%" else "|\\s?%"
        second = forms.SECOND if measure.pair else "(?P<sep>)(?P<b>)"
        self.further[name] = re.compile(
            rf"\s*(?:{between})\s*{forms.NUMBER}{second}(?![a-z/:]{percent})(?=(?P<no>{forms.NO_VALUE})?)"
        )
        return names

    # ---- notes

    def read(self, text: str) -> Numbers:
        """The measurements, ages and durations of a note. O(len(text)), less where the note has no digit."""
        low = lower(text)
        if not _DIGIT.search(low):
            ages, durations = read_times(low, set())
            return Numbers((), tuple(ages), tuple(durations)) if ages or durations else NOTHING
        sure: list[Measurement] = []
        weak: list[Measurement] = []  # by a name of one letter
        taken: set[int] = set()  # where numbers begin that are read
        impossible = 0
        for match in self._named.finditer(low):
            parsed = self._parsed(*match.group("name", "a", "sep", "b", "route", "unit", "no"))
            if parsed is None:
                continue
            values, short = parsed
            start = match.start()
            taken.update((match.start("a"), match.start("b")))
            if values:
                kind = weak if short else sure
                kind += [Measurement(m.name, v, m.unit, start, match.end()) for m, v in values]
                kind += self._further(low, match["name"], match.end(), taken)
            elif short:
                taken.discard(match.start("a"))
            else:
                impossible += 1
        sure += self._by_form(low, taken, any(m.name == "systolic_bp" for m in sure))
        if weak:
            sure += _believed(weak, sure)
        ages, durations = read_times(low, taken)
        sure.sort(key=PLACE)
        return Numbers(tuple(sure), tuple(sorted(ages, key=PLACE)), tuple(sorted(durations, key=PLACE)), impossible)

    def _parse(
        self, name: str, a: str, sep: str | None, b: str | None, route: str | None, unit: str | None, no: str | None
    ) -> Parsed | None:
        """The values behind a name; without values: impossible ones. None: the number is no value."""
        measure, short = self.names[re.sub(r"\s", "", name)]
        if no is not None or (route and measure.name != "temperature"):
            return None
        first, second = forms.as_number(a), forms.as_second(b)
        unit = re.sub(r"\s|°|deg(?:rees?)?\.?", "", unit or "")
        unit = forms.PLAIN_UNIT.get(unit, unit)
        if measure.pair:
            parts = [self.measures[name] for name in measure.pair]
            wanted = [(parts[0], first, "")]
            if second is not None and sep in ("/", "over"):
                wanted.append((parts[1], second, ""))
                if measure.name == "blood_pressure" and second >= first:
                    return (), short
        else:
            if unit.startswith("outof"):
                sep, second, unit = "/", 10.0, ""
            if sep in ("/", "over") and second not in measure.of:
                return None
            if sep is not None and sep not in ("/", "over") and second is not None:
                first = (first + second) / 2
            if unit not in measure.units and unit not in forms.SAME_UNIT:
                return None
            wanted = [(measure, first, unit)]
        values = [(m, m.convert(value, u)) for m, value, u in wanted]
        possible = tuple((m, v) for m, v in values if v is not None)
        return (possible if len(possible) == len(values) else ()), short

    def _further(self, low: str, name: str, end: int, taken: set[int]) -> list[Measurement]:
        """Values of the same measure that follow a value: "sat 88 -> 95", "bp 85/50 -> 110/70", "t102 & 104"."""
        found: list[Measurement] = []
        form = self.further[self.names[re.sub(r"\s", "", name)][0].name]
        while match := form.match(low, end):
            parsed = self._parsed(name, match["a"], match["sep"] or None, match["b"] or None, None, None, match["no"])
            if not parsed or not parsed[0]:
                break
            found += [Measurement(m.name, v, m.unit, match.start("a"), match.end()) for m, v in parsed[0]]
            taken.update((match.start("a"), match.start("b")))
            end = match.end()
        return found

    def _by_form(self, low: str, taken: set[int], pressures: bool) -> list[Measurement]:
        """Numbers that are measurements by their form: "92% on RA", "101.5 F", "102 fever", "8/10" beside "pain".

        pressures: whether the note has a blood pressure with its name
        """
        found: list[Measurement] = []
        if not taken and "%" in low and (row := forms.ROW.search(low)):
            found += self._row(row, taken)
        for match in forms.BY_FORM.finditer(low):
            start = match.start()
            if start in taken:
                continue
            if match.lastgroup == "a":
                if forms.DEGREES.fullmatch(match["a"]) and self._degrees(low, match):
                    found += self._plainly("temperature", forms.as_number(match["a"]), "f", match)
                continue
            value = forms.as_number(match["a"])
            if match["of"]:
                low_end = float(match["of"])
                if 70 <= value <= 260 and 35 <= low_end <= min(150, value - 10):
                    if pressures or forms.PRESSURE.match(low, match.end()):
                        found += self._plainly("systolic_bp", value, "", match)
                        found += self._plainly("diastolic_bp", low_end, "", match)
                    continue
                measure, words = self.near.get(float(match["of"]), (None, None))
                if measure is None or words is None or not measure.possible[0] <= value <= measure.possible[1]:
                    continue
                if forms.ON_DATE.search(low, max(0, start - 8), start):
                    continue
                before = forms.SENTENCE.split(low[max(0, start - 60) : start])[-1]
                after = forms.SENTENCE.split(low[match.end() : match.end() + 25])[0]
                if words.search(before) or words.search(after):
                    found.append(Measurement(measure.name, value, measure.unit, *match.span()))
            elif match["air"]:
                found += self._plainly("oxygen_saturation", value, "", match)
            elif match["bpm"]:
                found += self._plainly("heart_rate", value, "", match)
            elif match["scale"] == "f" and value < COLDEST and not match["degree"]:
                continue  # "81F fever" is the age of a woman
            elif match["temp"] or match["degree"] or (match["scale"] and "." in match["a"]):
                found += self._plainly("temperature", value, (match["scale"] or "")[:1], match)
        taken.update(item.start for item in found)
        return found

    def _degrees(self, low: str, match: re.Match[str]) -> bool:
        """Whether a number that can be a temperature stands in a sentence about temperature."""
        start, end = match.span("a")
        if not forms.END_OF_DEGREES.match(low, end):
            return False
        introduced = "." in match["a"] or forms.TAKEN.match(low, end) or forms.TO.search(low, max(0, start - 10), start)
        introduced = introduced or forms.DATED.match(low, end)
        if not introduced:
            return False
        return forms.TEMPERATURE_WORD.search(forms.SENTENCE.split(low[max(0, start - 60) : start])[-1]) is not None

    def _plainly(self, name: str, value: float, unit: str, match: re.Match[str]) -> list[Measurement]:
        measure = self.measures.get(name)
        read = measure.convert(value, unit) if measure else None
        return (
            [Measurement(name, read, measure.unit, match.start(), match.end(match.lastgroup or 0))]
            if measure and read is not None
            else []
        )

    def _row(self, row: re.Match[str], taken: set[int]) -> list[Measurement]:
        """The values of a row of vital signs; none if one of them is impossible or read already."""
        found = []
        for name, text in row.groupdict().items():
            measure = self.measures.get(name)
            value = measure.convert(float(text), "") if measure else None
            if measure is None or value is None or row.start(name) in taken:
                return []
            found.append(Measurement(name, value, measure.unit, *row.span(name)))
        taken.update(item.start for item in found)
        return found

    # ---- columns

    def is_column(self, name: str) -> bool:
        """Whether a column of this name holds a measure."""
        measure = self.columns.get(_plain(name))
        return measure is not None and not measure.pair

    def of_columns(self, numbers: Iterable[tuple[str, float]]) -> list[Measurement]:
        """Measurements of `Visit.numbers`: names are those of notes, in any spelling ("O2 Sat", "heartrate").

        Impossible values and columns that are no measure are left out.
        """
        found = []
        for column, value in numbers:
            measure = self.columns.get(_plain(column))
            if measure is None or measure.pair:
                continue
            if measure.name == "temperature" and value > 200:  # tenths of a degree
                value /= 10
            read = measure.convert(float(value), "")
            if read is not None:
                found.append(Measurement(measure.name, read, measure.unit))
        return found

    # ---- meaning

    def findings(self, measurements: Iterable[Measurement], age: float | None) -> dict[str, Measurement]:
        """Findings and the measurement that each comes from: `fever`, `neg:hypotension`.

        age   years; None is read as an adult
        A concept is present if any value of the note says so, and negated if values were measured and none does.
        """
        present: dict[str, Measurement] = {}
        absent: dict[str, Measurement] = {}
        for item in measurements:
            measure = self.measures.get(item.name)
            if measure is not None:
                for concept, holds in measure.concepts(item.value, age):
                    (present if holds else absent).setdefault(concept, item)
        return present | {f"neg:{concept}": item for concept, item in absent.items() if concept not in present}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9%+]", "", name.lower())


def _believed(weak: list[Measurement], sure: list[Measurement]) -> list[Measurement]:
    """Measurements by a name of one letter that stand beside another measurement, or can hardly be anything else."""
    kept = []
    for k, item in enumerate(weak):
        neighbours = [*sure, *weak[:k], *weak[k + 1 :]]
        beside = any(abs(item.start - other.end) <= 6 or abs(other.start - item.end) <= 6 for other in neighbours)
        if beside or item.name in ("temperature", "potassium", "calcium"):
            kept.append(item)
    return kept


@lru_cache(maxsize=1)
def load_measures() -> Measures:
    """The shipped table."""
    text = (files("whatelse.text") / "measures.yaml").read_text("utf-8")
    return Measures(yaml.safe_load(text), "measures.yaml")


def read_numbers(text: str) -> Numbers:
    """Measurements, ages and durations of a note by the shipped table."""
    return load_measures().read(text)
