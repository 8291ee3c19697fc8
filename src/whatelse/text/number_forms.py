"""Number forms: what stands around a number of a note, as regular expressions.

They are for text in lower case. `measurements.py` puts the names of measures before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# words between a name and its number
LINKS = """
of is was at to reading about approx approximately around in the initially initial now up reached level currently
range ranged ranging running oral po rectal axillary ax tympanic on arrival today here triage repeat elevated elev
high low increased decreased down dropped peaked spiked spike a as found measured noted home from into per ems
field recorded max maximum est estimated inc incr dec decr rose rising raised went hit peak registered varied
varying late early mid upper over under above below which that than greater less still then only just cont
continued counted reg regular upt between elevation elevations came count usually
"""
LINK = rf"(?:\s*(?:[:=~()<>@°-]|at\s+\d{{1,2}}(?::?\d\d)?\s?[ap]m|(?:{'|'.join(LINKS.split())})(?![a-z]))){{0,6}}+\s*"
UNITS = (
    r"%|percent|°\s?[fc]?(?![a-z/])|deg(?:rees?)?\.?\s?(?:fahrenheit|celsius|[fc](?![a-z/]))?|[fc](?![a-z/])|fahrenheit|celsius"
    r"|kgs?(?![a-z])|kilos?|lbs?(?![a-z])|pounds?|k(?![a-z])|mg/dl|mmol/l|mmol|meq/l|g/dl|g/l|ng/ml|ng/l|pg/ml|ug/ml|mcg/ml"
    r"|mg/l|umol/l|µmol/l|iu/l|u/l|miu/ml|/ul|bpm|mm\s?hg|/min|(?<=\d)t(?![a-z\d])|out of (?:10|ten)"
)
# a dose, a length of time or a count: the number before it is no measurement
NO_VALUE = (
    r"\s?(?:mg|mcg|g|gm|gms|grams?|ml|cc|ccs|units?|u|iu|tabs?|tablets?|caps?|pills?|puffs?|meq|gtts?|drops?|l|lpm|liters?|litres?"
    r"|cm|mm|ft|feet|foot|in(?=\s*(?:[.;,)x]|$|diam|long|wide|by))|inch|inches|yards?|yds?|mph|miles?|blocks?|doses?|times?|st|nd|rd|th|am|pm|ppd|packs?|beers?|drinks?"
    r"|secs?|seconds?|mins?|minutes?|hrs?(?!\s?[:=]?\s?\d)|hours?|d|days?|w|wks?|weeks?|mos?|months?|mons?|y|yrs?|years?|yo)(?![a-z/])"
    r"|[/:]\s?\d|-\s?\d(?!\d*\s?(?:hrs?|days?|mins?|[a-z]{3}))|\.\d|,\d|(?<!\d\d)\+(?!\s*\d)|1/2|[\"”]"
)
ROUTE = r"(?P<route>\s?(?:ax|(?<=\d)a|axillary|po|orally|oral|rectally|rectal|r|tympanic|tm)(?![a-z]|\s?\d))?"
NUMBER = r"(?P<a>\d{1,3}(?:,\d{3})++(?!\d)|\d++(?:[.,]\d++)?+|\.\d++)(?:'?s(?![a-z]))?+"
SECOND = (
    r"(?:\s?(?P<sep>/|-|–|to(?=\s)|over(?=\s))\s?"
    r"(?P<b>\d++(?:\.\d++)?+(?:'?s(?![a-z]))?+(?!\s?(?:hrs?(?!\s?[:=]?\s?\d)|days?|mins?)(?![a-z])|[a-z]{3})|palp|p(?![a-z])))?"
)
BY_FORM = re.compile(
    r"(?P<a>\d(?<![\w.,/:]\d)\d*+(?:\.\d++)?+)(?:/(?P<of>\d+)(?![\d/.])"
    r"|\s?(?:%|percent)(?=\s*(?P<air>(?:on\s+)?"
    r"(?:ra(?![a-z])|r/a|room\s?air|\d{1,2}\s?l|nrb|nc(?![a-z])|nasal|o2|sats?|oxygen|bipap|cpap)))"
    r"|(?P<degree>\s?(?:°|deg(?:rees?)?\.?))?\s?(?P<scale>fahrenheit|celsius|[fc](?![a-z/]))?"
    r"(?P<temp>\s*(?:fever|temp|temperature)(?![a-z]))?(?P<bpm>\s?(?:bpm|beats)(?![a-z]))?)"
)
# degrees Fahrenheit somewhere behind a word for temperature: "fever all day, up to 103.7", "inc to 105 R"
DEGREES = re.compile(r"(?:9[5-9]|10[0-8])\.\d|(?:99|10[0-7])")
TEMPERATURE_WORD = re.compile(r"\b(?:fevers?|temps?|temperature|febrile|tmax|t\s?\d)")
TO = re.compile(r"(?:\b(?:to|was|of|reached|hit|over|as|ranged|ranging|between|later)|>)\s*$")
TAKEN = re.compile(r"\s?(?:r|po|ax|(?<=\d)a|rectal|rectally|orally|axillary)(?![a-z])")  # how a temperature was taken
END_OF_DEGREES = re.compile(
    r"(?:\s*(?:$|[;,.)&\n-](?!\d)|-(?:9[5-9]|10\d)|\d{1,2}(?:[a-z]{3}|/\d)|w/|(?:r|po|ax?|f|for|x|on|by|with|and|until|last|this|at|today|yesterday|orally|rectal)(?![a-z])))"
)
DATED = re.compile(r"\s\d{1,2}[a-z]{3}(?![a-z])")
# a blood pressure without a name, where the note has others or the pulse follows: "sitting 150/90, P 88"
PRESSURE = re.compile(r"(?:\s?mm\s?hg|[\s,;&]*(?:p|hr|pulse)[\s:=]?\d)")
ON_DATE = re.compile(r"\b(?:on|since|from|until|dated)\s*$")
SENTENCE = re.compile(r"[;\n]|\.(?!\d)")
# a row of vital signs without names
ROW = re.compile(
    r"(?<![\d.])(?P<temperature>\d{2,3}\.\d)[\s,/-]+(?P<heart_rate>\d{2,3})[\s,-]+(?P<systolic_bp>\d{2,3})/"
    r"(?P<diastolic_bp>\d{2,3})[\s,-]+(?P<respiratory_rate>\d{1,2})[\s,-]+(?P<oxygen_saturation>\d{2,3})\s?%"
)
PLAIN_UNIT = {"percent": "%", "fahrenheit": "f", "celsius": "c", "µmol/l": "umol/l", "mcg/ml": "ug/ml"}
SAME_UNIT = frozenset(
    ["", "%", "bpm", "/min", "mmhg", "meq/l", "iu/l", "u/l", "miu/ml", "mg/dl", "ng/ml", "pg/ml", "mmol/l"]
)


def as_number(number: str) -> float:
    """A number as written: 18,200 has thousands, 38,5 a decimal comma."""
    whole, comma, rest = number.partition(",")
    if comma and (len(rest) != 3 and "," not in rest):
        return float(f"{whole}.{rest}")
    return float(number.replace(",", ""))


def as_second(number: str | None) -> float | None:
    """The number after "/" or "-"; None if there is none ("90/palp")."""
    return float(number.rstrip("'s")) if number and number[0].isdigit() else None


def any_of(phrases: Iterable[str]) -> str:
    """A regular expression for any of the phrases, the longest first: a tree of letters, so that phrases share their
    beginnings."""
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
