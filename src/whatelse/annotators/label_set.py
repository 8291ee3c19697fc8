"""LabelSet: labels of a cohort's visits, put together from votes. Models learn from the votes, labels judge models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from whatelse.annotators.dawid_skene import estimate_rates
from whatelse.annotators.vote_files import Others, read_vote_file
from whatelse.annotators.votes import CERTAIN, Votes, check_votes, votes_of_belief
from whatelse.cohort import Cohort, Vocabulary
from whatelse.errors import CohortError, InputError
from whatelse.types import Bools, Floats, Ints

NAMED = 5  # contradicting labels that a message names
LIFT, ENOUGH = 1.5, 10.0  # visits with yes and anchor / those expected by chance, below which votes count nothing


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Labels of N visits and m conditions.

    probability  (N, m) that the visit has the condition: 0 or 1 from labels, between where annotators may err
    known        (N, m) where anybody voted
    weight       (N, m) visits that each label stands for; 1 where visits were chosen at random, 0 where not known
    votes        what the labels were made of, with error rates
    unused       columns of label files that look like labels but are no condition, as (file, column)
    """

    probability: Floats
    known: Bools
    weight: Floats
    votes: tuple[Votes, ...] = ()
    unused: tuple[tuple[Path, str], ...] = ()

    @classmethod
    def of_belief(cls, belief: ArrayLike, cohort: Cohort, weight: ArrayLike | None) -> LabelSet:
        """The cohort's own labels with votes that say what `belief` says (`votes_of_belief`)."""
        own, votes = Votes.of_cohort(cohort), votes_of_belief(belief, cohort.known, weight)
        counted = np.max([np.where(each.known, each.weight, 0.0) for each in votes], 0, initial=0.0)
        return cls(own.value.astype(float), own.known, np.broadcast_to(counted, own.known.shape), votes)

    @classmethod
    def of_votes(cls, votes: Sequence[Votes], cohort: Cohort) -> LabelSet:
        """Votes of several annotators on a cohort. Labels count before other votes; the first label of a cell counts.

        Error rates that votes lack are estimated from the votes (`estimate_rates`). Anchors have no part in it: labels
        measure how noisy anchors are. Only an annotator that no label checks is compared with the anchors: if the two
        agree no more often than by chance, its votes count nothing, and a warning says so. InputError names labels that
        contradict each other.
        """
        check_votes(votes, cohort)
        shape = (len(cohort), len(cohort.conditions))
        value, known, weight = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape)
        source = np.zeros(shape, np.int64)
        for number, each in enumerate(votes):
            if each.certain:
                differ = each.known & known & (each.value != (value > 0.5))
                if differ.any():
                    raise _contradiction(cohort, votes, number, differ, source)
                fresh = each.known & ~known
                value[fresh], known[fresh], source[fresh] = each.value[fresh], True, number
                weight[fresh] = each.weight[fresh]
        others = [v for v in votes if not v.certain]
        if others:
            labels = Votes("labels", value > 0.5, known)
            others = [
                v if v.sensitivity is not None or (v.known & labels.known).any() else _compared(v, cohort)
                for v in others
            ]
            filled, posterior = estimate_rates([labels, *others])
            by_order = iter(filled[1:])
            votes = [v if v.certain else next(by_order) for v in votes]
            for each in filled[1:]:
                fresh = each.known & ~known & (each.log_odds() != 0)  # votes that count nothing are no labels
                value[fresh], weight[fresh], known[fresh] = posterior[fresh], each.weight[fresh], True
        return cls(value, known, weight, tuple(votes))

    @classmethod
    def of_cohort(cls, cohort: Cohort) -> LabelSet:
        """The labels that the cohort itself has."""
        return cls.of_votes([Votes.of_cohort(cohort)], cohort)

    @classmethod
    def read(cls, paths: Sequence[Path], cohort: Cohort, *, others: Others = "refuse") -> LabelSet:
        """Several files of labels or votes. InputError names labels that two of them contradict each other in.

        A label that two files agree on counts once, with the first file's weight.
        """
        files = [(path, read_vote_file(path, cohort, others=others)) for path in paths]
        found = cls.of_votes([each for _, (votes, _) in files for each in votes], cohort)
        if paths and not found.visits:
            names = ", ".join(map(str, paths))
            hint = "are the ids those of the cohort?" if others == "skip" else "write 1 or 0 under its conditions"
            raise InputError(f"no visit of the cohort has a label in {names}: {hint}")
        return replace(found, unused=tuple((path, column) for path, (_, unused) in files for column in unused))

    @property
    def visits(self) -> int:
        """Number of visits with a label."""
        return int(self.known.any(1).sum())

    @property
    def certain(self) -> bool:
        """Whether all votes are labels, which never err."""
        return all(votes.certain for votes in self.votes)

    def likelihood(self) -> Floats:
        """(N, m) likelihood of the label given the votes, as a probability under a 50/50 prior; 0 where not known."""
        total = np.sum([votes.log_odds() for votes in self.votes], 0) if self.votes else np.zeros(self.known.shape)
        return np.where(self.known, expit(np.clip(total, -CERTAIN, CERTAIN)), 0.0)

    def sample_weight(self) -> Floats | None:
        """(N, m) `weight`; None where every label stands for one visit."""
        return None if (self.weight[self.known] == 1).all() else self.weight

    def then(self, other: LabelSet) -> LabelSet:
        """The labels of this set, and where it has none, those of `other`."""
        fresh = other.known & ~self.known
        return LabelSet(
            np.where(fresh, other.probability, self.probability),
            self.known | other.known,
            np.where(fresh, other.weight, self.weight),
            (*self.votes, *(replace(votes, known=votes.known & ~self.known) for votes in other.votes)),
            (*self.unused, *other.unused),
        )

    def only(self, cells: Bools) -> LabelSet:
        """The same shape; without the labels outside `cells`, (N,) visits or (N, m)."""
        known = self.known & (cells[:, None] if cells.ndim == 1 else cells)
        probability, weight = (np.where(known, part, 0.0) for part in (self.probability, self.weight))
        votes = tuple(replace(votes, known=votes.known & known) for votes in self.votes)
        return LabelSet(probability, known, weight, votes, self.unused)

    def rows(self, which: Bools) -> LabelSet:
        """The labels of the visits of a mask (N,)."""
        votes = tuple(votes.rows(which) for votes in self.votes)
        return LabelSet(self.probability[which], self.known[which], self.weight[which], votes, self.unused)

    def on(self, cohort: Cohort) -> Cohort:
        """The cohort with these labels instead of its own: true where the probability is above 0.5."""
        return replace(cohort, Y=(self.probability > 0.5) & self.known, known=self.known)


def _compared(votes: Votes, cohort: Cohort) -> Votes:
    """The votes; with rates that count nothing if a yes and the anchor meet no more often than by chance."""
    anchors, yes = votes.known & cohort.A, votes.value.sum(0)
    share = yes / np.maximum(votes.known.sum(0), 1)
    expected = float(share @ anchors.sum(0))
    if expected < ENOUGH or (votes.value & anchors).sum() >= LIFT * expected:
        return votes
    problem = f"votes of {votes.annotator!r} agree with the anchors no more often than by chance and count nothing"
    warnings.warn(f"{problem}: label some of the same visits to learn what they are worth", stacklevel=4)
    return votes.with_rates(share, share)


def with_labels(cohort: Cohort, path: Path) -> Cohort:
    """The cohort with the labels of a file, which count before its own."""
    return LabelSet.read([path], cohort).then(LabelSet.of_cohort(cohort)).on(cohort)


def _contradiction(cohort: Cohort, votes: Sequence[Votes], number: int, differ: Bools, source: Ints) -> InputError:
    """Names labels by row of the cohort: an id may identify somebody."""
    cells = np.argwhere(differ).tolist()
    named = [
        f"{cohort.conditions[i]} of visit {v + 1:,} of the cohort ({votes[int(source[v, i])].annotator})"
        for v, i in cells[:NAMED]
    ]
    more = f" and {len(cells) - NAMED:,} more" if len(cells) > NAMED else ""
    where = f"{', '.join(named)}{more}"
    return InputError(f"labels of {votes[number].annotator!r} contradict others about {where}: keep one label of each")


def check_own_labels(cohort: Cohort, y: ArrayLike | None) -> None:
    """CohortError if `cohort` is no cohort, or `y` is not the cohort's own labels."""
    if not isinstance(getattr(cohort, "vocabulary", None), Vocabulary):  # a SparkCohort is a cohort too
        raise CohortError(
            f"a Tagger learns from a cohort, not from {type(cohort).__name__}: make one with "
            "build_cohort(visits_or_data_frame, 'conditions.yaml')"
        )
    if y is None:
        return
    if cohort.Y is None or not np.array_equal(np.asarray(y, bool), cohort.Y):
        raise CohortError(
            "labels come with the cohort, and y is not what it has: make a cohort with these labels, "
            "dataclasses.replace(cohort, Y=y, known=None)"
        )
