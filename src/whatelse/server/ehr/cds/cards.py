"""From a reading to cards: which tags are worth one, and what it says.

A card says no more of the record than its reasons need, in the model's own words, and with every sign written as a
character reference: neither Markdown nor HTML can be made of it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whatelse.explanations import Tag, in_words, telling, title
from whatelse.reading import Reading
from whatelse.server.ehr.cds.log import Card, CardLog
from whatelse.server.reasons import fitting
from whatelse.server.settings import Settings
from whatelse.server.worklist import Worklist
from whatelse.sources.codings import Codings
from whatelse.visits import Known

MOST = 3  # cards at once
ENOUGH = 50  # visits that a burden is judged by, at least
VISITS = 2_000
LEAST = 0.02  # no card is worth saying below this, whatever the burden allows
HOLD = 0.5  # log odds below the threshold that a card which was shown stays
SUMMARY = 140  # characters; CDS Hooks wants fewer
REASONS = 4
WORTH_SAYING = 0.3  # log odds
RISEN = 0.5  # log odds that a tag must have risen by since it was overridden, beside a changed record
URGENT = 0.75
SYSTEMS = {"snomed": "http://snomed.info/sct", "icd10": "http://hl7.org/fhir/sid/icd-10-cm"}
CLINICAL = "http://terminology.hl7.org/CodeSystem/condition-clinical"
STATUS = "http://terminology.hl7.org/CodeSystem/condition-ver-status"
CATEGORY = "http://terminology.hl7.org/CodeSystem/condition-category"
EXTERNAL_CAUSES = "VWXY"  # chapter of ICD-10-CM that no encounter diagnosis may come from
OVERRIDE = "urn:whatelse:override"
REJECTIONS = ("not-present", "ruled-out")  # reasons that say that the patient does not have the condition
OVERRIDES = {
    "not-present": "The patient does not have it",
    "ruled-out": "Looked for and ruled out",
    "not-relevant": "Not relevant to this visit",
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tag worth a card, and why it is said again if it was overridden before.

    urgent   it is unlikely, and must not be missed
    """

    tag: Tag
    rank: int
    again: bool = False
    urgent: bool = False


def evidence_of(reading: Reading) -> str:
    """A digest of what the record says to the model: it changes when a finding does, and not when words do."""
    parts = [reading.present.tobytes(), b"|", reading.unobserved.tobytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def choose(
    reading: Reading, known: Known, before: Sequence[Card], threshold: float, evidence: str
) -> tuple[list[Chosen], list[Tag]]:
    """At most MOST tags at or above the threshold, likeliest first; and the likeliest tags whatever they are.

    A tag shown at the last look stays until it is HOLD below the threshold. One that was overridden comes back only
    if the record has changed and the tag has risen by RISEN since. What the record has as a diagnosis is not said.
    With knowledge, cards follow the page: what is likely, and what must not be missed whatever the threshold.
    """
    last = {card.condition: card for card in before}
    anchors = reading.tagger.vocabulary_.anchors
    written = {name for name, true in zip(anchors.names, anchors.labels(reading.visit) or (), strict=False) if true}
    suggested = reading.suggest(known)
    ranked = [Chosen(tag, rank) for rank, tag in enumerate(suggested.tags, start=1)]
    if reading.tagger.profiles_:
        parts = [suggested.part_of.get(tag.condition) for tag in suggested.tags]
        ranked = [
            replace(candidate, urgent=part == "must_not_miss")
            for candidate, part in zip(ranked, parts, strict=True)
            if part in ("likely", "must_not_miss")
        ]
    found = []
    for candidate in ranked:
        tag, card = candidate.tag, last.get(candidate.tag.condition)
        if card is not None and card.outcome == "overridden":  # dismissed: the tag is still open
            if returns(tag, card, threshold, evidence):
                found.append(replace(candidate, again=True))
            continue
        needed = stays(threshold) if card is not None and card.outcome is None else threshold
        needed = 0.0 if candidate.urgent else needed
        if tag.probability >= needed and tag.probability > tag.baseline:
            found.append(candidate)
    for condition, card in last.items():
        if card.outcome == "overridden" and condition in known.rejected and card.evidence != evidence:
            tags = reading.suggest(known.without(condition)).tags
            rank, tag = next((r, t) for r, t in enumerate(tags, start=1) if t.condition == condition)
            if returns(tag, card, threshold, evidence):
                found.append(Chosen(tag, rank, again=True))
    found = [c for c in found if c.tag.condition not in written]
    found.sort(key=lambda c: (not c.urgent, -c.tag.probability))
    return found[:MOST], [c.tag for c in ranked[:MOST]]


def returns(tag: Tag, card: Card, threshold: float, evidence: str) -> bool:
    """Whether an overridden card comes back: the record has changed, and the log odds have risen by RISEN."""
    risen = _odds(tag.probability) >= _odds(card.probability) * math.exp(RISEN)
    return card.evidence != evidence and tag.probability >= threshold and risen


def _odds(probability: float) -> float:
    return probability / max(1e-12, 1 - probability)


def card_number(secret: bytes, *parts: object) -> str:
    """A number that is the same for the same card: a second call that finds nothing new shows the same cards."""
    digest = hmac.digest(secret, "\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), hashlib.sha256)
    return str(uuid.UUID(bytes=digest[:16], version=4))


def render(
    chosen: Chosen,
    card: Card,
    reading: Reading,
    known: Known,
    unseen: Sequence[str],
    codings: Codings,
    patient: str,
    about: str,
    launch: str | None,
) -> dict[str, Any]:
    """A card as CDS Hooks has it."""
    tagger, condition = reading.tagger, chosen.tag.condition
    name = title(condition, tagger)
    share = f"{chosen.tag.probability:.0%}"
    summary = f"Must not be missed: {name}, {share}" if chosen.urgent else f"What else? {name}: {share}"
    shown: dict[str, Any] = {
        "uuid": card.uuid,
        "summary": summary if len(summary) < SUMMARY else summary[: SUMMARY - 2] + "…",
        "indicator": "warning" if chosen.urgent or chosen.tag.probability >= URGENT else "info",
        "detail": _detail(chosen, reading, known, unseen),
        "source": {"label": "whatelse", **({"url": about} if about else {})},
        "suggestions": [
            {
                "label": f"Add as a provisional diagnosis: {name}"[:200],
                "uuid": card.suggestion,
                "actions": [
                    {
                        "type": "create",
                        "description": f"A draft entry for {name}; the EHR writes it, if you say so"[:300],
                        "resource": draft(condition, name, card.visit, patient, codings),
                    }
                ],
            }
        ],
        "selectionBehavior": "at-most-one",
        "overrideReasons": [{"code": c, "system": OVERRIDE, "display": d} for c, d in OVERRIDES.items()],
    }
    if launch:
        shown["links"] = [{"label": "Open the visit in whatelse", "url": launch, "type": "smart"}]
    return shown


def _detail(chosen: Chosen, reading: Reading, known: Known, unseen: Sequence[str]) -> str:
    tagger, condition = reading.tagger, chosen.tag.condition
    lines = fitting(reading, known, condition) if tagger.profiles_ else None
    lines = reading.why(known.without(condition), condition).reasons if lines is None else lines
    strong = [
        in_words(r.finding, tagger)
        for r in lines
        if r.present and r.log_odds >= WORTH_SAYING and telling(r.finding, tagger) and "#" not in r.finding
    ][:REASONS]
    profile = tagger.profiles_.get(condition)
    said = []
    if chosen.again:
        said.append("Said again: the record has changed since this was set aside.")
    said.append(f"Estimated at {chosen.tag.probability:.0%}; {chosen.tag.baseline:.1%} of all visits here have it.")
    if strong:
        said.append("Speaks for it: " + ", ".join(plain(text) for text in strong) + ".")
    if profile is not None and profile.settle:
        said.append("Would settle it: " + plain(profile.settle.partition(";")[0], 200) + ".")
    if known.confirmed:
        confirmed = ", ".join(plain(title(c, tagger)) for c in known.confirmed)
        said.append(f"Beside what is confirmed: {confirmed}.")
    if unseen:
        said.append("Not seen: " + ", ".join(plain(text) for text in unseen) + ".")
    said.append("Supports judgement and does not replace it.")
    return "\n\n".join(said)


def plain(text: str, most: int = 60) -> str:
    """Text that stays text in Markdown and HTML: every sign but letters, digits and blanks as a character reference."""
    text = " ".join(text.split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in text)


def draft(condition: str, name: str, encounter: str, patient: str, codings: Codings) -> dict[str, Any]:
    """A Condition of this visit for the EHR to write: provisional, in whatever codes are sure."""
    coding = [
        {
            "system": SYSTEMS[c.system],
            "code": f"{c.code[:3]}.{c.code[3:]}" if c.system == "icd10" and len(c.code) > 3 else c.code,
            "display": c.name or name,
        }
        for c in codings.drafts.get(condition, ())
        if not (c.system == "icd10" and c.code[:1].upper() in EXTERNAL_CAUSES)
    ]
    return {
        "resourceType": "Condition",
        "clinicalStatus": {"coding": [{"system": CLINICAL, "code": "active"}]},
        "verificationStatus": {"coding": [{"system": STATUS, "code": "provisional"}]},
        "category": [{"coding": [{"system": CATEGORY, "code": "encounter-diagnosis"}]}],
        "code": {**({"coding": coding} if coding else {}), "text": name},
        "subject": {"reference": f"Patient/{patient}"},
        "encounter": {"reference": f"Encounter/{encounter}"},
    }


# ---- the threshold: as configured, or so that cards are as few as somebody can bear


def by_burden(tops: Sequence[Sequence[float]], per_hundred: float) -> float | None:
    """The threshold at which visits like these give `per_hundred` cards per 100, or fewer; None if they are too few.

    tops: the probabilities of each visit's likeliest tags. With V visits, k = V per_hundred / 100 cards are allowed:
    the threshold lies just above the (k+1)-th largest of all.
    """
    if len(tops) < ENOUGH:
        return None
    pooled = np.sort([p for top in tops for p in sorted(top, reverse=True)[:MOST]])[::-1]
    allowed = int(len(tops) * per_hundred / 100)
    if allowed >= len(pooled):
        return LEAST
    return float(min(max(LEAST, np.nextafter(pooled[allowed], 1.0)), 1.0))


def stays(threshold: float) -> float:
    """Down to where a card that was shown goes on being shown: HOLD below the threshold in log odds."""
    odds = _odds(threshold) * math.exp(-HOLD)
    return odds / (1 + odds)


def threshold_now(settings: Settings, log: CardLog, worklist: Worklist) -> float:
    """As configured, or by the burden that the looks of the log show, else the visits of the worklist."""
    found = None
    if settings.cds_burden:
        found = by_burden(log.tops(VISITS), settings.cds_burden)
        if found is None and (scores := worklist.scores) is not None:
            likeliest = np.sort(scores.probabilities[: scores.done], axis=1)[:, -MOST:]
            found = by_burden(likeliest.tolist(), settings.cds_burden)
    return settings.cds_threshold if found is None else found
