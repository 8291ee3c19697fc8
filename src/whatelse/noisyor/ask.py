"""What would help: which findings, were they asked for, would tell most about the conditions.

A candidate finding j is present with probability q_j = sum_s pi_s P(X_j = 1 | s), s the joint states of the posterior
and pi_s their probabilities. Its expected information, in nats, is how far the answer is expected to move them:

    q_j KL(posterior if present || posterior) + (1 - q_j) KL(posterior if absent || posterior)

over all conditions jointly, or over one of them. For findings of weight one this is the mutual information
I(Y; X_j | x), or I(Y_i; X_j | x). A finding with a weight w below one moves the posterior by its likelihood to the
power w, here as in `posterior`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from whatelse.errors import QueryError
from whatelse.noisyor.likelihood import Ints, as_indices
from whatelse.noisyor.params import Bools, Floats, NoisyOr
from whatelse.noisyor.posterior import posterior
from whatelse.noisyor.states import with_cause

STATES = 1000  # joint states looked at, at most
MASS = 1 - 1e-5  # of the posterior: less probable states change no ranking


@dataclass(frozen=True, eq=False)
class Help:
    """Candidate findings with what asking for each would bring; all arrays (c,), in the order of `findings`.

    findings     indices, most information first
    information  expected, in nats (divide by log 2 for bits)
    chance       probability that the finding is present
    if_present   P(condition) after the answer; None unless one condition was asked about
    if_absent    likewise
    """

    findings: Ints
    information: Floats
    chance: Floats
    if_present: Floats | None
    if_absent: Floats | None


def what_would_help(
    model: NoisyOr,
    present: Any,
    unobserved: Any = None,
    confirmed: Any = None,
    rejected: Any = None,
    evidence: ArrayLike | None = None,
    *,
    condition: int | None = None,
    candidates: Any = None,
) -> Help:
    """Rank the unobserved findings of one visit (or the candidates among them) by their expected information.

    Arguments as in `posterior`. A finding not asked for yet must be unobserved: an absent one was looked for.
    """
    if condition is not None and not 0 <= condition < model.m:
        raise QueryError(f"condition {condition} is not in this model, which has 0 to {model.m - 1}")
    hidden = as_indices([] if unobserved is None else unobserved, model.n, "unobserved")
    asked = hidden if candidates is None else as_indices(candidates, model.n, "candidates")
    if missing := np.setdiff1d(asked, hidden).tolist():
        raise QueryError(f"finding {missing[0]} is a candidate but already known; list it as unobserved to rank it")
    found = posterior(model, present, unobserved, confirmed, rejected, None, evidence, tolerance=1e-4, top=STATES)
    if found.marginals.ndim != 1:
        raise QueryError("what would help is asked for one visit at a time; give one visit's indices")
    if np.isneginf(found.log_evidence):
        raise QueryError(f"finding {found.impossible} cannot be as it is in any state; list it as unobserved")
    enough = int(np.searchsorted(np.cumsum(found.probabilities), MASS * found.probabilities.sum())) + 1
    return rank_findings(model, found.explanations[:enough], found.probabilities[:enough], asked, condition)


def rank_findings(
    model: NoisyOr, states: Bools, probabilities: Floats, candidates: Ints, condition: int | None = None
) -> Help:
    """Expected information of c candidates from S states (S, m) and their probabilities (S,); O(S c) and no search."""
    pi = probabilities / probabilities.sum()
    on = np.zeros(len(states), bool) if condition is None else np.ascontiguousarray(states[:, condition])
    sums = np.zeros((7, candidates.size))
    fail = np.ascontiguousarray(model.fail[:, candidates])
    _add_states(states, pi, on, condition is None, fail, model.leak[candidates], model.weight[candidates], sums)
    chance, *answers = sums[0], sums[1:4], sums[4:7]
    before = float(pi @ on)
    information, moved = np.zeros(candidates.size), []
    with np.errstate(divide="ignore", invalid="ignore"):
        for likely, (total, weighed, of_condition) in zip((chance, 1.0 - chance), answers, strict=True):
            if condition is None:
                # KL of pi L / Z from pi is sum_s (pi L / Z) log L - log Z
                gain = weighed / total - np.log(total)
            else:
                after = np.where(total > 0, np.minimum(of_condition / total, 1.0), before)
                gain = rel_entr(after, before) + rel_entr(1 - after, 1 - before)
                moved.append(after)
            information += np.where(total > 0, likely * gain, 0.0)  # an answer that cannot come tells nothing
    order = np.argsort(-information, kind="stable")
    yes, no = (None, None) if condition is None else (moved[0][order], moved[1][order])
    return Help(candidates[order], np.maximum(information, 0.0)[order], chance[order], yes, no)


@njit(cache=True, nogil=True)
def _add_states(
    states: Bools, pi: Floats, condition: Bools, jointly: bool, fail: Floats, leak: Floats, weight: Floats, sums: Floats
) -> None:
    """Add up over states, for each finding: sums[0] pi p, then for L = p^w (present) and L = (1 - p)^w (absent)
    sums[1], sums[4]: pi L;  sums[2], sums[5]: pi L log L, if jointly;  sums[3], sums[6]: pi L with the condition on.
    """
    c = leak.size
    p, quiet = np.empty(c), np.empty(c)
    for s in range(len(states)):
        p[:], quiet[:] = leak, 1.0 - leak
        for i in np.flatnonzero(states[s]):
            for j in range(c):
                p[j] = with_cause(p[j], fail[i, j])
                quiet[j] *= fail[i, j]
        for j in range(c):
            sums[0, j] += pi[s] * p[j]
            for first, likelihood in ((1, p[j]), (4, quiet[j])):
                if weight[j] != 1.0:
                    likelihood = likelihood ** weight[j]
                sums[first, j] += pi[s] * likelihood
                if jointly and likelihood > 0.0:
                    sums[first + 1, j] += pi[s] * likelihood * np.log(likelihood)
                if condition[s]:
                    sums[first + 2, j] += pi[s] * likelihood
