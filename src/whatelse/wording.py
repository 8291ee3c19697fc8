"""Findings and conditions in the words that a clinician reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whatelse.text.lexicon import DRUG, DRUG_CLASS

if TYPE_CHECKING:
    from whatelse.tagger import Tagger

_SAYS = {"hx": "takes {}", "rx": "given {}", "age": "age {}", "rfv": "reason for visit: {}", "possible": "possible {}"}
_AGES = {
    "infant": "age under 1", "child": "age 1 to 11", "teen": "age 12 to 17", "young": "age 18 to 39",
    "middle": "age 40 to 64", "old": "age 65 or older",
}  # fmt: skip
GROUPS = ("named", "symptoms", "signs", "results", "drugs", "history", "patient", "words")
_GROUP = {
    "symptom": "symptoms", "head": "symptoms", "quality": "symptoms", "site": "symptoms", "sign": "signs",
    "result": "results", "procedure": "results", DRUG: "drugs", DRUG_CLASS: "drugs",
}  # fmt: skip
COMMON = 0.15  # of visits
_SHORT = re.compile(r"\b(ace|nsaid|ssri|snri|arb|maoi|doac|sglt2|glp1|mao|dpp4|hiv|ct|ecg|iv)\b", re.IGNORECASE)


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
