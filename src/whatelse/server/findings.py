"""Findings and conditions in the words that a clinician reads."""

from __future__ import annotations

from whatelse.tagger import Tagger

_SAYS = {"hx": "takes {}", "rx": "given {}", "age": "age {}", "rfv": "reason for visit: {}", "sex": "sex {}"}
COMMON = 0.15  # of visits


def in_words(name: str, tagger: Tagger) -> str:
    """What a clinician reads for a finding's name."""
    prefix, colon, rest = name.partition(":")
    if not colon or prefix.startswith("#"):
        return name.replace("_", " ")
    if prefix == "neg":
        return "no " + rest.replace("_", " ")
    if prefix == "anchor":
        return f"mention of {title(rest, tagger).lower()}"
    if prefix == "sex":
        return {"F": "female", "M": "male"}.get(rest, rest)
    return _SAYS.get(prefix, prefix + " {}").format(rest.replace("_", " "))


def title(condition: str, tagger: Tagger) -> str:
    """The name of a condition for people."""
    return titles(tagger).get(condition, condition)


def titles(tagger: Tagger) -> dict[str, str]:
    """Condition -> its name for people."""
    return {c.name: c.title for c in tagger.vocabulary_.anchors.conditions}


def telling(name: str, tagger: Tagger) -> bool:
    """Whether a finding is worth pointing at: not a number, and not a word that notes have all the time."""
    vocabulary = tagger.vocabulary_
    common = vocabulary.counts[vocabulary.index[name]] > COMMON * max(1, vocabulary.visits)
    return name.startswith("anchor:") or not (common or "#" in name or len(name.rpartition(":")[2]) < 2)
