"""Co-occurrence: do the visits and the neighbouring words of a candidate look like those of the anchor?

What stands in the place of an anchor ("h/a" for "headache") is found in the same visits but for the anchor, between the
same words, and almost never beside the anchor. Three measures, for K candidates and m conditions:

share      (K, m) the share of a candidate's visits that look like the condition. A classifier learns to tell the anchor
           from all other findings; with the candidate's own words taken out, it gives each visit v the ratio
           r_v = P(rest of v | anchor) / P(rest of v | no anchor). The share q maximises  sum_v log(q r_v + 1 - q),
           by EM:  q <- mean over v of q r_v / (q r_v + 1 - q)
expected   (K, m) visits among the candidate's that should have the anchor, by the same classifier. Where far fewer do,
           the candidate stands instead of the anchor
alike      (K, m) cosine of the words just before and just after the candidate with those before and after the anchor,
           weighted by positive pointwise mutual information

`records_say` turns the measures into log odds for one condition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from whatelse.annotators.discovery.phrases import Phrase, PhraseTable
from whatelse.cohort import Cohort
from whatelse.types import Bools, Floats, Indices

STEPS = 12  # of EM for the share
PULL = (3.0, 0.05)  # visits worth of doubt, and the share they have
FEWEST = 5  # visits with the anchor, below which its company is not known
SMOOTH = 20  # mentions that make a candidate's neighbours half believed
NEIGHBOURS, CONTEXT, INSTEAD, ELSEWHERE, MODEL = 3.0, 1.5, 1.5, 1.5, 1.5  # the most that each source may say
MOST_VISITS = 40_000  # more visits do not make co-occurrence surer


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """(K, m) each, as above; `fires` is the number of a candidate's visits that have the anchor."""

    share: Floats
    expected: Floats
    fires: Floats


def cooccurrence(X: csr_matrix, A: Bools, rest: Indices, has: csc_matrix, own: Indices) -> Cooccurrence:
    """The first two measures. O(m (fitting + STEPS nnz(has))).

    X     (N, n) findings; rest: (n',) the columns that are not anchors; A (N, m) the anchors
    has   (N, K) candidates; own (K, c): columns of X made of a candidate's own words, -1 where there are fewer
    """
    N, m = A.shape
    K = has.shape[1]
    counts = np.diff(has.indptr)
    visit, who = has.indices, np.repeat(np.arange(K), counts)
    dense = np.zeros((N, X.shape[1] + 1), dtype=bool)  # the last column is what -1 points to: never there
    dense[:, :-1] = X.toarray()
    own_here = [(own[who, c], dense[visit, own[who, c]]) for c in range(own.shape[1]) if (own[:, c] >= 0).any()]
    share, expected, fires = np.zeros((K, m)), np.zeros((K, m)), np.zeros((K, m))
    for i in range(m):
        fires[:, i] = np.bincount(who, A[visit, i], K)
        if not FEWEST <= A[:, i].sum() <= N - FEWEST:
            continue
        others = X.shape[1] - m + np.delete(np.arange(m), i)  # anchors are the last m columns
        inputs = np.concatenate([rest, others])
        classifier = LogisticRegression(C=0.1, max_iter=300).fit(X[:, inputs].astype(np.float64), A[:, i])
        weight = np.zeros(X.shape[1] + 1)
        weight[inputs] = classifier.coef_[0]
        score = (X @ weight[:-1] + classifier.intercept_[0])[visit]
        for column, there in own_here:
            score = score - weight[column] * there
        expected[:, i] = np.bincount(who, expit(score), K)
        share[:, i] = mixture_share(np.exp(np.clip(score - logit(A[:, i].mean()), -8, 8)), who, counts)
    return Cooccurrence(share, expected, fires)


def mixture_share(ratio: Floats, who: Indices, counts: Indices) -> Floats:
    """(K,) the share q of each candidate's visits, from `ratio` r of each pair of a visit and a candidate `who`."""
    doubt, low = PULL
    q = np.full(counts.size, 0.3)
    for _ in range(STEPS):
        here = q[who] * ratio
        q = (np.bincount(who, here / (here + 1 - q[who]), counts.size) + doubt * low) / (counts + doubt)
    return q


def alike(neighbours: csr_matrix, anchors: csr_matrix) -> Floats:
    """(K, m) the third measure. neighbours (K, W) counts of words around candidates; anchors (m, W) around anchors.

    Shrunk by sqrt(c / (c + SMOOTH)) where a candidate was seen c times.
    """
    seen = np.asarray(neighbours.sum(1), dtype=np.float64).ravel() / 2
    column = np.asarray(neighbours.sum(0), dtype=np.float64).ravel()
    similar: Floats = (normalize(_ppmi(neighbours, column)) @ normalize(_ppmi(anchors, column)).T).toarray()
    return similar * np.sqrt(seen / (seen + SMOOTH))[:, None]


def _ppmi(counts: csr_matrix, column: Floats) -> csr_matrix:
    """log(n(row, word) n / (n(row) n(word))) where it is positive and the pair was seen twice; else 0."""
    pairs = counts.astype(np.float64).tocoo()
    row = np.maximum(np.asarray(counts.sum(1), dtype=np.float64).ravel(), 1)
    lift = pairs.data * column.sum() / (row[pairs.row] * np.maximum(column[pairs.col], 1))
    value = np.where(pairs.data >= 2, np.maximum(np.log(np.maximum(lift, 1e-12)), 0), 0.0)
    return csr_matrix((value, (pairs.row, pairs.col)), shape=counts.shape)


# ---- log odds for one condition


def records_say(i: int, table: PhraseTable, known: Cooccurrence, similar: Floats) -> dict[str, Floats]:
    """Source -> (K,) log odds that it adds for condition i; `suggest.py` explains the sources."""
    neighbours = np.minimum(6 * similar, NEIGHBOURS)
    share = np.clip(known.share, 0.01, 0.99)
    context = np.clip(0.4 * logit(share), -CONTEXT, CONTEXT)
    instead = -0.7 * np.log((known.fires[:, i] + 1) / (known.expected[:, i] + 1))
    both = neighbours + context
    rivals = np.delete(both, i, axis=1)
    better = np.maximum(rivals.max(1) - both[:, i], 0) if rivals.shape[1] else np.zeros(len(both))
    return {
        "neighbours": neighbours[:, i],
        "context": context[:, i],
        "instead": np.clip(instead, 0, INSTEAD) * (context[:, i] > 0),
        "beside": 3 * known.fires[:, i] / (table.counts + 3),
        "elsewhere": -np.minimum(better, ELSEWHERE),
    }


def cooccurrence_of(cohort: Cohort, table: PhraseTable) -> Cooccurrence:
    """`cooccurrence` of a cohort's candidates, on at most MOST_VISITS visits; counts are scaled to all visits."""
    rows = np.arange(len(cohort))
    if len(rows) > MOST_VISITS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_VISITS, replace=False))
    some = cohort.rows(rows)
    index = cohort.vocabulary.index
    own = np.full((len(table.phrases), 6), -1, dtype=np.intp)
    for k, phrase in enumerate(table.phrases):
        for c, name in enumerate(_finding_names(phrase)):
            own[k, c] = index.get(name, -1)
    rest = np.arange(cohort.X.shape[1] - len(cohort.conditions), dtype=np.intp)
    found = cooccurrence(some.X, some.A, rest, table.has[rows].tocsc(), own)
    scale = len(cohort) / len(rows)
    return Cooccurrence(found.share, found.expected * scale, found.fires * scale)


def _finding_names(phrase: Phrase) -> list[str]:
    """The findings of a cohort that are made of a candidate."""
    if phrase.key == "coded":
        return [f"{phrase.system}:{phrase.label or phrase.phrase}"]
    if phrase.key != "notes":
        return [f"rx:{phrase.phrase}", f"hx:{phrase.phrase}"]
    words = phrase.phrase.split()
    return ["_".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1)]


def model_says(table: PhraseTable, anchor: Bools, probability: Floats) -> Floats:
    """(K,) log odds by the mean probability in visits where the anchor is silent."""
    silent = np.asarray(table.has.T @ (~anchor).astype(np.float64))
    mass = np.asarray(table.has.T @ np.where(anchor, 0.0, probability))
    log_odds: Floats = np.clip(0.5 * logit(np.clip((mass + 0.1) / (silent + 1), 0.01, 0.99)), -MODEL, MODEL)
    return log_odds
