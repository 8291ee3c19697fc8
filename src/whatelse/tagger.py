"""Tagger: learns from a cohort, then answers what else a visit might have, why, and what to ask.

It follows scikit-learn's conventions: parameters as given, learned attributes with a trailing underscore.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from whatelse.anchors import NoiseRates
from whatelse.cohort import Cohort
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError, ModelError, ModelFileError, NotFittedError, QueryError
from whatelse.learning.learners import DEFAULT, Progress, learn
from whatelse.model import file as modelfile
from whatelse.model.file import ModelFile
from whatelse.noisyor.ask import rank_findings
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.heldout import heldout_tag
from whatelse.noisyor.params import Bools, Floats, NoisyOr
from whatelse.noisyor.posterior import posterior
from whatelse.noisyor.why import why
from whatelse.suggestions import Because, Place, Question, Reason, Suggestions, Tag
from whatelse.visits import Visit

Ints = NDArray[np.int64]
CANDIDATES = 24  # questions weighed exactly, out of those that look most telling
SMALL = 1e-3  # log odds not worth a line
ASKED_SYSTEMS = ("rfv", "vital", "chronic", "visit")  # coded findings that a person can answer for


class Tagger(BaseEstimator):  # type: ignore[misc]
    """What else might the patient have?

    learner    a name in `learning.LEARNERS`; settings: its options, as a dict
    tolerance  the error to certify in every probability
    seed       of whatever a learner draws at random

    After `fit` or `load`: model_ (NoisyOr), evidence_ (Evidence or None), vocabulary_, rates_, conditions_, history_,
    converged_, digest_ (of the file; empty until saved).
    """

    def __init__(
        self,
        learner: str = DEFAULT,
        *,
        settings: dict[str, Any] | None = None,
        tolerance: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.learner = learner
        self.settings = settings
        self.tolerance = tolerance
        self.seed = seed

    # ---- learning

    def fit(
        self, cohort: Cohort, y: None = None, *, rates: NoiseRates | None = None, progress: Progress | None = None
    ) -> Tagger:
        """Learn from a cohort. Without `rates` they are counted in the cohort's own labels, if every visit has some."""
        if rates is None:
            if cohort.Y is None or not cohort.labelled.all():
                raise CohortError(
                    "how noisy the anchors are is not known: give rates=NoiseRates(...), or labels for a few hundred "
                    "visits ('whatelse fit --labels FILE'; 'whatelse anchors label-next' says which)"
                )
            rates = NoiseRates.from_labels(cohort.A, cohort.Y, cohort.conditions)
        learned = learn(cohort, rates, self.learner, seed=self.seed, progress=progress, **(self.settings or {}))
        self.model_: NoisyOr = learned.model
        self.evidence_: Evidence | None = learned.evidence
        self.vocabulary_: Vocabulary = cohort.vocabulary
        self.rates_: NoiseRates = rates
        self.conditions_: tuple[str, ...] = cohort.conditions
        self.history_: tuple[float, ...] = learned.history
        self.converged_: bool = learned.converged
        self.notes_: dict[str, Any] = learned.notes
        self.digest_: str = ""
        return self

    # ---- many visits as arrays

    def predict_proba(self, X: Cohort | sp.csr_matrix) -> Floats:
        """(V, m) probability of each condition, with nothing confirmed."""
        rows = X.X if isinstance(X, Cohort) else X
        self._fitted()
        return posterior(self.model_, rows, evidence=self._evidence(rows), tolerance=self.tolerance, top=0).marginals

    def predict(self, X: Cohort | sp.csr_matrix) -> Bools:
        """(V, m) conditions that are more likely than not."""
        return self.predict_proba(X) > 0.5

    def heldout_tag(self, X: sp.csr_matrix, confirmed: Bools) -> Floats:
        """(V, m) which one condition is on besides those confirmed: a scorer for `evaluate.heldout_tag_scores`."""
        self._fitted()
        return heldout_tag(self.model_, X, confirmed, evidence=self._evidence(X))

    def suggest_many(self, visits: Sequence[Visit]) -> Floats:
        """(V, m) probabilities of whole records, with nothing confirmed."""
        self._fitted()
        present = [self.vocabulary_.present(visit) for visit in visits]
        unobserved = [self.vocabulary_.unobserved(visit) for visit in visits]
        evidence = self._evidence(present, unobserved)
        return posterior(self.model_, present, unobserved, evidence=evidence, tolerance=self.tolerance, top=0).marginals

    # ---- one visit

    def suggest(
        self,
        visit: Visit,
        confirmed: Iterable[str] = (),
        rejected: Iterable[str] = (),
        present: Iterable[str] = (),
        absent: Iterable[str] = (),
    ) -> Suggestions:
        """Rank the conditions neither confirmed nor rejected; present and absent are findings that were asked about."""
        here, hidden = self._findings(self._record(visit), present, absent)
        yes, no = self._conditions(confirmed), self._conditions(rejected)
        evidence = self._evidence_of(here, hidden)
        found = posterior(self.model_, here, hidden, yes, no, evidence=evidence, tolerance=self.tolerance, top=1)
        bound = float(found.error_bound)
        tags = [
            Tag(c, float(p), bound, float(b))
            for c, p, b in zip(self.conditions_, found.marginals, self.rates_.prior, strict=True)
        ]
        decided = {*yes.tolist(), *no.tolist()}
        open_tags = [tag for i, tag in enumerate(tags) if i not in decided]
        ranked = tuple(sorted(open_tags, key=lambda tag: -tag.probability))
        return Suggestions(ranked, bool(found.certified), bound, self.digest_)

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
        here, hidden = self._findings(self._record(visit), present, absent)
        yes, no = self._conditions(confirmed), self._conditions(rejected)
        (i,) = self._conditions([condition])
        evidence = self._evidence_of(here, hidden)
        lines = why(self.model_, int(i), here, hidden, yes, no, evidence=evidence)
        brought = lines.findings + self._evidence_lines(here, hidden)[i]
        shown = [j for j in np.argsort(-np.abs(brought))[:most].tolist() if abs(brought[j]) > SMALL]
        places: dict[int, list[Place]] = {}
        for found in self.vocabulary_.find(visit):
            places.setdefault(found.finding, []).append(Place(found.field, found.start, found.end))
        is_here = set(here.tolist())
        names = self.vocabulary_.names
        reasons = tuple(Reason(names[j], float(brought[j]), j in is_here, tuple(places.get(j, ()))) for j in shown)
        others = {c: float(v) for c, v in zip(self.conditions_, lines.coupling, strict=True) if abs(v) > SMALL}
        moved = {self.conditions_[k]: float(lines.confirmed[k]) for k in yes.tolist()}
        listed = lines.prior + sum(r.log_odds for r in reasons) + sum(others.values())
        return Because(condition, lines.log_odds, lines.prior, reasons, others, lines.log_odds - listed, moved)

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
        """The findings not in the record whose answer is expected to tell most, about all open tags or about one.

        Candidates are words of the notes that a person can be asked about. The most telling by a first estimate are
        weighed exactly: information is what yes or no is expected to tell of each tag, summed over tags, in bits.
        """
        present, absent = list(present), list(absent)
        record = self._record(visit)
        here, hidden = self._findings(record, present, absent)
        yes, no = self._conditions(confirmed), self._conditions(rejected)
        now = posterior(
            self.model_, here, hidden, yes, no, evidence=self._evidence_of(here, hidden), tolerance=1e-3, top=200
        )
        answered = self._names([*present, *absent])
        candidates = np.setdiff1d(self._askable, np.concatenate([here, answered]))
        if not candidates.size:
            return ()
        chance, first = self._first_estimate(now.explanations, now.probabilities, now.marginals, candidates)
        best = np.argsort(-first)[:CANDIDATES]
        candidates, chance = candidates[best], chance[best]
        names = [self.vocabulary_.names[j] for j in candidates]
        answers = [self._findings(record, [*present, name], absent) for name in names]
        answers += [self._findings(record, present, [*absent, name]) for name in names]
        tries_here, tries_hidden = map(list, zip(*answers, strict=True))
        after = posterior(
            self.model_, tries_here, tries_hidden, yes, no, evidence=self._evidence(tries_here, tries_hidden),
            tolerance=1e-3, top=0,
        ).marginals.reshape(2, len(candidates), -1)  # fmt: skip
        # among visits whose notes say yes or no, where notes say no
        denied = np.array([self.vocabulary_.index.get(f"neg:{name}", -1) for name in names])
        said_no = np.where(denied >= 0, self._chance(now.explanations, now.probabilities, denied), 1 - chance)
        shares = np.stack([chance, said_no]) / (chance + said_no)
        mixed = (shares[:, :, None] * after).sum(0)
        gain = shares[:, :, None] * _divergence(after, mixed)
        watched = gain if about is None else gain[:, :, self._conditions([about])]
        information = watched.sum((0, 2))
        questions = []
        for k in np.argsort(-information)[:most].tolist():
            i = int(np.argmax(gain[:, k].sum(0))) if about is None else self.conditions_.index(about)
            questions.append(
                Question(
                    names[k],
                    float(information[k]),
                    self.conditions_[i],
                    float(now.marginals[i]),
                    float(after[0, k, i]),
                    float(after[1, k, i]),
                )
            )
        return tuple(questions)

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write a model file; returns its digest."""
        self._fitted()
        extra = (
            {} if self.evidence_ is None else {f"evidence_{k}": np.asarray(v) for k, v in vars(self.evidence_).items()}
        )
        rates = self.rates_
        self.digest_ = modelfile.save(
            path,
            ModelFile(
                noisyor=self.model_,
                conditions=self.conditions_,
                findings=self.vocabulary_.names,
                anchor_columns=self.vocabulary_.anchor_columns.astype(np.int64),
                noise={"prior": rates.prior, "sensitivity": rates.sensitivity, "false_positive": rates.false_positive},
                vocabulary=self.vocabulary_.to_json(),
                learned={
                    "learner": self.learner,
                    "settings": self.settings or {},
                    "seed": self.seed,
                    "history": list(self.history_),
                    "converged": self.converged_,
                    "notes": self.notes_,
                },
                extra=extra,
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
        tagger = cls(learned.get("learner", DEFAULT), settings=learned.get("settings"), seed=learned.get("seed", 0))
        tagger.model_ = file.noisyor
        parts = {k.removeprefix("evidence_"): v for k, v in file.extra.items() if k.startswith("evidence_")}
        tagger.evidence_ = _evidence(path, parts) if parts else None
        tagger.vocabulary_ = vocabulary
        tagger.rates_ = NoiseRates.from_given(file.conditions, **file.noise)
        tagger.conditions_ = file.conditions
        tagger.history_ = tuple(learned.get("history", ()))
        tagger.converged_ = bool(learned.get("converged", True))
        tagger.notes_ = learned.get("notes", {})
        tagger.digest_ = file.digest
        return tagger

    # ---- from names to arrays

    def _fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError("this Tagger has learned nothing yet: call fit, or Tagger.load")

    def _conditions(self, names: Iterable[str]) -> Ints:
        index = {c: i for i, c in enumerate(self.conditions_)}
        out = []
        for name in names:
            if name not in index:
                raise QueryError(f"{name!r} is not a condition of this model; it knows {', '.join(self.conditions_)}")
            out.append(index[name])
        return np.array(out, np.int64)

    def _names(self, findings: Iterable[str]) -> Ints:
        out = []
        for name in findings:
            if name not in self.vocabulary_.index:
                raise QueryError(f"{name!r} is not a finding of this model")
            out.append(self.vocabulary_.index[name])
        return np.array(out, np.int64)

    def _record(self, visit: Visit) -> tuple[Ints, Ints]:
        """Indices that the record has, and indices that nobody looked for."""
        self._fitted()
        return self.vocabulary_.present(visit).astype(np.int64), self.vocabulary_.unobserved(visit).astype(np.int64)

    def _findings(self, record: tuple[Ints, Ints], present: Iterable[str], absent: Iterable[str]) -> tuple[Ints, Ints]:
        """The record with answers to questions: indices present, and indices that nobody looked for.

        A "no" is a pertinent negative: where notes say so often enough, the model knows it as the finding `neg:` word.
        """
        yes, no = self._names(present), self._names(absent)
        denied = [index for name in absent if (index := self.vocabulary_.index.get(f"neg:{name}")) is not None]
        said = np.union1d(record[0], np.concatenate([yes, np.array(denied, np.int64)]))
        here = np.setdiff1d(said, no).astype(np.int64)
        hidden = np.setdiff1d(record[1], np.concatenate([here, no])).astype(np.int64)
        return here, hidden

    def _evidence(self, present: Any, unobserved: Any = None) -> Floats | None:
        return None if self.evidence_ is None else self.evidence_(present, unobserved)

    def _evidence_of(self, here: Ints, hidden: Ints) -> Floats | None:
        return None if self.evidence_ is None else self.evidence_.lines(here, hidden).sum(1)

    def _evidence_lines(self, here: Ints, hidden: Ints) -> Floats:
        """(m, n) what each finding contributes to the evidence."""
        if self.evidence_ is None:
            return np.zeros((self.model_.m, self.model_.n))
        return self.evidence_.lines(here, hidden)

    # ---- questions

    @cached_property
    def _askable(self) -> Ints:
        """Findings a person can be asked about: words that notes also deny (`neg:` word), and coded observations.

        A word that is denied at least once for every 20 times it is said is a symptom or a sign; "patient" is not.
        """
        names, counts, index = self.vocabulary_.names, self.vocabulary_.counts, self.vocabulary_.index
        asked = [
            j
            for j, name in enumerate(names)
            if ((k := index.get(f"neg:{name}")) is not None and 20 * counts[k] >= counts[j])
            or name.partition(":")[0] in ASKED_SYSTEMS
        ]
        return np.array(asked, np.int64)

    def _chance(self, states: Bools, weights: Floats, findings: Ints) -> Floats:
        """Probability (c,) that each finding is present, given joint states (S, m) and their weights (S,)."""
        model = self.model_
        with np.errstate(divide="ignore"):
            kept = np.maximum(np.log(model.fail[:, findings]), -700.0)
        quiet = np.exp(states.astype(float) @ kept) * (1 - model.leak[findings])
        chance: Floats = 1 - weights @ quiet / weights.sum()
        return chance

    def _first_estimate(
        self, states: Bools, weights: Floats, marginals: Floats, candidates: Ints
    ) -> tuple[Floats, Floats]:
        """Chance that each candidate is present, and roughly what it would tell: the noisy-or's information, and for
        the evidence half its variance in log odds times that of the tag."""
        ranked = rank_findings(self.model_, states, weights, candidates)
        order = np.argsort(ranked.findings)
        chance, told = ranked.chance[order], ranked.information[order]
        if self.evidence_ is not None:
            spread = marginals * (1 - marginals)
            told = told + 0.5 * chance * (1 - chance) * (spread @ self.evidence_.weight[:, candidates] ** 2)
        return chance, told


def _evidence(path: str | os.PathLike[str], parts: dict[str, NDArray[Any]]) -> Evidence:
    try:
        return Evidence(**parts)
    except (ModelError, TypeError):
        raise ModelFileError(
            f"{os.fspath(path)}: its evidence is damaged or incomplete; save the model again"
        ) from None


def _divergence(after: Floats, before: Floats) -> Floats:
    """KL(after || before) of each Bernoulli probability, in bits."""
    a, b = np.clip(after, 1e-12, 1 - 1e-12), np.clip(before, 1e-12, 1 - 1e-12)
    gain: Floats = (a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))) / np.log(2)
    return gain
