"""Analysis table of annotators, as Snorkel's of labelling functions: coverage, overlap, conflict, estimated error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whatelse.annotators.dawid_skene import estimate_rates
from whatelse.annotators.votes import Votes
from whatelse.types import Bools, Floats


@dataclass(frozen=True)
class AnnotatorRow:
    """One annotator, over all conditions. Cells are pairs of a visit and a condition; shares are from 0 to 1.

    votes     number of votes
    coverage  share of all cells that have a vote of the annotator
    overlap   share of the annotator's votes with another vote on the same cell
    conflict  share of the annotator's votes that another vote contradicts
    error     estimated share of the annotator's votes that are wrong; 0 for labels
    sensitivity, false_positive   means over conditions, weighted by the expected number of cases and of others
    """

    annotator: str
    kind: str
    votes: int
    coverage: float
    overlap: float
    conflict: float
    error: float
    sensitivity: float
    false_positive: float


def analyse_annotators(votes: Sequence[Votes], *, posterior: Floats | None = None) -> tuple[AnnotatorRow, ...]:
    """A row for each annotator name, in order. O(annotators N m).

    posterior  (N, m) probability of each condition given findings and votes, as a learner estimates it; None: given
               the votes alone (`estimate_rates`). Error rates that the votes lack are estimated likewise.
    """
    if not votes:
        return ()
    filled, q = estimate_rates(votes) if posterior is None else (tuple(votes), np.asarray(posterior, float))
    yes = np.sum([v.known & v.value for v in votes], 0)
    no = np.sum([v.known & ~v.value for v in votes], 0)
    rows = []
    for name in dict.fromkeys(v.annotator for v in votes):
        own = [v for v in filled if v.annotator == name]
        cast = sum(int(v.known.sum()) for v in own)
        shared = sum(int((v.known & (yes + no > 1)).sum()) for v in own)
        disputed = sum(int((v.known & (np.where(v.value, no, yes) > 0)).sum()) for v in own)
        wrong = 0.0 if own[0].kind == "label" else sum(float(np.where(v.value, 1 - q, q)[v.known].sum()) for v in own)
        sensitivity, false_positive = (_mean_rate(own, side, weight) for side, weight in ((0, q), (1, 1 - q)))
        covered = int(np.any([v.known for v in own], 0).sum()) / max(q.size, 1)
        overlap, conflict, error = (count / max(cast, 1) for count in (shared, disputed, wrong))
        rates = sensitivity, false_positive
        rows.append(AnnotatorRow(name, own[0].kind, cast, covered, overlap, conflict, error, *rates))
    return tuple(rows)


def _mean_rate(own: Sequence[Votes], side: int, weight: Floats) -> float:
    """P(vote = 1) where the condition is (side 0) or is not (side 1) there, by the votes' rates or by counting."""
    given = (own[0].sensitivity, own[0].false_positive)[side]
    known: list[Bools] = [v.known for v in own]
    cells = np.sum([(weight * k).sum(0) for k in known], 0)
    if cells.sum() == 0:
        return float("nan")
    if given is not None:
        return float(given @ cells / cells.sum())
    return float(sum((weight * v.value).sum() for v in own) / cells.sum())
