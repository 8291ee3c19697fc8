"""What a Tagger answers: ranked tags, why one of them, and what to ask next; findings in the words of a clinician.

`print` shows suggestions and reasons as tables, and so does a notebook.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whatelse.io.text_table import Printed, TextTable

if TYPE_CHECKING:
    from whatelse.tagger import Tagger

SURPRISE, DANGER, SYMPTOM = 0.7, 0.2, 1.0  # of the order that people see (docs/knowledge.md)
POSSIBLE, NEWS = 0.01, 2.0  # of a candidate: at least this probability, and this many times the usual
POSSIBLE_COMPLAINT = 0.25  # of a symptom, cause or habit that the record does not mention
COMPLAINTS = ("symptom", "cause", "social")
PARTS = ("known", "likely", "must_not_miss")
UNCALIBRATED = "noise rates assumed, probabilities uncalibrated"
"""What is said of a model that was learned without any label."""
_SAYS = {"hx": "takes {}", "rx": "given {}", "age": "age {}", "rfv": "reason for visit: {}", "possible": "possible {}"}
_AGES = {
    "infant": "age under 1", "child": "age 1 to 11", "teen": "age 12 to 17", "young": "age 18 to 39",
    "middle": "age 40 to 64", "old": "age 65 or older",
}  # fmt: skip
GROUPS = ("named", "symptoms", "signs", "results", "drugs", "history", "patient", "words")
_GROUP = {
    "symptom": "symptoms", "head": "symptoms", "quality": "symptoms", "site": "symptoms", "sign": "signs",
    "result": "results", "procedure": "results",
}  # fmt: skip
COMMON = 0.15  # of visits
_SHORT = re.compile(r"\b(ace|nsaid|ssri|snri|arb|maoi|doac|sglt2|glp1|mao|dpp4|hiv|ct|ecg|iv)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tag:
    """One condition that is neither confirmed nor rejected.

    probability   that the patient has it, within error_bound of the model's exact answer
    baseline      its probability in the department, before anything is known of the visit
    title         what a person reads
    kind, danger  as its entry in the knowledge base says; danger 3: must not be missed
    stated        the record itself says so: a symptom or cause that it mentions, a chronic condition in the history
    wider         wider conditions, of which it is a form
    usual         its probability for the patient's age and sex; None: the baseline
    """

    condition: str
    probability: float
    error_bound: float
    baseline: float
    title: str = ""
    kind: str = ""
    danger: int = 0
    stated: bool = False
    wider: tuple[str, ...] = ()
    usual: float | None = None

    @property
    def times(self) -> float:
        """How many times as likely as usual, for a patient of this age and sex."""
        usual = self.baseline if self.usual is None else self.usual
        return self.probability / usual if usual > 0 else math.inf

    @property
    def score(self) -> float:
        """What suggestions are ordered by: log probability - SURPRISE log baseline + DANGER danger.

        A common condition must be likelier than a rare one to stand above it, and a dangerous one less likely. A
        symptom, which restates the complaint, is SYMPTOM lower: a diagnosis comes first where there is one.
        """
        rare = math.log(max(self.probability, 1e-12)) - SURPRISE * math.log(max(self.baseline, 1e-12))
        return rare + DANGER * self.danger - SYMPTOM * (self.kind == "symptom")

    @property
    def worth(self) -> bool:
        """Whether it stands out: not stated by the record, possible, and likelier than usual."""
        least = POSSIBLE_COMPLAINT if self.kind in COMPLAINTS else POSSIBLE
        return not self.stated and self.probability >= least and self.times >= NEWS

    def is_form_of(self, other: Tag) -> bool:
        """Whether one of two conditions is a wider form of the other."""
        return self.condition in other.wider or other.condition in self.wider


@dataclass(frozen=True, slots=True)
class Suggestions(Printed):
    """Ranked tags; `certified` says that error_bound is within the tolerance asked for. digest: of the model.

    caveat                        what must be said with them (`UNCALIBRATED`), or nothing
    known, likely, must_not_miss  the parts of the answer that people see (`reading.py`)
    """

    tags: tuple[Tag, ...]
    certified: bool
    error_bound: float
    digest: str
    caveat: str = ""
    known: tuple[Tag, ...] = ()
    likely: tuple[Tag, ...] = ()
    must_not_miss: tuple[Tag, ...] = ()

    @property
    def candidates(self) -> tuple[Tag, ...]:
        """Tags that stand out, in order: not stated by the record, at least POSSIBLE and NEWS times the usual.

        A symptom, cause or habit that the record does not mention must be at least POSSIBLE_COMPLAINT.
        A wider or narrower form of a condition that stands above is left out: see `forms`.
        """
        out: list[Tag] = []
        for tag in self.tags:
            if tag.worth and not any(tag.is_form_of(above) for above in out):
                out.append(tag)
        return tuple(out)

    def forms(self, tag: Tag) -> tuple[Tag, ...]:
        """Wider and narrower forms of a condition that are possible too."""
        return tuple(t for t in self.tags if t.is_form_of(tag) and t.probability >= POSSIBLE and t.times >= NEWS)

    @property
    def part_of(self) -> dict[str, str]:
        """Condition -> `known`, `likely` or `must_not_miss`; a condition in no part is not shown."""
        return {tag.condition: part for part in PARTS for tag in getattr(self, part)}

    @property
    def accuracy(self) -> str:
        """What the computation guarantees, as a sentence."""
        bound = min(self.error_bound, 1.0)
        if not self.certified:
            return f"not certified: probabilities may be off by up to {bound:.2g}"
        return f"numerical error at most {bound:.1g}; the model itself may be wrong"

    def shown(self) -> TextTable:
        """As a table: each tag, its probability, and how common it is."""
        rows = tuple((tag.condition, f"{tag.probability:.1%}", f"{tag.baseline:.1%}") for tag in self.tags)
        said = tuple(filter(None, (self.accuracy, self.caveat)))
        return TextTable("", ("what else?", "probability", "usually"), rows, said)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the record: text[start:end] of a note, or entry `item` of a list of codes, or a field as a whole."""

    field: str
    start: int | None = None
    end: int | None = None
    item: int | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """A finding, whether it is present, and the log odds it brings for (or, below zero, against) the tag.

    text   what a person reads
    """

    finding: str
    log_odds: float
    present: bool
    places: tuple[Place, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Explanation(Printed):
    """total = prior + reasons + absent + others + sureness + rest, in log odds.

    reasons    what the record says, and the anchor where it is silent; sorted by size, largest first
    absent     part of the record -> what all the findings together bring that it does not have
    others     condition -> log odds that come with it being likely, through conditions that go together
    sureness   what records as long and as telling as this one have proved to be worth, beyond the sum of their findings
    rest       what the listed lines leave out: reasons too small to list, and what the model cannot split
    confirmed  condition -> how much confirming it moved the total (not part of the sum: it acts through the lines)
    """

    condition: str
    total: float
    prior: float
    reasons: tuple[Reason, ...]
    absent: dict[str, float]
    others: dict[str, float]
    sureness: float
    rest: float
    confirmed: dict[str, float]

    def shown(self) -> TextTable:
        """As a table of lines that add up, in log odds."""
        lines = [("how common it is", self.prior)]
        lines += [(r.text or r.finding, r.log_odds) for r in self.reasons]
        lines += [(f"not in the {part}", brought) for part, brought in self.absent.items()]
        lines += [(f"with {condition}", brought) for condition, brought in self.others.items()]
        lines += [("sureness", self.sureness), ("everything else", self.rest)]
        rows = [(name, f"{brought:+.2f}") for name, brought in lines if abs(brought) >= 0.005]
        chance = 1 / (1 + math.exp(-max(min(self.total, 700.0), -700.0)))
        rows.append((f"in all, {chance:.1%}", f"{self.total:+.2f}"))
        moved = tuple(f"confirming {name} moved it by {by:+.2f}" for name, by in self.confirmed.items())
        return TextTable(f"why {self.condition}", ("because", "log odds"), tuple(rows), moved)


@dataclass(frozen=True, slots=True)
class Question:
    """A finding to ask about: expected information in bits, and what the answer does to the tag it moves most."""

    finding: str
    information: float
    about: str
    now: float
    if_yes: float
    if_no: float


# ---- findings and conditions in words


def in_words(name: str, tagger: Tagger, present: bool = True) -> str:
    """What a clinician reads for a finding's name. present: False for a condition that the record does not name."""
    prefix, colon, rest = name.partition(":")
    if not present:
        return f"no mention of {in_words(name, tagger).removeprefix('mention of ')}"
    if prefix == "anchor":
        named = lower(title(rest, tagger))
        return named if tagger.vocabulary_.lexicon.entries else f"mention of {named}"
    if prefix == "sex":
        return {"F": "female", "M": "male"}.get(rest, rest)
    if prefix == "age" and rest in _AGES:
        return _AGES[rest]
    if name.startswith("lasting_"):
        return f"for {name.removeprefix('lasting_')}"
    if name in tagger.titles_:
        return capitals(lower(tagger.titles_[name]))
    if not colon or prefix.startswith("#"):
        return name.replace("_", " ")
    if prefix == "neg":
        return "no " + in_words(rest, tagger)
    return _SAYS.get(prefix, prefix + " {}").format(rest.replace("_", " "))


def capitals(text: str) -> str:
    """Text with the abbreviations that are written in capitals: "ACE inhibitor"."""
    return _SHORT.sub(lambda found: found[0].upper(), text)


def lower(text: str) -> str:
    """Text for the middle of a sentence; "COPD" and "HIV" stay."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def title(condition: str, tagger: Tagger) -> str:
    """The name of a condition for people."""
    return titles(tagger).get(condition, condition)


def titles(tagger: Tagger) -> dict[str, str]:
    """Condition -> its name for people."""
    return {c.name: c.title for c in tagger.vocabulary_.anchors.conditions}


def group(name: str, tagger: Tagger) -> str:
    """What kind of finding it is, one of GROUPS. A model that reads words alone has `words`."""
    from whatelse.text.lexicon import DRUG, DRUG_CLASS  # here: `whatelse --help` imports nothing that takes long

    prefix, _, rest = name.rpartition(":")
    if prefix == "anchor":
        return "named"
    if prefix in ("age", "sex"):
        return "patient"
    entry = tagger.vocabulary_.lexicon.by_name.get(rest)
    if entry is not None and entry.kind in (DRUG, DRUG_CLASS):
        return "drugs"
    if prefix in ("hx", "family", "chronic"):
        return "history"
    if entry is None:
        if tagger.vocabulary_.lexicon.composed(rest):
            return "symptoms"
        return {"rx": "drugs", "vital": "signs", "rfv": "symptoms"}.get(prefix, "words")
    return _GROUP.get(entry.kind, "history")


def telling(name: str, tagger: Tagger) -> bool:
    """Whether a finding is worth pointing at: not a number, and not a word that notes have all the time."""
    vocabulary = tagger.vocabulary_
    common = vocabulary.counts[vocabulary.index[name]] > COMMON * max(1, vocabulary.visits)
    if vocabulary.lexicon.entries:  # concepts, which always say something
        return not name.startswith(("age:", "sex:", "neg:", "lasting_"))
    return name.startswith("anchor:") or not (common or "#" in name or len(name.rpartition(":")[2]) < 2)
