"""Tagger: learns from a cohort, then answers what else a visit might have, why, and what to ask.

It is a classifier of scikit-learn's kind: parameters as given, learned attributes with a trailing underscore, and
`cross_val_score(Tagger(), cohort, cv=5)` works as it stands. Labels come with the cohort.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning

from whatelse.anchors import NoiseRates
from whatelse.cohort import Cohort, Vocabulary
from whatelse.errors import CohortError, ModelFileError, NotFittedError, QueryError
from whatelse.frames import Columns, Rows, framed, rows_of
from whatelse.learning.learners import DEFAULT, Progress, learn
from whatelse.learning.rates import ASSUMED, GIVEN, rates_of
from whatelse.model import file as modelfile
from whatelse.model.file import ModelFile
from whatelse.noisyor.heldout import heldout_tag
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import Bools, Floats
from whatelse.noisyor.posterior import TOLERANCE, posterior
from whatelse.noisyor.recovery import heldout_tag_draws, heldout_tag_scores
from whatelse.reading import Reading
from whatelse.suggestions import UNCALIBRATED, Because, Question, Suggestions
from whatelse.visits import Known, Visit

Ints = NDArray[np.int64]


class Tagger(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What else might the patient have?

    learner    a name in `learning.LEARNERS`; settings: its options, as a dict
    tolerance  the error to certify in every probability
    seed       of whatever a learner draws at random

    After `fit` or `load`: model_ (JointModel), vocabulary_, rates_, conditions_ (classes_ as scikit-learn calls them),
    feature_names_in_, history_, converged_, notes_, and digest_ (of the file; empty until saved).
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
        y: ArrayLike | None = None,
        *,
        rates: NoiseRates | None = None,
        weights: ArrayLike | None = None,
        belief: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Tagger:
        """Learn from a cohort's anchors and, unless `rates` are given, from its labels as well.

        Without `rates` the noise rates come from the labels that there are; with none at all typical rates are assumed
        (`NoiseRates.assumed`), and `assumed_` says so. With `rates` the default learner looks at no label.

        y        nothing, or the cohort's own labels again, as scikit-learn hands them to its scorers
        weights  (N,) or (N, m) how many visits each label stands for; None: labelled visits were chosen at random
        belief   (N, m) the chance that each label is true by what was said alone, where people may have erred, as if it
                 were as likely as not before; None: labels are true

        A learner that stopped before it converged warns (ConvergenceWarning); `converged_` says so too.
        """
        _check_labels(cohort, y)
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
        self.notes_: dict[str, Any] = {"noise_rates": source, "data": _data(cohort), **learned.notes}
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
        self, X: Any, confirmed: ArrayLike | str | None = None, rejected: ArrayLike | str | None = None
    ) -> Floats:
        """(V, m) probability of each condition, for many visits.

        X                    visits, a cohort, a data frame of records or of findings, or a matrix (V, n) of 0 and 1
        confirmed, rejected  what is known already: masks (V, m), or names of conditions, which hold for all visits

        A record's fields that are None are unobserved; in a cohort or a matrix what is not present is absent.
        """
        return self._probabilities(self._rows(X), confirmed, rejected)

    def predict(self, X: Any) -> Bools:
        """(V, m) conditions that are more likely than not."""
        return self.predict_proba(X) > 0.5

    def tag(
        self,
        visits: Any,
        confirmed: ArrayLike | str | None = None,
        rejected: ArrayLike | str | None = None,
        *,
        columns: Columns = None,
    ) -> Any:
        """The probabilities of `predict_proba` as a table: a column per condition, a row per visit in the same order.

        A pandas frame gives a pandas frame with the same index, polars gives polars, any other frame an Arrow table.
        Visits, a cohort or a matrix give a pandas frame, or a dict of arrays where pandas is not installed.

        columns  which column of a frame of records is which field; as where it was learned from, if not given
        """
        self._fitted()
        rows = rows_of(visits, self.vocabulary_, columns)
        return framed(self._probabilities(rows, confirmed, rejected), self.conditions_, visits, rows.ids)

    def score(self, X: Cohort, y: ArrayLike | None = None) -> float:
        """How often the one condition that was hidden is named first, the others being confirmed: the accuracy of the
        held-out tag, as `whatelse evaluate` measures it. X is a cohort with labels; y is nothing, or its labels again.
        """
        self._fitted()
        if not isinstance(X, Cohort) or X.Y is None:
            raise CohortError("a score needs a cohort with labels: build one, and put labels into it")
        _check_labels(X, y)
        if not (X.Y.sum(1) >= 2).any():
            raise CohortError("no visit is labelled with two or more conditions: the held-out tag needs such labels")
        hidden = heldout_tag_draws(X.Y)
        return float(
            heldout_tag_scores(self.heldout_tag, self._rows(X).present, X.Y, hidden, resamples=1).accuracy.value
        )

    def heldout_tag(self, X: Any, confirmed: Bools) -> Floats:
        """(V, m) which one condition is on besides those confirmed: a scorer for `recovery.heldout_tag_scores`."""
        return heldout_tag(self.model_, self._rows(X).present, confirmed)

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
    def classes_(self) -> NDArray[np.str_]:
        """(m,) the conditions, as scikit-learn's classifiers of many labels name their columns."""
        self._fitted()
        return np.array(self.conditions_)

    @property
    def feature_names_in_(self) -> NDArray[np.str_]:
        """(n,) the findings, which are the columns of a matrix or of a frame of findings."""
        self._fitted()
        return np.array(self.vocabulary_.names)

    @property
    def n_features_in_(self) -> int:
        """n."""
        self._fitted()
        return len(self.vocabulary_.names)

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

    def _rows(self, X: Any) -> Rows:
        self._fitted()
        return rows_of(X, self.vocabulary_)

    def _probabilities(self, rows: Rows, confirmed: ArrayLike | str | None, rejected: ArrayLike | str | None) -> Floats:
        return posterior(
            self.model_, rows.present, rows.unobserved, self._mask(confirmed), self._mask(rejected),
            tolerance=self.tolerance, top=0,
        ).marginals  # fmt: skip

    def _mask(self, given: ArrayLike | str | None) -> Bools | Ints | None:
        """A mask (V, m) as it is; names of conditions as their numbers, which hold for all visits."""
        if given is None:
            return None
        values = np.atleast_1d(np.asarray(given))
        if values.ndim == 1 and (values.dtype.kind in "UT" or not values.size):
            return self.condition_indices(values.tolist())
        return values.astype(bool)


def _known(confirmed: Iterable[str], rejected: Iterable[str], present: Iterable[str], absent: Iterable[str]) -> Known:
    return Known(confirmed, rejected, present, absent)  # type: ignore[arg-type]  # which makes tuples of them


def _data(cohort: Cohort) -> dict[str, Any]:
    """What was learned from. No file is named, and no time: the same visits give the same bytes."""
    return {"visits": len(cohort), "labelled": cohort.tally().some}


def _check_labels(cohort: Cohort, y: ArrayLike | None) -> None:
    """CohortError for labels given beside a cohort that has others, or none: nobody would know which were meant."""
    if y is None:
        return
    if cohort.Y is None or not np.array_equal(np.asarray(y, bool), cohort.Y):
        raise CohortError(
            "labels come with the cohort, and y is not what it has: make a cohort with these labels, "
            "dataclasses.replace(cohort, Y=y, known=None)"
        )
