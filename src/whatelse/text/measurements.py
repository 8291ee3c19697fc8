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
from typing import Any

import yaml

from whatelse.errors import InputError
from whatelse.text.measure import Measure, Measurement, read_measure
from whatelse.text.pieces import lower
from whatelse.text.time_phrases import Age, Duration, read_times
from whatelse.visits import Code

# Codes that sources make of vital signs out of range (`sources/vitals.py`) -> concept
CODES = {
    ("vital", "temperature-high"): "fever",
    ("vital", "pulse-high"): "tachycardia",
    ("vital", "pulse-low"): "bradycardia",
    ("vital", "respirations-high"): "tachypnea",
    ("vital", "systolic-low"): "hypotension",
    ("vital", "systolic-high"): "severe_hypertension",
    ("vital", "saturation-low"): "hypoxia",
    ("pain", "high"): "severe_pain",
}


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


# ---- what stands around a number

# words between a name and its number
_LINKS = """
of is was at to reading about approx approximately around in the initially initial now up reached level currently
range ranged ranging running oral po rectal axillary ax tympanic on arrival today here triage repeat elevated elev
high low increased decreased down dropped peaked spiked spike a as found measured noted home from into per ems
field recorded max maximum est estimated inc incr dec decr rose rising raised went hit peak registered varied
varying late early mid upper over under above below which that than greater less still then only just cont
continued counted reg regular upt between elevation elevations came count usually
"""
_LINK = rf"(?:\s*(?:[:=~()<>@°-]|at\s+\d{{1,2}}(?::?\d\d)?\s?[ap]m|(?:{'|'.join(_LINKS.split())})(?![a-z]))){{0,6}}+\s*"
_UNITS = (
    r"%|percent|°\s?[fc]?(?![a-z/])|deg(?:rees?)?\.?\s?(?:fahrenheit|celsius|[fc](?![a-z/]))?|[fc](?![a-z/])|fahrenheit|celsius"
    r"|kgs?(?![a-z])|kilos?|lbs?(?![a-z])|pounds?|k(?![a-z])|mg/dl|mmol/l|mmol|meq/l|g/dl|g/l|ng/ml|ng/l|pg/ml|ug/ml|mcg/ml"
    r"|mg/l|umol/l|µmol/l|iu/l|u/l|miu/ml|/ul|bpm|mm\s?hg|/min|(?<=\d)t(?![a-z\d])|out of (?:10|ten)"
)
# a dose, a length of time or a count: the number before it is no measurement
_NO_VALUE = (
    r"\s?(?:mg|mcg|g|gm|gms|grams?|ml|cc|ccs|units?|u|iu|tabs?|tablets?|caps?|pills?|puffs?|meq|gtts?|drops?|l|lpm|liters?|litres?"
    r"|cm|mm|ft|feet|foot|in(?=\s*(?:[.;,)x]|$|diam|long|wide|by))|inch|inches|yards?|yds?|mph|miles?|blocks?|doses?|times?|st|nd|rd|th|am|pm|ppd|packs?|beers?|drinks?"
    r"|secs?|seconds?|mins?|minutes?|hrs?(?!\s?[:=]?\s?\d)|hours?|d|days?|w|wks?|weeks?|mos?|months?|mons?|y|yrs?|years?|yo)(?![a-z/])"
    r"|[/:]\s?\d|-\s?\d(?!\d*\s?(?:hrs?|days?|mins?|[a-z]{3}))|\.\d|,\d|(?<!\d\d)\+(?!\s*\d)|1/2|[\"”]"
)
_ROUTE = r"(?P<route>\s?(?:ax|(?<=\d)a|axillary|po|orally|oral|rectally|rectal|r|tympanic|tm)(?![a-z]|\s?\d))?"
_NUMBER = r"(?P<a>\d{1,3}(?:,\d{3})++(?!\d)|\d++(?:[.,]\d++)?+|\.\d++)(?:'?s(?![a-z]))?+"
_SECOND = (
    r"(?:\s?(?P<sep>/|-|–|to(?=\s)|over(?=\s))\s?"
    r"(?P<b>\d++(?:\.\d++)?+(?:'?s(?![a-z]))?+(?!\s?(?:hrs?(?!\s?[:=]?\s?\d)|days?|mins?)(?![a-z])|[a-z]{3})|palp|p(?![a-z])))?"
)
_BY_FORM = re.compile(
    r"(?P<a>\d(?<![\w.,/:]\d)\d*+(?:\.\d++)?+)(?:/(?P<of>\d+)(?![\d/.])"
    r"|\s?(?:%|percent)(?=\s*(?P<air>(?:on\s+)?"
    r"(?:ra(?![a-z])|r/a|room\s?air|\d{1,2}\s?l|nrb|nc(?![a-z])|nasal|o2|sats?|oxygen|bipap|cpap)))"
    r"|(?P<degree>\s?(?:°|deg(?:rees?)?\.?))?\s?(?P<scale>fahrenheit|celsius|[fc](?![a-z/]))?"
    r"(?P<temp>\s*(?:fever|temp|temperature)(?![a-z]))?(?P<bpm>\s?(?:bpm|beats)(?![a-z]))?)"
)
# degrees Fahrenheit somewhere behind a word for temperature: "fever all day, up to 103.7", "inc to 105 R"
_DEGREES = re.compile(r"(?:9[5-9]|10[0-8])\.\d|(?:99|10[0-7])")
_TEMPERATURE_WORD = re.compile(r"\b(?:fevers?|temps?|temperature|febrile|tmax|t\s?\d)")
_TO = re.compile(r"(?:\b(?:to|was|of|reached|hit|over|as|ranged|ranging|between|later)|>)\s*$")
_TAKEN = re.compile(r"\s?(?:r|po|ax|(?<=\d)a|rectal|rectally|orally|axillary)(?![a-z])")  # how a temperature was taken
_END_OF_DEGREES = re.compile(
    r"(?:\s*(?:$|[;,.)&\n-](?!\d)|-(?:9[5-9]|10\d)|\d{1,2}(?:[a-z]{3}|/\d)|w/|(?:r|po|ax?|f|for|x|on|by|with|and|until|last|this|at|today|yesterday|orally|rectal)(?![a-z])))"
)
_DATED = re.compile(r"\s\d{1,2}[a-z]{3}(?![a-z])")
# a blood pressure without a name, where the note has others or the pulse follows: "sitting 150/90, P 88"
_PRESSURE = re.compile(r"(?:\s?mm\s?hg|[\s,;&]*(?:p|hr|pulse)[\s:=]?\d)")
_ON_DATE = re.compile(r"\b(?:on|since|from|until|dated)\s*$")
_SENTENCE = re.compile(r"[;\n]|\.(?!\d)")
# a row of vital signs without names
_ROW = re.compile(
    r"(?<![\d.])(?P<temperature>\d{2,3}\.\d)[\s,/-]+(?P<heart_rate>\d{2,3})[\s,-]+(?P<systolic_bp>\d{2,3})/"
    r"(?P<diastolic_bp>\d{2,3})[\s,-]+(?P<respiratory_rate>\d{1,2})[\s,-]+(?P<oxygen_saturation>\d{2,3})\s?%"
)
_PLAIN_UNIT = {"percent": "%", "fahrenheit": "f", "celsius": "c", "µmol/l": "umol/l", "mcg/ml": "ug/ml"}
_SAME_UNIT = frozenset(
    ["", "%", "bpm", "/min", "mmhg", "meq/l", "iu/l", "u/l", "miu/ml", "mg/dl", "ng/ml", "pg/ml", "mmol/l"]
)
ARROWS = ("->", "-->", "→", "=>")  # between a value and a later one
COLDEST = 92  # degrees Fahrenheit of a temperature without a name before it
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
            rf"(?<![a-z0-9])(?P<name>{_any_of(written)})(?![a-z]){_LINK}{_NUMBER}{_SECOND}{_ROUTE}(?:\s?(?P<unit>{_UNITS}))?"
            rf"(?=(?P<no>{_NO_VALUE}|(?!x\s?\d)[a-z])?)"
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
        second = _SECOND if measure.pair else "(?P<sep>)(?P<b>)"
        self.further[name] = re.compile(
            rf"\s*(?:{between})\s*{_NUMBER}{second}(?![a-z/:]{percent})(?=(?P<no>{_NO_VALUE})?)"
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
        sure.sort(key=_place)
        return Numbers(tuple(sure), tuple(sorted(ages, key=_place)), tuple(sorted(durations, key=_place)), impossible)

    def _parse(
        self, name: str, a: str, sep: str | None, b: str | None, route: str | None, unit: str | None, no: str | None
    ) -> Parsed | None:
        """The values behind a name; without values: impossible ones. None: the number is no value."""
        measure, short = self.names[re.sub(r"\s", "", name)]
        if no is not None or (route and measure.name != "temperature"):
            return None
        first, second = _float(a), _second(b)
        unit = re.sub(r"\s|°|deg(?:rees?)?\.?", "", unit or "")
        unit = _PLAIN_UNIT.get(unit, unit)
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
            if unit not in measure.units and unit not in _SAME_UNIT:
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
        if not taken and "%" in low and (row := _ROW.search(low)):
            found += self._row(row, taken)
        for match in _BY_FORM.finditer(low):
            start = match.start()
            if start in taken:
                continue
            if match.lastgroup == "a":
                if _DEGREES.fullmatch(match["a"]) and self._degrees(low, match):
                    found += self._plainly("temperature", _float(match["a"]), "f", match)
                continue
            value = _float(match["a"])
            if match["of"]:
                low_end = float(match["of"])
                if 70 <= value <= 260 and 35 <= low_end <= min(150, value - 10):
                    if pressures or _PRESSURE.match(low, match.end()):
                        found += self._plainly("systolic_bp", value, "", match)
                        found += self._plainly("diastolic_bp", low_end, "", match)
                    continue
                measure, words = self.near.get(float(match["of"]), (None, None))
                if measure is None or words is None or not measure.possible[0] <= value <= measure.possible[1]:
                    continue
                if _ON_DATE.search(low, max(0, start - 8), start):
                    continue
                before = _SENTENCE.split(low[max(0, start - 60) : start])[-1]
                after = _SENTENCE.split(low[match.end() : match.end() + 25])[0]
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
        if not _END_OF_DEGREES.match(low, end):
            return False
        introduced = "." in match["a"] or _TAKEN.match(low, end) or _TO.search(low, max(0, start - 10), start)
        introduced = introduced or _DATED.match(low, end)
        if not introduced:
            return False
        return _TEMPERATURE_WORD.search(_SENTENCE.split(low[max(0, start - 60) : start])[-1]) is not None

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


def _float(number: str) -> float:
    """A number as written: 18,200 has thousands, 38,5 a decimal comma."""
    whole, comma, rest = number.partition(",")
    if comma and (len(rest) != 3 and "," not in rest):
        return float(f"{whole}.{rest}")
    return float(number.replace(",", ""))


def _second(number: str | None) -> float | None:
    """The number after "/" or "-"; None if there is none ("90/palp")."""
    return float(number.rstrip("'s")) if number and number[0].isdigit() else None


def _any_of(phrases: Iterable[str]) -> str:
    """A regular expression for any of the phrases, the longest first, as a tree: one look for each first letter."""
    tree: dict[str, Any] = {}
    for phrase in phrases:
        node = tree
        for letter in phrase:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _branches(tree)


def _branches(node: dict[str, Any]) -> str:
    options = [
        (r"\s+" if letter == " " else re.escape(letter)) + _branches(below) for letter, below in node.items() if letter
    ]
    if not options:
        return ""
    inner = options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"
    return f"(?:{inner})?" if "" in node else inner


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9%+]", "", name.lower())


def _place(item: Measurement | Age | Duration) -> int:
    return item.start


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


def concept_of_code(code: Code) -> str | None:
    """The concept of a coded vital sign, None for any other code."""
    return CODES.get((code.system, code.code))
