"""Tagger: learns from a cohort, then answers what else a visit might have, why, and what to ask.

It is a classifier of scikit-learn's kind: parameters as given, learned attributes with a trailing underscore, and
`cross_val_score(Tagger(), cohort, cv=5)` works as it stands. Labels come with the cohort.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning

from whatelse.annotators import AnchorSet, NoiseRates
from whatelse.annotators.label_set import LabelSet, check_own_labels
from whatelse.annotators.votes import Votes
from whatelse.cohort import Cohort, Vocabulary
from whatelse.cohort.frames import Columns, FindingRows, framed, rows_of
from whatelse.errors import CohortError, ModelFileError, NotFittedError, QueryError
from whatelse.explanations import UNCALIBRATED, Explanation, Question, Suggestions
from whatelse.learning.learners import DEFAULT, RENAMED, Progress, learn
from whatelse.learning.rates import ASSUMED, GIVEN, rates_of
from whatelse.learning.shipped import NAMES as SHIPPED_MODELS
from whatelse.learning.shipped import ShippedModel, load_shipped, model_for
from whatelse.model_file import file as modelfile
from whatelse.model_file.file import ModelFile
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores
from whatelse.noisyor.inference.heldout import heldout_tag
from whatelse.noisyor.inference.posterior import TOLERANCE, posterior
from whatelse.noisyor.joint import JointModel
from whatelse.reading import Reading
from whatelse.types import Bools, Floats, Ints
from whatelse.visits import Known, Visit

PARAMETERS = ("learner", "settings", "tolerance", "seed")
LISTED = 30  # names that an error lists in full


class Tagger(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What else might the patient have?

    learner    a name in `learning.LEARNERS`; settings: its options, as a dict
    tolerance  the error to certify in every probability
    seed       of whatever a learner draws at random

    After `fit` or `load`: model_ (JointModel), vocabulary_, rates_, conditions_ (classes_ as scikit-learn calls them),
    feature_names_in_, history_, converged_, notes_, and digest_ (of the file; empty until saved). Of models made of the
    knowledge base, else empty: profiles_ (condition -> title, kind, danger), titles_ (finding -> what a person reads),
    wider_ (finding -> wider findings that it implies), ages_ (finding -> ages between which it is asked about).
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
        votes: LabelSet | Sequence[Votes] | None = None,
        sample_weight: ArrayLike | None = None,
        rates: NoiseRates | None = None,
        progress: Progress | None = None,
        weights: ArrayLike | None = None,
        belief: ArrayLike | None = None,
    ) -> Tagger:
        """Learn from a cohort's anchors and from labels or votes, unless `rates` are given.

        Without `rates` the noise rates of anchors come from the labels that there are. Without any label typical rates
        are assumed (`NoiseRates.assumed_of`), and `assumed_` says so. With `rates` the default learner uses no label.

        y              nothing, or the cohort's own labels again, as scikit-learn hands them to its scorers
        votes          votes of annotators, used instead of the cohort's own labels (`read_votes`, `Decisions.labels`)
        sample_weight  (N,) or (N, m) visits that each of the cohort's own labels stands for; None: labelled visits were
                       chosen at random
        rates          noise rates of the anchors, to learn from anchors alone
        weights        old name of `sample_weight`
        belief         (N, m) old form of `votes`: likelihood of each label as a probability under a 50/50 prior

        A learner that stopped before it converged warns (ConvergenceWarning), and `converged_` is False.
        """
        check_own_labels(cohort, y)
        if weights is not None:
            warnings.warn("fit(weights=...) is now fit(sample_weight=...)", FutureWarning, stacklevel=2)
            sample_weight = weights
        if belief is not None:
            warnings.warn("fit(belief=...) is now fit(votes=[...])", FutureWarning, stacklevel=2)
            votes, sample_weight = LabelSet.of_belief(belief, cohort, sample_weight), None
        if votes is not None and sample_weight is not None:
            raise CohortError("votes have weights of their own: give sample_weight as the weight of the votes")
        if rates is not None and (votes is not None or sample_weight is not None):
            raise CohortError(
                "rates are for learning from anchors alone: leave out votes and sample_weight, or leave out rates and "
                "let the labels tell the noise rates"
            )
        soft = None
        if votes is not None:
            labels = votes if isinstance(votes, LabelSet) else LabelSet.of_votes(votes, cohort)
            cohort, sample_weight = labels.on(cohort), labels.sample_weight()
            soft = None if labels.certain else labels.likelihood()
        settings = dict(self.settings or {})
        if rates is None:
            default = RENAMED.get(self.learner, self.learner) == DEFAULT
            rates, source = rates_of(cohort, sample_weight, strict=default)
            if default:
                settings = {"labels": True, "weights": sample_weight, "belief": soft} | settings
        else:
            source = GIVEN
        learned = learn(cohort, rates, self.learner, seed=self.seed, progress=progress, **settings)
        if source == ASSUMED and learned.rates is not None:
            rates = learned.rates
        data = {"visits": len(cohort), "labelled": cohort.tally().some}  # no file, no time: same visits, same bytes
        notes = {"noise_rates": source, "data": data, **learned.notes}
        self._set(learned.model, cohort.vocabulary, rates.named(cohort.conditions), notes, "", learned.history)
        self.converged_ = learned.converged
        if not learned.converged:
            says = f"learner {self.learner!r} stopped before it converged: the model can be used, more steps change it"
            warnings.warn(says, ConvergenceWarning, stacklevel=2)
        return self

    def _set(
        self,
        model: JointModel,
        vocabulary: Vocabulary,
        rates: NoiseRates,
        notes: dict[str, Any],
        digest: str,
        history: Iterable[float] = (),
        shipped: ShippedModel | None = None,
    ) -> Tagger:
        """Set every learned attribute."""
        self.model_, self.vocabulary_, self.conditions_ = model, vocabulary, vocabulary.conditions
        self.rates_, self.notes_, self.digest_ = rates, notes, digest
        self.history_, self.converged_ = tuple(history), True
        self.profiles_, self.titles_, self.wider_, self.ages_ = (
            ({}, {}, {}, {}) if shipped is None else (shipped.profiles, shipped.titles, shipped.wider, shipped.ages)
        )
        return self

    # ---- many visits as arrays

    def predict_proba(
        self, X: Any, confirmed: ArrayLike | str | None = None, rejected: ArrayLike | str | None = None
    ) -> Floats:
        """(V, m) probability of each condition, for many visits.

        X                    visits, a cohort, a data frame of records or of findings, or a matrix (V, n) of 0 and 1
        confirmed, rejected  what is known already: masks (V, m), or names of conditions, which hold for all visits

        Findings of fields that a record lacks are unobserved, in a cohort too; in a matrix what is not present is
        absent.
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
        check_own_labels(X, y)
        if not (X.Y.sum(1) >= 2).any():
            raise CohortError("no visit is labelled with two or more conditions: the held-out tag needs such labels")
        present, hidden = self._rows(X).present, heldout_tag_draws(X.Y)
        return float(heldout_tag_scores(self.heldout_tag, present, X.Y, hidden, resamples=1).accuracy.value)

    def heldout_tag(self, X: Any, confirmed: Bools) -> Floats:
        """(V, m) which one condition is on besides those confirmed: a scorer for `recovery.heldout_tag_scores`."""
        return heldout_tag(self.model_, self._rows(X).present, confirmed)

    # ---- one visit

    def read(self, visit: Visit, tolerance: float | None = None) -> Reading:
        """A visit read once, for as many questions as there are. tolerance: of its answers, if not the tagger's own."""
        self._fitted()
        return Reading(self, visit, tolerance or self.tolerance)

    def suggest(
        self, visit: Visit, confirmed: Iterable[str] = (), rejected: Iterable[str] = (), present: Iterable[str] = (),
        absent: Iterable[str] = (),
    ) -> Suggestions:  # fmt: skip
        """Rank the conditions neither confirmed nor rejected; present and absent are findings that were asked about."""
        return self.read(visit).suggest(_known(confirmed, rejected, present, absent))

    def why(
        self, visit: Visit, condition: str, confirmed: Iterable[str] = (), rejected: Iterable[str] = (),
        present: Iterable[str] = (), absent: Iterable[str] = (), most: int = 12,
    ) -> Explanation:  # fmt: skip
        """The findings for and against one tag in log odds, at most `most` of them, with their places in the record."""
        return self.read(visit).why(_known(confirmed, rejected, present, absent), condition, most)

    def ask(
        self, visit: Visit, confirmed: Iterable[str] = (), rejected: Iterable[str] = (), present: Iterable[str] = (),
        absent: Iterable[str] = (), about: str | None = None, most: int = 5,
    ) -> tuple[Question, ...]:  # fmt: skip
        """The findings not in the record whose answer is expected to tell most, about all open tags or about one."""
        return self.read(visit).ask(_known(confirmed, rejected, present, absent), about, most)

    def settle(self, known: Known) -> Known:
        """The part of what is known that this model has names for: an older one may have had other conditions."""
        conditions, findings = set(self.conditions_), self.vocabulary_.index
        decided = (tuple(c for c in names if c in conditions) for names in (known.confirmed, known.rejected))
        answered = (tuple(f for f in names if f in findings) for names in (known.present, known.absent))
        return Known(*decided, *answered)

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
                learned={name: getattr(self, name) for name in PARAMETERS}
                | {"settings": self.settings or {}, "history": list(self.history_)}
                | {"converged": self.converged_, "notes": self.notes_},
            ),
        )
        return self.digest_

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tagger:
        """Open a model file, or the shipped model by its name: `emergency`, `emergency-23`.

        ModelFileError says what is wrong with a file that cannot be used.
        """
        if str(path) in SHIPPED_MODELS and not os.path.exists(path):
            return cls._shipped(load_shipped(str(path)), str(path))
        file = modelfile.load(path)
        try:
            vocabulary = Vocabulary.from_json(file.vocabulary)
        except CohortError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}; save the model again") from None
        if vocabulary.names != file.findings or vocabulary.conditions != file.conditions:
            raise ModelFileError(f"{os.fspath(path)}: its vocabulary is of other findings than its model")
        learned = file.learned
        tagger = cls(**{name: learned[name] for name in PARAMETERS if name in learned})
        rates = NoiseRates.from_given(file.conditions, **file.noise)
        tagger._set(file.model, vocabulary, rates, learned.get("notes", {}), file.digest, learned.get("history", ()))
        tagger.converged_ = bool(learned.get("converged", True))
        return tagger

    @classmethod
    def from_knowledge(cls, conditions: AnchorSet) -> Tagger:
        """The shipped knowledge about conditions of one's own, found by name, title, code or phrase; nothing learned.

        Conditions that the knowledge base does not know are left out: `conditions_` has the others, in order.
        """
        return cls._shipped(model_for(conditions)[0], "knowledge")

    @classmethod
    def _shipped(cls, shipped: ShippedModel, name: str) -> Tagger:
        notes = {"noise_rates": GIVEN, "knowledge": name}
        return cls("knowledge")._set(
            shipped.model, shipped.vocabulary, shipped.rates, notes, shipped.digest, shipped=shipped
        )

    # ---- from names to arrays

    def condition_indices(self, names: Iterable[str]) -> Ints:
        """Conditions by name -> their numbers; QueryError for a name that is none."""
        return _indices(names, {c: i for i, c in enumerate(self.conditions_)}, "condition")

    def finding_indices(self, names: Iterable[str]) -> Ints:
        """Findings by name -> their numbers; QueryError for a name that is none."""
        return _indices(names, self.vocabulary_.index, "finding")

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; deep: also each setting of the learner, as `settings__NAME`."""
        own: dict[str, Any] = super().get_params(deep)
        return own | ({f"settings__{name}": value for name, value in (self.settings or {}).items()} if deep else {})

    def set_params(self, **params: Any) -> Tagger:
        """Set parameters, and settings of the learner as `settings__NAME`, as a grid search does."""
        prefix = "settings__"
        inner = {name.removeprefix(prefix): params.pop(name) for name in list(params) if name.startswith(prefix)}
        super().set_params(**params)
        if inner:
            self.settings = (self.settings or {}) | inner
        return self

    def _fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError("this Tagger has learned nothing yet: call fit, or Tagger.load")

    def _rows(self, X: Any) -> FindingRows:
        self._fitted()
        return rows_of(X, self.vocabulary_)

    def _probabilities(
        self, rows: FindingRows, confirmed: ArrayLike | str | None, rejected: ArrayLike | str | None
    ) -> Floats:
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


def _indices(names: Iterable[str], index: Mapping[str, int], what: str) -> Ints:
    """The numbers of names; QueryError names the nearest where one is unknown."""
    given = list(names)
    for name in given:
        if name not in index:
            says = f"it knows {', '.join(index)}"
            if len(index) > LISTED:
                near = get_close_matches(name, index, 5)
                says = f"the nearest are {', '.join(near)}" if near else "and no name is like it"
            raise QueryError(f"{name!r} is not a {what} of this model; {says}")
    return np.array([index[name] for name in given], np.int64)
