"""Concept, Drug, Condition: one entry of the knowledge base each, checked when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from whatelse.errors import InputError

FREQUENCIES = {"always": 0.95, "usually": 0.8, "often": 0.5, "sometimes": 0.2, "rarely": 0.05}
BANDS = {"infant": 1.0, "child": 12.0, "teen": 18.0, "young": 40.0, "middle": 65.0, "old": 200.0}
"""Age band -> the age in years at which it ends."""
BAND_SHARES = {"infant": 0.03, "child": 0.13, "teen": 0.06, "young": 0.33, "middle": 0.28, "old": 0.17}
"""Age band -> its share of emergency visits (United States, NHAMCS 2016-2018, rounded)."""
CONCEPT_KINDS = (
    "symptom", "sign", "result", "procedure", "disease", "device", "mechanism", "social", "exposure", "history",
    "quality", "site", "head", "drug", "idiom",
)  # fmt: skip
CONDITION_KINDS = ("disease", "chronic", "symptom", "cause", "injury", "social")
MUST_NOT_MISS = 3  # danger of a condition that a day's delay can make deadly or disabling


@dataclass(frozen=True, slots=True)
class Concept:
    """Something that a record can mention.

    is_a     wider concepts, which it implies
    lasting  a fact that stays true: "history of X" means X
    normal   says that something is as it should be (clear lungs, a negative test)
    rate     share of all emergency visits whose record mentions it as present
    same     phrases that mean it; near: phrases that go with it without meaning it
    prefix   of a body site: the first word of composed names (`abdominal` in `abdominal_pain`)
    """

    name: str
    title: str
    kind: str
    is_a: tuple[str, ...] = ()
    lasting: bool = False
    rate: float = 0.0
    same: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    prefix: str = ""
    normal: bool = False


@dataclass(frozen=True, slots=True)
class Drug:
    """A drug ingredient: its classes, other names, and the shares of visits with it at home and given here."""

    name: str
    classes: tuple[str, ...]
    same: tuple[str, ...]
    home: float
    given: float


@dataclass(frozen=True, slots=True)
class Condition:
    """What medicine knows of one condition.

    danger                 0 to 3; 3 must not be missed
    share                  share of emergency visits that have it
    age, sex               band or sex -> how many times as common as on average
    codes                  `icd10`, `icd9` -> prefixes without dots
    names                  phrases that name the diagnosis: its anchors
    findings, risk, proof  concept -> share of cases that have it
    home_drugs, given      drug, class or procedure -> share of cases that take it or get it
    against                concept -> factor on the odds where it is present
    goes_with              condition -> how many times as often together as by chance
    is_a                   wider conditions, of which it is a form
    """

    name: str
    title: str
    kind: str
    danger: int
    share: float
    age: Mapping[str, float] = field(default_factory=dict)
    sex: Mapping[str, float] = field(default_factory=dict)
    codes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    findings: Mapping[str, float] = field(default_factory=dict)
    against: Mapping[str, float] = field(default_factory=dict)
    risk: Mapping[str, float] = field(default_factory=dict)
    home_drugs: Mapping[str, float] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)
    proof: Mapping[str, float] = field(default_factory=dict)
    goes_with: Mapping[str, float] = field(default_factory=dict)
    mistaken_for: tuple[str, ...] = ()
    settle: str = ""
    is_a: tuple[str, ...] = ()

    @property
    def must_not_miss(self) -> bool:
        """Whether a day's delay can kill or disable."""
        return self.danger >= MUST_NOT_MISS


def plain(text: str) -> str:
    """A name for comparison: lower case, words separated by one space."""
    return " ".join(text.lower().replace("_", " ").replace("-", " ").split())


def title_of(name: str) -> str:
    """A name as a person reads it: `neck_stiffness` is "Neck stiffness"."""
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def age_band(age: float) -> str:
    """The age band of an age in years."""
    return next(band for band, end in BANDS.items() if age < end)


def all_wider(name: str, wider: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """Every wider name of a name, nearest first, without the name itself. wider: the direct ones of a name."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for up in wider(waiting.pop(0)):
            if up not in found and up != name:
                found[up] = None
                waiting.append(up)
    return tuple(found)


class Fields:
    """The fields of one YAML entry, read by type; InputError names file and entry."""

    def __init__(self, name: Any, value: Any, file: str) -> None:
        self.file = file
        if not isinstance(name, str) or not name:
            raise InputError(f"the name of an entry is {name!r}: quote it, it must be text", file=file)
        self.name = name
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.error("an entry is a mapping of fields such as 'title' and 'same'")
        self.value: dict[str, Any] = value

    def error(self, problem: str) -> InputError:
        return InputError(f"{self.name!r}: {problem}", file=self.file)

    def only(self, known: set[str]) -> None:
        if unknown := sorted(set(self.value) - known):
            raise self.error(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")

    def text(self, key: str) -> str:
        value = self.value.get(key, "")
        if not isinstance(value, str):
            raise self.error(f"{key!r} must be text")
        return value

    def choice(self, key: str, among: tuple[str, ...]) -> str:
        value = self.value.get(key)
        if value not in among:
            raise self.error(f"{key!r} is {value!r}, must be one of {', '.join(among)}")
        return str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value.get(key) or ()
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item.strip() for item in value):
            raise self.error(f'{key!r} must be a list of texts; quote the ones YAML reads otherwise, such as "no"')
        return tuple(dict.fromkeys(value))

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        value = self.value.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.error(f"{key!r} is {value!r}, must be a number from {low:g} to {high:g}")
        return float(value)

    def numbers(self, key: str, low: float, high: float) -> dict[str, float]:
        value = self.value.get(key) or {}
        if not isinstance(value, dict):
            raise self.error(f"{key!r} must map names to numbers")
        out = {}
        for name, given in value.items():
            number = FREQUENCIES.get(given, given) if isinstance(given, str) else given
            if isinstance(number, bool) or not isinstance(number, int | float) or not low <= number <= high:
                words = f" or one of {', '.join(FREQUENCIES)}" if high == 1 else ""
                raise self.error(f"{key!r} of {name!r} is {given!r}, must be a number from {low:g} to {high:g}{words}")
            out[str(name)] = float(number)
        return out


def read_concept(name: Any, value: Any, file: str) -> Concept:
    """A concept from its YAML entry."""
    entry = Fields(name, value, file)
    entry.only({"title", "kind", "is_a", "lasting", "normal", "rate", "same", "near", "prefix"})
    return Concept(
        name=entry.name,
        title=entry.text("title") or title_of(entry.name),
        kind=entry.choice("kind", CONCEPT_KINDS),
        is_a=entry.texts("is_a"),
        lasting=bool(entry.value.get("lasting", False)),
        normal=bool(entry.value.get("normal", False)),
        rate=entry.number("rate", 0.0, 1.0, 0.0),
        same=tuple(phrase.lower() for phrase in entry.texts("same")),
        near=tuple(phrase.lower() for phrase in entry.texts("near")),
        prefix=entry.text("prefix"),
    )


def read_drug(name: Any, value: Any, file: str) -> Drug:
    """A drug from its YAML entry."""
    entry = Fields(name, value, file)
    entry.only({"class", "same", "home", "given"})
    return Drug(
        name=entry.name,
        classes=tuple(name for name in entry.texts("class") if name != entry.name),
        same=tuple(phrase.lower() for phrase in entry.texts("same")),
        home=entry.number("home", 0.0, 1.0, 0.0),
        given=entry.number("given", 0.0, 1.0, 0.0),
    )


def read_condition(name: Any, value: Any, file: str) -> Condition:
    """A condition from its YAML entry."""
    entry = Fields(name, value, file)
    fields = {"title", "kind", "danger", "share", "age", "sex", "icd10", "icd9", "names", "findings", "against"}
    entry.only(fields | {"risk", "home_drugs", "given", "proof", "goes_with", "mistaken_for", "settle", "is_a"})
    age, sex = entry.numbers("age", 0.0, 1000.0), entry.numbers("sex", 0.0, 1000.0)
    if unknown := [*(set(age) - set(BANDS)), *(set(sex) - {"F", "M"})]:
        raise entry.error(f"{unknown[0]!r} is neither a sex (F, M) nor an age band ({', '.join(BANDS)})")
    return Condition(
        name=entry.name,
        title=entry.text("title") or title_of(entry.name),
        kind=entry.choice("kind", CONDITION_KINDS),
        danger=int(entry.number("danger", 0, 3)),
        share=entry.number("share", 1e-7, 0.5),
        age=age,
        sex=sex,
        codes={system: tuple(c.replace(".", "") for c in entry.texts(system)) for system in ("icd10", "icd9")},
        names=tuple(phrase.lower() for phrase in entry.texts("names")),
        findings=entry.numbers("findings", 0.0, 1.0),
        against=entry.numbers("against", 0.0, 1.0),
        risk=entry.numbers("risk", 0.0, 1.0),
        home_drugs=entry.numbers("home_drugs", 0.0, 1.0),
        given=entry.numbers("given", 0.0, 1.0),
        proof=entry.numbers("proof", 0.0, 1.0),
        goes_with=entry.numbers("goes_with", 0.0, 1000.0),
        mistaken_for=entry.texts("mistaken_for"),
        is_a=entry.texts("is_a"),
        settle=entry.text("settle"),
    )
