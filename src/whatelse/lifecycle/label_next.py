"""Which visits to label next, so that their labels say most about how noisy the anchors are.

In 200 visits at random a condition that one visit in a hundred has turns up twice, and its anchor as often. Labels are
worth more where a condition may be: visits with its anchor tell about ppv = P(Y=1|A=1), and visits without the anchor
that look like the condition all the same tell about fn = P(Y=1|A=0). But a sample chosen by looks is not a fair one. So
visits are drawn at random with *known* chances, high where labels say much, and each labelled visit counts for
1 / chance visits (`NoiseRates.from_sample(weights=…)`).

The chance of visit j. Let p_ij be a model's probability of condition i, t_i = sum of p_ij over visits without the
anchor (its expected missed cases) and n_i the number of visits with it. With chances c_j, the variances of the
estimates of log fn_i and of the log odds of ppv_i are about

    sum_j (1 - A_ij) p_ij / (c_j t_i^2)      and      sum_j A_ij / (c_j n_i^2 v),   v = ppv (1 - ppv)

Let each count as often as it matters, t_i and n_i times. The sum over conditions, for a given number of visits
sum_j c_j, is least for

    c_j  proportional to  g_j = sqrt( sum_i [ (1 - A_ij) p_ij / t_i  +  A_ij / (n_i v) ] )

of which a share UNIFORM is replaced by the same chance for all, because the model may be wrong about where the
conditions are: no visit then stands for more than 1 / UNIFORM times as many as in a sample at random.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whatelse.annotators import NoiseRates
from whatelse.annotators.record_text import NAMES, record_cells
from whatelse.annotators.vote_files import labels_in
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, InputError
from whatelse.io.files import write_whole
from whatelse.io.spreadsheet import escape_formula
from whatelse.learning.baselines import naive_labels
from whatelse.noisyor.inference.posterior import posterior
from whatelse.types import Bools, Floats
from whatelse.visits import Visit

UNIFORM = 0.3
GUESSED_PPV, GUESSED_MISSED = 0.5, 0.5  # before any label: half of the anchors right, one case missed for two fired


@dataclass(frozen=True, eq=False)
class LabelNext:
    """Visits to label, in the order to label them.

    rows     (k,) rows of the cohort
    chance   (k,) the chance that each had to be among the k
    weights  (k,) how much each counts, 1 for one that was as likely to be chosen as in a sample at random

    Weights do not depend on k while no chance reaches 1: stopping early keeps the sample fair, and so does going on.
    """

    rows: NDArray[np.intp]
    chance: Floats
    weights: Floats


def guess_probabilities(cohort: Cohort) -> Floats:
    """(N, m) probability of each condition before anything is known about the anchors: naive labels, guessed rates.

    They need not be calibrated: they steer which visits are looked at, and the weights undo the steering.
    """
    fired = (cohort.A.sum(0) + 0.5) / (len(cohort) + 1)
    odds = GUESSED_MISSED * fired / (1 - fired)
    guess = NoiseRates.from_given(
        cohort.conditions, anchor_rate=fired, ppv=np.full(fired.size, GUESSED_PPV), fn=np.minimum(odds, 0.4)
    )
    model = naive_labels(cohort.X, cohort.anchor_columns, guess)
    return posterior(model, cohort.X, tolerance=0.01, top=0).marginals


def label_next(A: Any, probability: Floats, count: int, *, seed: int = 0, done: ArrayLike = ()) -> LabelNext:
    """Draw `count` visits with chances as above. A is (N, m) bool, probability (N, m); O(N m).

    done  rows labelled already, from a list made with the same seed and probabilities: `count` more are drawn, and
          the list goes on where it stopped

    Visits are ordered by u_j / c_j, with u_j uniform and fixed by the seed (sequential Poisson sampling): each of
    the first k is chosen with a chance of k c_j / sum(c), very nearly, and a longer list begins with the shorter one.
    """
    already = np.unique(np.asarray(done, dtype=np.intp))
    N = len(probability)
    size = count + already.size
    if not 0 < count <= N - already.size:
        raise CohortError(
            f"{count:,} visits to label, and {N - already.size:,} of {N:,} are not labelled yet: ask for no more"
        )
    relative = informativeness(np.asarray(A, bool), probability)
    if not relative.any():  # nothing to go by: any visit is as good as any other
        relative = np.ones(N)
    chance = _chances((1 - UNIFORM) * relative / relative.sum() + UNIFORM / N, size)
    order = np.argsort(np.random.default_rng(seed).random(N) / chance, kind="stable")
    rows = order[~np.isin(order, already)][:count]
    return LabelNext(rows, chance[rows], size / (N * chance[rows]))


def informativeness(A: Bools, probability: Floats) -> Floats:
    """(N,) g_j as above, the best chances up to a factor."""
    missed = np.where(A, 0.0, probability)
    expected = np.maximum(missed.sum(0), 1.0)
    fired = np.maximum(A.sum(0), 1)
    v = GUESSED_PPV * (1 - GUESSED_PPV)
    g: Floats = np.sqrt(missed @ (1 / expected) + A @ (1 / (fired * v)))
    return g


def _chances(share: Floats, size: int) -> Floats:
    """Chances proportional to `share` (N,) that add up to `size`, none above 1: those that would be are certain."""
    chance = np.minimum(share * size, 1.0)
    while (left := size - chance.sum()) > 1e-9 * size and (free := chance < 1).any():
        chance[free] = np.minimum(chance[free] * (1 + left / chance[free].sum()), 1.0)
    return chance


# ---- the sheet

RECORD = "record: "  # begins the columns that quote the record, so that none can be taken for a condition


def write_sheet(path: Path, cohort: Cohort, chosen: LabelNext, records: Mapping[str, Visit] | None = None) -> None:
    """Write the sheet that people fill in: visits, what their records say, and an empty cell for each condition.

    A CSV file in UTF-8 with a byte order mark, so that spreadsheets show its letters right; `vote_files.py` reads it
    back. With the records in it, it must be kept as the records are. A file that is there is replaced only if it is
    such a sheet without a label in it.

    records  the records by id, to decide by; columns that are empty for all of them are left out
    """
    if path.exists() and (count := labels_in(path, cohort.conditions)) != 0:
        what = f"holds {count:,} labels" if count is not None else "is not a list of visits to label"
        raise InputError(
            f"{what}, and would be overwritten: write to another file with --out, and give this one with --labels to "
            "go on after it",
            file=path,
        )
    ids = [str(cohort.ids[row]) for row in chosen.rows]
    shown = [record_cells(records[visit]) if records and visit in records else {} for visit in ids]
    columns = [name for name in NAMES if any(cells.get(name) for cells in shown)]
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(["visit", "chance", "weight", *(RECORD + name for name in columns), *cohort.conditions])
    for visit, cells, chance, weight in zip(ids, shown, chosen.chance, chosen.weights, strict=True):
        empty = [""] * len(cohort.conditions)
        table.writerow(
            [visit, f"{chance:.6g}", f"{weight:.6g}", *(escape_formula(cells.get(c, "")) for c in columns), *empty]
        )
    write_whole(path, out.getvalue().encode("utf-8-sig"))
