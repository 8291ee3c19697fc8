"""Ages and durations in notes: "72M", "3 mo old", "x 3 days", "since yesterday", with their places."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

from whatelse.visits import Sex

OLDEST = 120  # years
DAYS = {"s": 1 / 86400, "min": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.44, "y": 365.25}
# Durations as concepts: the first whose limit (days) is not reached.
DURATIONS = (
    (1 / 1440, "brief_episodes"),
    (1 / 24, "lasting_minutes"),
    (1.0, "lasting_hours"),
    (7.0, "lasting_days"),
    (28.0, "lasting_weeks"),
    (365.0, "lasting_months"),
    (inf, "chronic_course"),
)


class Age(NamedTuple):
    """An age in a note: "72M" is Age(72, "M", 0, 3), "3 mo old" is Age(0.25, None, 0, 8)."""

    years: float
    sex: Sex | None
    start: int
    end: int


class Duration(NamedTuple):
    """A length of time in a note, in days.

    lasting   True: how long a complaint lasts ("x 3 days", "for 2 weeks", "2 days ago", "since yesterday").
              False: any other ("2 hrs after", "30 min")
    """

    days: float
    start: int
    end: int
    lasting: bool = True

    @property
    def concept(self) -> str:
        """The concept of how long a complaint lasts: `lasting_days`; "" if `lasting` is False."""
        return next(name for limit, name in DURATIONS if self.days < limit) if self.lasting else ""


_SEX = "male|female|boy|girl|man|woman|gentleman|lady|aaf|aam|wf|wm|bf|bm|hf|hm|m|f"
_RACE = "white|black|hispanic|hisp|asian|caucasian|aa|african american|latino|latina"
_OLD = r"olds?(?![a-z])|of age"
# Groups: number, half, second number, unit, old, pregnant, sex; or number and only a sex
_PHRASE = re.compile(
    r"(\d(?<![\d.a-wyz/:]\d)\d*+(?:\.\d++)?+)(\s1/2)?(?:\s?(?:-|–|to)\s?(\d+(?:\.\d+)?))?(?:"
    r"[\s-]{0,2}(y\.?\s?[/ -]?\s?o\.?(?![a-eg-ln-z]|[fm][a-z])|mo(?=[mf](?![a-z]))|y(?=[mf](?![a-z]))"
    r"|(?:secs?|seconds?|s|mins?|minutes?|mts?|h|hrs?(?!\s?[:=]?\s?\d)|hours?|days?|dys?|d|nights?|nocs?|weeks?|wks?|w|years?|yrs?|y)(?![a-z]|/[a-z]{0,2}(?![a-z]))"
    r"|(?:months?|mths?|mons?|mos?|m(?=[\s-]*o(?:lds?)?(?![a-z])))(?![a-np-z]))"
    rf"([\s./-]*(?:{_OLD})|[./-]?o(?=[mf](?![a-z])|[/\s.]|$))?"
    r"([\s-]*(?:pregnant|preg|gestation|gest|gestational|iup|ega|ga|along)(?![a-z]))?"
    rf"([\s./,-]{{0,2}}(?:(?:{_RACE})\s)?(?:{_SEX})(?![a-z0-9'/]))?"
    rf"|(\s?/?\s?(?:{_SEX})(?![a-z0-9'/])))"
)
_UNIT = {
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], "s"),
    **dict.fromkeys(["min", "mins", "minute", "minutes", "mt", "mts"], "min"),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], "h"),
    **dict.fromkeys(["d", "dy", "dys", "day", "days", "night", "nights", "noc", "nocs"], "d"),
    **dict.fromkeys(["w", "wk", "wks", "week", "weeks"], "w"),
    **dict.fromkeys(["m", "mo", "mos", "mon", "mons", "mth", "mths", "month", "months"], "mo"),
    **dict.fromkeys(["y", "yr", "yrs", "year", "years"], "y"),
}
_GRAVIDA = re.compile(r"g\d+\s?p\d+[\s,]*$")  # "g2p1 12wks": weeks of pregnancy
_GLUED_SEX = re.compile(r"[\s./]{0,2}([mf])(?![a-z0-9'])")
_FEMALE = frozenset(["f", "female", "girl", "woman", "lady", "aaf", "wf", "bf", "hf"])
_BEFORE_AGE = re.compile(r"(?:^|[.;:\n(]|\b(?:a|an|is|this|aged?|pt|patient))\s*$")
_AGE_WORD = re.compile(r"\bage[ds]?[\s:=]*(?:is\s|of\s)?(?P<a>\d{1,3})(?![\d/.:%-])")
_BEFORE_DURATION = re.compile(
    r"(?:(?P<lasting>\b(?:x|for|past|last|since|lasting|lasted)\s*(?:the\s+)?(?:past\s+|last\s+)?|(?:^|[\s~@(,])x)?"
    r"(?:\b(?:over|about|approx|approximately|the|within|times|another|more than|less than|almost|nearly)\s*"
    r"|w/in\s*|[~@>]\s*)*)$"
)
_AFTER_DURATION = re.compile(r"\s*(?:ago|hx|h/o|history|pta|prior|duration|earlier|later)(?![a-z])")
_NOT_LASTING = ("later", "prior", "earlier")
# "s/p TKR 2 wks ago", "LMP 7 weeks ago": the time of a past event is not how long the complaint lasts.
_PAST_EVENT = re.compile(
    r"(?:\bs/p|\bstatus post|\blmp|\bpost[- ]?op|surgery|ectomy|plasty|replacement|repair|transplant|c-?section"
    r"|cesarean|\bdeliver(?:y|ed)|gave birth|\bdiagnosed|\bdischarged|\btravell?ed|\breturned from|\bflight)"
    r"[^,.;\n]{0,40}$"
)
_FREQUENCY = re.compile(r"(?:\b(?:q|every|each|per)\s*|/\s*)$")
_NUMERALS = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"a": 1, "an": 1, "several": 3, "few": 3, "couple": 2, "couple of": 2, "many": 5, "eleven": 11, "twelve": 12},
}
_IN_WORDS = re.compile(
    rf"(?<![a-z])(?P<n>{'|'.join(sorted(_NUMERALS, key=len, reverse=True))})[\s-]+"
    r"(?:(?P<min>min(?:ute)?s?)|(?P<h>hours?|hrs?)|(?P<d>days?)|(?P<w>weeks?|wks?)|(?P<mo>months?)|(?P<y>years?|yrs?))(?![a-z])"
    r"(?P<ago>\s+(?:ago|history|hx)(?![a-z]))?"
)
_INTRODUCED = re.compile(
    r"(?:\b(?:x|for|past|last|over|about|these|lasting|lasted)\s+(?:the\s+)?(?:past\s+|last\s+)?(?:a\s+)?)$"
)
_SINCE = re.compile(
    r"since\s+(?P<since>yesterday|last night|last evening|this (?:am|morning|afternoon|evening)|today|tonight|last week"
    r"|last month|last year|(?:last |this past )?(?:mon|tues|wednes|thurs|fri|satur|sun)day|the weekend|last weekend)"
    r"(?![a-z])"
)
_SINCE_DAYS = {"yesterday": 1.0, "last week": 7.0, "last month": 30.44, "last year": 365.25}
_UNITS = ("min", "h", "d", "w", "mo", "y")


def read_times(low: str, taken: set[int]) -> tuple[list[Age], list[Duration]]:
    """Ages and durations of a text in lower case; numbers that start at a place of `taken` are no ages or durations."""
    ages: list[Age] = []
    durations: list[Duration] = []
    for match in _PHRASE.finditer(low):
        start = match.start()
        if start in taken:
            continue
        number, half, second, unit, old, pregnant, sex, only = match.groups()
        if pregnant or _GRAVIDA.search(low, max(0, start - 8), start):
            continue
        kind = _UNIT.get(unit, "yo") if unit else ""
        year = kind == "yo" or (kind == "y" and sex)
        if only or old or year or (kind == "mo" and sex):
            age = None if second else _age(low, match, float(number), kind, sex or only or "")
            if age is not None:
                ages.append(age)
                continue
        if unit and kind != "yo":
            days = (float(number) + (0.5 if half else 0)) * DAYS[kind]
            if second:
                days = (days + float(second) * DAYS[kind]) / 2
            duration = _duration(low, match, kind, round(days, 4))
            if duration is not None:
                durations.append(duration)
    if "age" in low:
        found = {age.start for age in ages}
        words = (w for w in _AGE_WORD.finditer(low) if w.start("a") not in found and int(w["a"]) <= OLDEST)
        ages += [Age(float(word["a"]), None, *word.span()) for word in words]
    return ages, durations + _in_words(low)


def _age(low: str, match: re.Match[str], value: float, kind: str, sex_word: str) -> Age | None:
    start, end = match.span()
    if low[start - 1 : start] == "x":
        return None
    sex_word = sex_word.strip(" ./,-\n\t").rpartition(" ")[2]
    if not kind and (
        value != int(value) or (len(sex_word) == 1 and not _BEFORE_AGE.search(low, max(0, start - 12), start))
    ):
        return None
    if kind == "mo" and not match[5] and start > 0 and low[match.start(7)].isalpha():
        return None  # "22 MOM" opens a note; elsewhere "mom" is the mother
    if not sex_word and (glued := _GLUED_SEX.match(low, end)):
        sex_word, end = glued[1], glued.end()
    years = value * DAYS["y" if kind in ("", "yo") else kind] / DAYS["y"]
    if years > OLDEST:
        return None
    sex: Sex | None = None
    if sex_word:
        sex = "F" if sex_word in _FEMALE else "M"
    return Age(round(years, 4), sex, start, end)


def _duration(low: str, match: re.Match[str], kind: str, days: float) -> Duration | None:
    start, end = match.start(), match.end(4)
    if _FREQUENCY.search(low, max(0, start - 8), start):
        return None
    before = _BEFORE_DURATION.search(low, max(0, start - 24), start)
    after = _AFTER_DURATION.match(low, end)
    written_out = end - match.start(4) > 2 or low[match.start(4) - 1].isspace()
    introduced = before is not None and before.start() < start
    if not (introduced or after or (written_out and kind not in ("s", "y"))):
        return None
    first = before.start() if before is not None else start
    while first < start and not low[first].isalnum():
        first += 1
    event = _PAST_EVENT.search(low, max(0, start - 60), start)
    ended = after[0] if after else ""
    just_now = ended.endswith("ago") and days < DAYS["h"]  # says nothing of how long it lasts
    told = bool(ended) and not event and not just_now and not ended.endswith(_NOT_LASTING)
    lasting = bool(before and before["lasting"]) or told
    return Duration(days, first, after.end() if after else end, lasting)


def _in_words(low: str) -> list[Duration]:
    """ "for two days", "several weeks ago", "since last night"."""
    found = []
    if "day" in low or "week" in low or "month" in low or "year" in low or "hour" in low or "min" in low:
        for match in _IN_WORDS.finditer(low):
            introduced = _INTRODUCED.search(low, max(0, match.start() - 24), match.start())
            if introduced or match["ago"]:
                unit = next(u for u in _UNITS if match[u])
                days = round(_NUMERALS[match["n"]] * DAYS[unit], 4)
                lasting = bool(introduced) or not _PAST_EVENT.search(low, max(0, match.start() - 60), match.start())
                first = introduced.start() if introduced else match.start()
                found.append(Duration(days, first, match.end(), lasting))
    if "since" in low:
        for match in _SINCE.finditer(low):
            since = match["since"]
            days_ago = 3.0 if since.endswith(("nday", "sday", "iday", "rday", "weekend")) else 0.5
            found.append(Duration(_SINCE_DAYS.get(since, days_ago), *match.span()))
    return found
