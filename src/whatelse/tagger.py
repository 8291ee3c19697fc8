"""Tagger: learns from a cohort, then answers what else a visit might have, why, and what to ask.

It follows scikit-learn's conventions: parameters as given, learned attributes with a trailing underscore.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from whatelse.anchors import NoiseRates
from whatelse.cohort import Cohort, Vocabulary
from whatelse.errors import CohortError, ModelFileError, NotFittedError, QueryError
from whatelse.learning.learners import DEFAULT, Progress, learn
from whatelse.learning.rates import ASSUMED, GIVEN, rates_of
from whatelse.model import file as modelfile
from whatelse.model.file import ModelFile
from whatelse.noisyor.heldout import heldout_tag
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import Bools, Floats
from whatelse.noisyor.posterior import TOLERANCE, posterior
from whatelse.reading import Reading
from whatelse.suggestions import UNCALIBRATED, Because, Question, Suggestions
from whatelse.visits import Known, Visit

Ints = NDArray[np.int64]


class Tagger(BaseEstimator):  # type: ignore[misc]
    """What else might the patient have?

    learner    a name in `learning.LEARNERS`; settings: its options, as a dict
    tolerance  the error to certify in every probability
    seed       of whatever a learner draws at random

    After `fit` or `load`: model_ (JointModel), vocabulary_, rates_, conditions_, history_, converged_, notes_, and
    digest_ (of the file; empty until saved).
    """

    def __init__(
        self,
        learner: str = DEFAULT,
        *,
        settings: dict[str, Any] | None = None,
        tolerance: float = TOLERANCE,
        seed: int = 0,
    ) -> None:
        self.learner = learner
        self.settings = settings
        self.tolerance = tolerance
        self.seed = seed

    # ---- learning

    def fit(
        self,
        cohort: Cohort,
        y: None = None,
        *,
        rates: NoiseRates | None = None,
        weights: ArrayLike | None = None,
        belief: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Tagger:
        """Learn from a cohort's anchors and, unless `rates` are given, from its labels as well.

        Without `rates` the noise rates come from the labels that there are; with none at all typical rates are assumed
        (`NoiseRates.assumed`), and `assumed_` says so. With `rates` the default learner looks at no label.

        weights  (N,) or (N, m) how many visits each label stands for; None: labelled visits were chosen at random
        belief   (N, m) the chance that each label is true, where people may have erred; None: labels are true

        A learner that stopped before it converged warns (ConvergenceWarning); `converged_` says so too.
        """
        settings = dict(self.settings or {})
        if rates is None:
            rates, source = rates_of(cohort, weights, strict=self.learner == DEFAULT)
            if self.learner == DEFAULT:
                settings = {"labels": True, "weights": weights, "belief": belief} | settings
        else:
            source = GIVEN
        learned = learn(cohort, rates, self.learner, seed=self.seed, progress=progress, **settings)
        self.model_: JointModel = learned.model
        self.vocabulary_: Vocabulary = cohort.vocabulary
        self.rates_: NoiseRates = rates.named(cohort.conditions)
        self.conditions_: tuple[str, ...] = cohort.conditions
        self.history_: tuple[float, ...] = learned.history
        self.converged_: bool = learned.converged
        self.notes_: dict[str, Any] = {"noise_rates": source, **learned.notes}
        self.digest_: str = ""
        if not learned.converged:
            warnings.warn(
                f"learner {self.learner!r} stopped before it converged: the model can be used, and more steps would "
                "change it",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    # ---- many visits as arrays

    def predict_proba(
        self, X: Cohort | sp.csr_matrix, confirmed: ArrayLike | None = None, rejected: ArrayLike | None = None
    ) -> Floats:
        """(V, m) probability of each condition; confirmed and rejected are (V, m) masks of what is known already."""
        rows = self._rows(X)
        return posterior(
            self.model_, rows, confirmed=_mask(confirmed), rejected=_mask(rejected), tolerance=self.tolerance, top=0
        ).marginals

    def predict(self, X: Cohort | sp.csr_matrix) -> Bools:
        """(V, m) conditions that are more likely than not."""
        return self.predict_proba(X) > 0.5

    def heldout_tag(self, X: Cohort | sp.csr_matrix, confirmed: Bools) -> Floats:
        """(V, m) which one condition is on besides those confirmed: a scorer for `recovery.heldout_tag_scores`."""
        return heldout_tag(self.model_, self._rows(X), confirmed)

    def suggest_many(self, visits: Sequence[Visit]) -> Floats:
        """(V, m) probabilities of whole records, with nothing confirmed."""
        self._fitted()
        present = [self.vocabulary_.present(visit) for visit in visits]
        unobserved = [self.vocabulary_.unobserved(visit) for visit in visits]
        return posterior(self.model_, present, unobserved, tolerance=self.tolerance, top=0).marginals

    # ---- one visit

    def read(self, visit: Visit) -> Reading:
        """A visit read once, for as many questions as there are."""
        self._fitted()
        return Reading(self, visit)

    def suggest(
        self,
        visit: Visit,
        confirmed: Iterable[str] = (),
        rejected: Iterable[str] = (),
        present: Iterable[str] = (),
        absent: Iterable[str] = (),
    ) -> Suggestions:
        """Rank the conditions neither confirmed nor rejected; present and absent are findings that were asked about."""
        return self.read(visit).suggest(_known(confirmed, rejected, present, absent))

    def why(
        self,
        visit: Visit,
        condition: str,
        confirmed: Iterable[str] = (),
        rejected: Iterable[str] = (),
        present: Iterable[str] = (),
        absent: Iterable[str] = (),
        most: int = 12,
    ) -> Because:
        """The findings for and against one tag in log odds, at most `most` of them, with their places in the record."""
        return self.read(visit).why(_known(confirmed, rejected, present, absent), condition, most)

    def ask(
        self,
        visit: Visit,
        confirmed: Iterable[str] = (),
        rejected: Iterable[str] = (),
        present: Iterable[str] = (),
        absent: Iterable[str] = (),
        about: str | None = None,
        most: int = 5,
    ) -> tuple[Question, ...]:
        """The findings not in the record whose answer is expected to tell most, about all open tags or about one."""
        return self.read(visit).ask(_known(confirmed, rejected, present, absent), about, most)

    def settle(self, known: Known) -> Known:
        """The part of what is known that this model has names for: an older one may have had other conditions."""
        conditions, findings = set(self.conditions_), self.vocabulary_.index
        return Known(
            tuple(c for c in known.confirmed if c in conditions),
            tuple(c for c in known.rejected if c in conditions),
            tuple(f for f in known.present if f in findings),
            tuple(f for f in known.absent if f in findings),
        )

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write a model file; returns its digest."""
        self._fitted()
        rates = self.rates_
        self.digest_ = modelfile.save(
            path,
            ModelFile(
                model=self.model_,
                conditions=self.conditions_,
                findings=self.vocabulary_.names,
                anchor_columns=self.vocabulary_.anchor_columns.astype(np.int64),
                noise={"prior": rates.prior, "sensitivity": rates.sensitivity, "false_positive": rates.false_positive},
                vocabulary=self.vocabulary_.to_json(),
                learned={
                    "learner": self.learner,
                    "settings": self.settings or {},
                    "tolerance": self.tolerance,
                    "seed": self.seed,
                    "history": list(self.history_),
                    "converged": self.converged_,
                    "notes": self.notes_,
                },
            ),
        )
        return self.digest_

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tagger:
        """Open a model file; ModelFileError says what is wrong with one that cannot be used."""
        file = modelfile.load(path)
        try:
            vocabulary = Vocabulary.from_json(file.vocabulary)
        except CohortError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}; save the model again") from None
        if vocabulary.names != file.findings or vocabulary.conditions != file.conditions:
            raise ModelFileError(f"{os.fspath(path)}: its vocabulary is of other findings than its model")
        learned = file.learned
        tagger = cls(
            learned.get("learner", DEFAULT),
            settings=learned.get("settings"),
            tolerance=learned.get("tolerance", TOLERANCE),
            seed=learned.get("seed", 0),
        )
        tagger.model_ = file.model
        tagger.vocabulary_ = vocabulary
        tagger.rates_ = NoiseRates.from_given(file.conditions, **file.noise)
        tagger.conditions_ = file.conditions
        tagger.history_ = tuple(learned.get("history", ()))
        tagger.converged_ = bool(learned.get("converged", True))
        tagger.notes_ = learned.get("notes", {})
        tagger.digest_ = file.digest
        return tagger

    # ---- from names to arrays

    def condition_indices(self, names: Iterable[str]) -> Ints:
        """Conditions by name -> their numbers; QueryError for a name that is none."""
        index = {c: i for i, c in enumerate(self.conditions_)}
        out = []
        for name in names:
            if name not in index:
                raise QueryError(f"{name!r} is not a condition of this model; it knows {', '.join(self.conditions_)}")
            out.append(index[name])
        return np.array(out, np.int64)

    def finding_indices(self, names: Iterable[str]) -> Ints:
        """Findings by name -> their numbers; QueryError for a name that is none."""
        out = []
        for name in names:
            if name not in self.vocabulary_.index:
                raise QueryError(f"{name!r} is not a finding of this model")
            out.append(self.vocabulary_.index[name])
        return np.array(out, np.int64)

    @property
    def assumed_(self) -> bool:
        """Whether the noise rates were assumed for want of labels: then probabilities are not calibrated."""
        return self.notes_.get("noise_rates") == ASSUMED

    @property
    def caveat_(self) -> str:
        """What must be said with every answer, or nothing."""
        return UNCALIBRATED if self.assumed_ else ""

    def _fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError("this Tagger has learned nothing yet: call fit, or Tagger.load")

    def _rows(self, X: Cohort | sp.csr_matrix) -> sp.csr_matrix:
        """The visits of a cohort, if it has the findings of this model; of a matrix nothing but its width is known."""
        self._fitted()
        if not isinstance(X, Cohort):
            return X
        self.vocabulary_.check_same(X.vocabulary)
        return X.X


def _known(confirmed: Iterable[str], rejected: Iterable[str], present: Iterable[str], absent: Iterable[str]) -> Known:
    return Known(confirmed, rejected, present, absent)  # type: ignore[arg-type]  # which makes tuples of them


def _mask(given: ArrayLike | None) -> Bools | None:
    return None if given is None else np.asarray(given, bool)
