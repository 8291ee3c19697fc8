"""The posterior over conditions given a visit, with a certified error: `posterior`.

Every question (`posterior`, `enumerate_posterior`, `gibbs`, `why`, `heldout_tag`) is laid out here as a Query.
A JointModel brings its own evidence.

Where not every look is real (`evidence.py`), a question about conditions is put to a model of looks: a confirmed
condition has its look, and a rejected one adds log(1 - real) to the log odds of its look: that of something else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from whatelse.errors import QueryError
from whatelse.noisyor.inference.query import CONFIRMED, FREE, REJECTED, Query, checked, is_one
from whatelse.noisyor.inference.solver import Posterior, solve
from whatelse.noisyor.joint import JointModel, Model
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Floats

TOLERANCE = 1e-3
BUDGET = 50_000
CLOSE = np.log(4.0)  # log odds from which on company is cause or complication: not explained away


def posterior(
    model: Model,
    present: Any,
    unobserved: Any = None,
    confirmed: Any = None,
    rejected: Any = None,
    evidence: ArrayLike | None = None,
    *,
    tolerance: float = TOLERANCE,
    budget: int = BUDGET,
    top: int = 5,
    threads: int | None = None,
) -> Posterior:
    """P(conditions | visit), for one visit or many, to within a certified error.

    model       a joint model, which brings its own evidence, or a noisy-or
    present     one visit: indices of its findings (or a mask of bool, (n,)); or many: a list of those, CSR (V, n) or a
                0/1 array (V, n). Findings neither present nor unobserved are absent.
    unobserved  findings left out of the product; confirmed, rejected: conditions. In the same forms; for many visits a
                single list of indices holds for all of them.
    evidence    (m,) or (V, m): log odds added to those of the prior, instead of the model's own
    tolerance   the error to certify; budget: the states to weigh per visit before giving up on that
    top         how many explanations
    threads     that work on many visits; None: one a core

    Cost: O(present findings) per state weighed; visits run on all cores.
    """
    if not 0.0 < tolerance < 1.0:
        raise QueryError(f"tolerance is {tolerance}, needs to be between 0 and 1")
    if budget < 1 or top < 0:
        raise QueryError(f"budget is {budget} and top is {top}; needs at least 1 state and 0 explanations")
    noisyor, query = lay_out(model, present, unobserved, confirmed, rejected, evidence)
    return solve(noisyor, query, tolerance, budget, top, threads)


def lay_out(
    model: Model, present: Any, unobserved: Any = None, confirmed: Any = None, rejected: Any = None,
    evidence: ArrayLike | None = None,
) -> tuple[NoisyOr, Query]:  # fmt: skip
    """Check a question and lay it out; returns the noisy-or it is put to as well. Arguments as in `posterior`."""
    if not isinstance(model, JointModel):
        return model, checked(model, present, unobserved, confirmed, rejected, evidence)
    if evidence is None and not model.evidence.says_nothing:
        evidence = _own_evidence(model, present, unobserved)
    query = checked(model.noisyor, present, unobserved, confirmed, rejected, evidence)
    return model.noisyor, _of_looks(_with_company(model, query), model.evidence.real)


def _with_company(model: JointModel, query: Query) -> Query:
    """Confirmed conditions bring their company; what their names brought others for it is taken back.

    Close company (CLOSE or more: a cause or complication) is not explained away. What log odds of f fall because a
    confirmed c explains its findings is given back. Of the company L that c brings f, log(1 + p (e^L - 1)) is taken
    back, p the probability of c before, for what was likely is no news; CLOSE is left.
    """
    yes = query.status == CONFIRMED
    if not (yes.any() and model.evidence.keeps_company):
        return query
    some = np.flatnonzero(yes.any(0))
    company = model.evidence.company[:, some]
    anchors, (start, index) = model.evidence.anchor_columns[some], query.present
    said = sparse.csr_array((np.ones(index.size, bool), index, start), shape=(query.size, model.n))
    named = yes[:, some] & said[:, anchors].toarray()
    added = yes[:, some] @ company.T - named @ model.evidence.weight[:, anchors].T
    unknown = replace(query, status=np.where(yes, FREE, query.status).astype(np.int8))
    before, after = (
        np.atleast_2d(solve(model.noisyor, asked, TOLERANCE, BUDGET, top=0).marginals) for asked in (unknown, query)
    )
    close = (yes[:, some].astype(float) @ (company >= CLOSE).T) > 0
    added += np.where(close, np.maximum(_log_odds(before) - _log_odds(after), 0.0), 0.0)
    for k, c in enumerate(some.tolist()):
        brought = np.maximum(company[:, k], CLOSE)
        likely = np.log1p(before[:, [c]] * np.expm1(brought))
        added -= yes[:, [c]] * np.minimum(likely, brought - CLOSE)
    return replace(query, evidence=query.evidence + added)


def _log_odds(probability: Floats) -> Floats:
    sure: Floats = np.clip(probability, 1e-9, 1 - 1e-9)
    return np.asarray(np.log(sure) - np.log1p(-sure))


def _of_looks(query: Query, real: Floats) -> Query:
    """The same question about looks (`evidence.py`); real (m,): share of each condition's looks that are real."""
    if (real == 1).all():
        return query
    no = (query.status == REJECTED) & (real < 1)
    with np.errstate(divide="ignore"):
        unreal = np.log1p(-real)
    return replace(
        query,
        status=np.where(no, FREE, query.status).astype(np.int8),
        evidence=query.evidence + np.where(no, unreal, 0.0),
        share=np.where(query.status == FREE, real, query.share),
    )


def _own_evidence(model: JointModel, present: Any, unobserved: Any) -> Floats:
    """(V, m), or (m,) of a single visit: what a joint model's evidence says of the visits asked about."""
    if not is_one(present):
        shared = unobserved is not None and is_one(unobserved)
        return model.evidence(present, [unobserved] * len(present) if shared else unobserved)
    own: Floats = model.evidence([present], None if unobserved is None else [unobserved])[0]
    return own
