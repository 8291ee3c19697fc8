"""Findings in words, and which of them a record denies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.tagger import Tagger
from whatelse.visits import Code, Visit

_SAYS = {"hx": "takes {}", "rx": "given {}", "age": "age {}", "rfv": "reason for visit: {}", "sex": "sex {}"}
COMMON = 0.15  # of visits
SAID_AGAINST = 0.25  # log odds that explicit denials must bring to count as evidence against a tag


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
    """All of them."""
    return {c.name: c.title for c in tagger.vocabulary_.anchors.conditions}


def telling(name: str, tagger: Tagger) -> bool:
    """Whether a finding is worth pointing at: not a number, and not a word that notes have all the time."""
    vocabulary = tagger.vocabulary_
    common = vocabulary.counts[vocabulary.index[name]] > COMMON * max(1, vocabulary.visits)
    return name.startswith("anchor:") or not (common or "#" in name or len(name.rpartition(":")[2]) < 2)


@dataclass(frozen=True, slots=True)
class Located:
    """A place in the record where a finding is: characters of a note, or an entry of a list."""

    field: str
    start: int | None
    end: int | None
    item: int | None
    negated: bool


def locate(tagger: Tagger, visit: Visit) -> dict[str, list[Located]]:
    """Finding -> its places. O(length of the record)."""
    names, places = tagger.vocabulary_.names, dict[str, list[Located]]()
    for found in tagger.vocabulary_.find(visit):
        item = _item(visit, found.field, found.code) if found.code is not None else None
        where = Located(found.field, found.start, found.end, item, found.negated)
        places.setdefault(names[found.finding], []).append(where)
    return places


def _item(visit: Visit, field: str, code: Code) -> int | None:
    codes: tuple[Code, ...] = getattr(visit, field) or ()
    return codes.index(code) if code in codes else None


def denials(tagger: Tagger, places: dict[str, list[Located]], absent: tuple[str, ...]) -> dict[str, list[str]]:
    """Condition -> findings that the record or an answer denies, strongest first, if together they count against it.

    In a noisy-or model a finding that is not there takes log f_ij from the odds. Here that is summed over findings that
    somebody said are not there; those that nobody mentioned are missing evidence, not evidence against.
    """
    index, model, evidence = tagger.vocabulary_.index, tagger.model_, tagger.evidence_
    said = {name.removeprefix("neg:") for name in places if name.startswith("neg:")} - places.keys() | set(absent)
    words = sorted(word for word in said if word in index)
    if not words:
        return {}
    columns = np.array([index[word] for word in words])
    with np.errstate(divide="ignore"):
        lines = model.weight[columns] * np.log(np.maximum(model.fail[:, columns], 1e-300))
    if evidence is not None:
        lines = lines - evidence.weight[:, columns] * evidence.centre[columns]
        for k, word in enumerate(words):
            if (j := index.get(f"neg:{word}")) is not None:
                lines[:, k] += evidence.weight[:, j] * (1.0 - evidence.centre[j])
    out = {}
    for i, condition in enumerate(tagger.conditions_):
        if -np.minimum(lines[i], 0).sum() > SAID_AGAINST:
            order = [k for k in np.argsort(lines[i]).tolist() if lines[i, k] < -0.05]
            out[condition] = [words[k] for k in order[:3]]
    return out
