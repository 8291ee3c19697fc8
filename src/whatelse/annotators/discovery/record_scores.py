"""Scores of candidates that come from the records: the measures of `cooccurrence.py` for a cohort, as log odds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from whatelse.annotators.discovery.cooccurrence import Cooccurrence, alike, cooccurrence
from whatelse.annotators.discovery.phrases import Phrase, PhraseTable
from whatelse.cohort import Cohort
from whatelse.types import Floats

NEIGHBOURS, CONTEXT, INSTEAD, ELSEWHERE, MODEL = 3.0, 1.5, 1.5, 1.5, 1.5  # the most that each source may say
MOST_VISITS = 40_000  # more than these do not make company surer


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


def alike_of(cohort: Cohort, table: PhraseTable) -> Floats:
    """(K, m) `alike` of a cohort's candidates; zeros if the notes were not read."""
    if table.neighbours is None:
        return np.zeros((len(table.phrases), len(cohort.conditions)))
    assert table.anchor_neighbours is not None
    return alike(table.neighbours, table.anchor_neighbours)


def model_says(table: PhraseTable, anchor: NDArray[np.bool_], probability: Floats) -> Floats:
    """(K,) log odds by the mean probability in visits where the anchor is silent."""
    silent = np.asarray(table.has.T @ (~anchor).astype(np.float64))
    mass = np.asarray(table.has.T @ np.where(anchor, 0.0, probability))
    log_odds: Floats = np.clip(0.5 * logit(np.clip((mass + 0.1) / (silent + 1), 0.01, 0.99)), -MODEL, MODEL)
    return log_odds
