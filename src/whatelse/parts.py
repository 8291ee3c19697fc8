"""The parts of an answer: what is known already, what is likely, what must not be missed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from whatelse.explanations import COMPLAINTS, Suggestions, Tag
from whatelse.text.lexicon import QUALITY
from whatelse.visits import Known
from whatelse.wording import telling

if TYPE_CHECKING:
    from whatelse.reading import Reading

MOST_LIKELY, ALERTS = 4, 3  # conditions that are shown as likely, and that must not be missed, at most
DEADLY, GRAVE = 3, 2  # danger
LEAST = 0.1  # of a condition that is shown as likely
SURE, SURE_LASTING = 0.9, 0.5  # of a condition, and of a chronic one, that is likely whatever speaks for it
SPECIFIC, RATHER_SPECIFIC = 8.0, 4.0  # times as common in cases as in all visits
MISSED, MISSED_TIMES = 0.03, 20.0  # probability, and times the usual, of a condition that must not be missed
NAMED = 0.5  # probability of a condition that words of the record name, to be shown as known


def with_parts(reading: Reading, known: Known, found: Suggestions) -> Suggestions:
    """Suggestions sorted into parts: the one rule of the page, of CDS cards and of `whatelse ask`.

    Each open condition is in one part at most; what is in none is not shown.

    known          the record names it, states it as a symptom, or a narrower condition that is known implies it
    likely         at least LEAST and above the usual, and SURE or for a finding that is rather specific to it (a
                   chronic condition below GRAVE: SURE_LASTING); the MOST_LIKELY best, chronic ones last; shown
                   likeliest first. Symptoms are no answer
    must_not_miss  not likely, but dangerous (3), at least MISSED and MISSED_TIMES the usual, for a finding that is
                   specific to it, and no form of a condition that is likely; at most ALERTS
    """
    profiles = reading.tagger.profiles_
    least = 0.0 if reading.tagger.vocabulary_.lexicon.entries else NAMED  # a concept is read with its assertion
    told = {tag.condition for tag in found.tags if tag.stated or (tag.probability >= least and _named(reading, tag))}
    implied = {up for name in (*told, *known.confirmed) for up in _wider(reading, name)}
    open_tags = [tag for tag in found.tags if tag.condition not in told and tag.condition not in implied]
    likely: list[Tag] = []
    for tag in replace(found, tags=tuple(open_tags)).candidates:  # a form of what is known is news
        profile = profiles.get(tag.condition)
        worth = tag.kind not in COMPLAINTS and tag.probability >= LEAST and tag.probability > tag.baseline
        if tag.kind == "chronic" and tag.danger < GRAVE:
            sure = tag.probability >= SURE_LASTING
        else:
            sure = profile is None or tag.probability >= SURE or _presented(reading, tag, RATHER_SPECIFIC)
        if worth and sure:
            likely.append(tag)
    likely.sort(key=lambda tag: tag.kind == "chronic")  # what is new comes before what the patient lives with
    likely = sorted(likely[:MOST_LIKELY], key=lambda tag: -tag.probability)
    missed = [
        tag
        for tag in open_tags
        if tag.danger == DEADLY
        and tag.kind not in COMPLAINTS
        and tag.probability >= MISSED
        and tag.times >= MISSED_TIMES
        and not any(tag is other or tag.is_form_of(other) for other in likely)
        and _presented(reading, tag, SPECIFIC)
    ]
    stated = tuple(tag for tag in found.tags if tag.condition in told)
    return replace(found, known=stated, likely=tuple(likely), must_not_miss=tuple(missed[:ALERTS]))


def _presented(reading: Reading, tag: Tag, times: float) -> bool:
    """Whether the record has a finding so many times as common in cases as in all visits. Habits, history, qualities
    ("at night", "severe") and durations do not count, nor does the mechanism alone for an injury, nor an exposure
    alone for a condition below GRAVE."""
    tagger = reading.tagger
    share = 1 - tagger.model_.noisyor.fail[tagger.conditions_.index(tag.condition), reading.present]
    rate = tagger.vocabulary_.counts[reading.present] / max(1, tagger.vocabulary_.visits)
    enough = reading.present[share >= times * np.maximum(rate, 1e-6)]
    kinds, vague = tagger.vocabulary_.lexicon.by_name, {QUALITY, "social", "history"}
    if tag.kind == "injury":
        vague.add("mechanism")
    if tag.danger < GRAVE:
        vague.add("exposure")
    found = (tagger.vocabulary_.names[j] for j in enough.tolist())
    return any(telling(n, tagger) and not (n in kinds and kinds[n].kind in vague) for n in found)


def _named(reading: Reading, tag: Tag) -> bool:
    """Whether a note names the condition itself."""
    places = reading.places.get(f"anchor:{tag.condition}", ())
    return any(place.start is not None and not place.negated for place in places)


def _wider(reading: Reading, condition: str) -> tuple[str, ...]:
    lexicon = reading.tagger.vocabulary_.lexicon
    return lexicon.ancestors(condition) if condition in lexicon.by_name else ()
