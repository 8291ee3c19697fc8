"""The parts of an answer: what is known already, what is likely, what must not be missed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whatelse.explanations import Suggestions, Tag
from whatelse.reading import Reading
from whatelse.server.findings import telling
from whatelse.text.lexicon import QUALITY
from whatelse.visits import Known

MOST_LIKELY = 4
LEAST = 0.1  # of a condition that is shown as likely
PLAIN = 0.25  # of a dangerous condition that is likely, and no longer easy to miss
SURE, SURE_LASTING = 0.9, 0.5  # of a condition, and of a chronic one, that is likely whatever speaks for it
SPECIFIC, RATHER_SPECIFIC = 8.0, 4.0  # times as common in cases as in all visits
NAMED = 0.5  # probability of a condition that words of the record name, to be shown as known


class Parts(NamedTuple):
    """Each open condition is in one part at most; what is in none is not shown."""

    known: tuple[Tag, ...]
    likely: tuple[Tag, ...]
    must_not_miss: tuple[Tag, ...]

    def part_of(self) -> dict[str, str]:
        """Condition -> the name of its part."""
        return {tag.condition: part for part, tags in self._asdict().items() for tag in tags}


def parts(reading: Reading, known: Known, found: Suggestions) -> Parts:
    """Sort suggestions into parts.

    known          the record names it, states it as a symptom, or a narrower condition that is known implies it
    must_not_miss  dangerous, below PLAIN, many times as likely as usual (`Suggestions.must_not_miss`), and for a
                   finding that is specific to it
    likely         at least LEAST and above the usual, and SURE or for a finding that is rather specific to it; the
                   MOST_LIKELY best, likeliest first. Symptoms are no answer
    """
    profiles = reading.tagger.profiles_
    least = 0.0 if reading.tagger.vocabulary_.lexicon.entries else NAMED  # a concept is read with its assertion
    told = {tag.condition for tag in found.tags if tag.stated or (tag.probability >= least and _named(reading, tag))}
    implied = {up for name in (*told, *known.confirmed) for up in _wider(reading, name)}
    open_tags = [tag for tag in found.tags if tag.condition not in told and tag.condition not in implied]
    names = {tag.condition for tag in open_tags}
    missed = [tag for tag in found.must_not_miss if tag.condition in names and _presented(reading, tag, SPECIFIC)]
    likely = [tag for tag in missed if tag.probability >= PLAIN]
    for tag in found.likely:
        profile = profiles.get(tag.condition)
        symptom = profile is not None and profile.kind in ("symptom", "cause", "social")
        worth = not symptom and tag.probability >= LEAST and tag.probability > tag.baseline
        enough = SURE_LASTING if profile is not None and profile.kind == "chronic" else SURE
        sure = profile is None or tag.probability >= enough or _presented(reading, tag, RATHER_SPECIFIC)
        if tag.condition in names and worth and sure and tag not in missed:
            likely.append(tag)
    likely = sorted(likely[:MOST_LIKELY], key=lambda tag: -tag.probability)
    missed = [tag for tag in missed if tag not in likely]
    return Parts(tuple(tag for tag in found.tags if tag.condition in told), tuple(likely), tuple(missed))


def _presented(reading: Reading, tag: Tag, times: float) -> bool:
    """Whether the record has a finding so many times as common in cases as in all visits. Risks, qualities ("at night",
    "severe") and durations do not count, nor does the mechanism alone for an injury."""
    tagger = reading.tagger
    share = 1 - tagger.model_.noisyor.fail[tagger.conditions_.index(tag.condition), reading.present]
    rate = tagger.vocabulary_.counts[reading.present] / max(1, tagger.vocabulary_.visits)
    enough = np.flatnonzero(share >= times * np.maximum(rate, 1e-6))
    profile, kinds = tagger.profiles_.get(tag.condition), tagger.vocabulary_.lexicon.by_name
    vague = {QUALITY, "mechanism"} if profile is not None and profile.kind == "injury" else {QUALITY}
    found = (tagger.vocabulary_.names[j] for j in reading.present[enough].tolist())
    return any(telling(n, tagger) and not (n in kinds and kinds[n].kind in vague) for n in found)


def _named(reading: Reading, tag: Tag) -> bool:
    """Whether a note names the condition itself."""
    places = reading.places.get(f"anchor:{tag.condition}", ())
    return any(place.start is not None and not place.negated for place in places)


def _wider(reading: Reading, condition: str) -> tuple[str, ...]:
    lexicon = reading.tagger.vocabulary_.lexicon
    return lexicon.ancestors(condition) if condition in lexicon.by_name else ()
