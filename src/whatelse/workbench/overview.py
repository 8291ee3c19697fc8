"""The conditions of a workbench: how often the anchors fire, how right they are, how many cases they find; and what the
knowledge base says about a condition beside what the records say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whatelse.annotators import AnchorSet, NoiseRates
from whatelse.annotators.label_set import LabelSet
from whatelse.annotators.vote_files import labels_in
from whatelse.cohort import Cohort
from whatelse.learning.prior import Prior
from whatelse.workbench.folder import BenchFolder

Estimate = tuple[float, float, float]  # value, lower and upper limit (95%)
MOST = 8  # findings of each kind
LEAST = 10  # visits with the finding, before the records are heard


@dataclass(frozen=True)
class ConditionRow:
    """One condition as it stands.

    anchors        how many phrases, drugs and codes the conditions file has for it
    fires, share   visits of the cohort in which one of them is found; None where the cohort does not have it yet
    labelled, positives   visits labelled for it, and those of them that have it
    precision, sensitivity   of the anchor, from the labels; None where there are none for it
    gain           visits that suggested phrases would add, times their estimated precision; None if not looked for yet
    conflicts      anchors that another condition has as well
    """

    name: str
    title: str
    anchors: int
    fires: int | None
    share: float | None
    labelled: int
    positives: int
    precision: Estimate | None
    sensitivity: Estimate | None
    gain: float | None
    conflicts: tuple[str, ...]


def lesson_of(folder: BenchFolder, cohort: Cohort) -> tuple[LabelSet, str]:
    """The labels to learn from and to judge by, and where they come from.

    Those of labels.csv, and the cohort's own where labels.csv says nothing: one label that somebody saves does not
    replace thousands of the records. A condition that none of the cohort's own labels ever names is not known to be
    absent: whoever made those labels had not heard of it.
    """
    own, source = own_labels(cohort)
    if not (folder.labels.exists() and labels_in(folder.labels, cohort.conditions)):
        return own, source
    said, name = LabelSet.read([folder.labels], cohort, others="skip"), folder.labels.name
    if not own.visits:
        return said, name
    mixed = LabelSet(
        np.where(said.known, said.probability, own.probability),
        said.known | own.known,
        np.where(own.known, own.weight, said.weight),  # where the records are labelled too, a label stands for itself
    )
    return mixed, f"{name} ({said.visits:,} visits) and {source}"


def own_labels(cohort: Cohort) -> tuple[LabelSet, str]:
    """The labels that the records themselves bring, and what to call them."""
    own = LabelSet.of_cohort(cohort)
    own = own.only(own.known & (own.probability > 0.5).any(0))
    return own, "the records' own labels" if own.visits else "no labels"


def overview(
    anchors: AnchorSet, cohort: Cohort, said: LabelSet, gains: Mapping[str, float] | None = None
) -> list[ConditionRow]:
    """A row for each condition of the conditions file, in its order. O(N m)."""
    counted = zip(cohort.A.sum(0), said.known.sum(0), (said.known & (said.probability > 0.5)).sum(0), strict=True)
    counts = {name: tuple(map(int, row)) for name, row in zip(cohort.conditions, counted, strict=True)}
    estimates, shared, out = _estimates(cohort, said), anchors.shared(), []
    for condition in anchors.conditions:
        name = condition.name
        fires, labelled, positives = counts.get(name, (None, 0, 0))
        precision, sensitivity = estimates.get(name, (None, None))
        out.append(
            ConditionRow(
                name=name,
                title=condition.title,
                anchors=len(condition.anchors),
                fires=fires,
                share=None if fires is None else fires / len(cohort),
                labelled=labelled,
                positives=positives,
                precision=precision,
                sensitivity=sensitivity,
                gain=None if gains is None or fires is None else gains.get(name, 0.0),
                conflicts=tuple(phrase for phrase, names in shared.items() if name in names),
            )
        )
    return out


def _estimates(cohort: Cohort, said: LabelSet) -> dict[str, tuple[Estimate | None, Estimate | None]]:
    """By condition (precision, sensitivity); conditions that nobody has labelled are left out."""
    which = np.flatnonzero(said.known.any(0) & cohort.A.any(0))
    if not which.size:
        return {}
    rows = np.flatnonzero(said.known[:, which].any(1))
    cells = np.ix_(rows, which)
    known = said.known[cells]
    rates = NoiseRates.from_sample(
        cohort.A[:, which],
        (said.probability[cells] > 0.5) & known,
        rows,
        tuple(cohort.conditions[i] for i in which),
        weights=np.where(known, said.weight[cells], 1.0),
        known=known,
    )
    ppv, sensitivity = (
        [(value, low, high) for value, (low, high) in zip(found.tolist(), rates.intervals[name].tolist(), strict=True)]
        for name, found in (("ppv", rates.ppv), ("sensitivity", rates.sensitivity))
    )
    return dict(zip(rates.conditions, zip(ppv, sensitivity, strict=True), strict=True))


# ---- beside the knowledge base


@dataclass(frozen=True)
class Lift:
    """How many times as common a finding is among cases as among all visits.

    text        the finding in words, if whoever shows it has set them
    knowledge   by the knowledge base; None where it says nothing
    records     among visits in which the anchor fires; None if fewer than LEAST visits have the finding
    """

    finding: str
    knowledge: float | None
    records: float | None
    text: str = ""


@dataclass(frozen=True)
class BesideKnowledge:
    """A condition by the base and by the records. entries: the entries of the base that the condition stands for.

    share, fires  share of emergency visits by the base (None: not in the base), and of this cohort by the anchor
    """

    entries: tuple[str, ...]
    share: float | None
    fires: float
    lifts: tuple[Lift, ...]


def beside_knowledge(cohort: Cohort, prior: Prior, condition: str) -> BesideKnowledge:
    """The MOST strongest findings by the base, then the MOST strongest of the records that the base does not list."""
    i = cohort.conditions.index(condition)
    have = cohort.X[cohort.A[:, i].astype(bool)]
    every, cases = (np.asarray(x.sum(0), float).ravel() for x in (cohort.X, have))
    times = ((cases + 0.5) / (have.shape[0] + 1)) / ((every + 0.5) / (len(cohort) + 1))
    plain = np.array([":" not in name for name in cohort.vocabulary.names])
    heard = (every >= LEAST) & (have.shape[0] > 0)
    listed, weight = prior.known[i], prior.weight[:2, i].sum(0)  # facts and names
    order: list[int] = []
    for strength, among in ((weight, listed & plain), (times, heard & plain & ~listed & (times > 1))):
        columns = np.flatnonzero(among)
        order += columns[np.argsort(-strength[columns], kind="stable")[:MOST]].tolist()
    by_base = [float(np.exp(weight[j])) if listed[j] else None for j in order]
    by_records = [float(times[j]) if heard[j] else None for j in order]
    names = (cohort.vocabulary.names[j] for j in order)
    lifts = tuple(map(Lift, names, by_base, by_records))
    share = float(prior.share[i])
    return BesideKnowledge(prior.entries[i], None if np.isnan(share) else share, have.shape[0] / len(cohort), lifts)
