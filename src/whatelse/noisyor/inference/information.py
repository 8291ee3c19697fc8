"""What an answer would tell: the expected information of findings that were not looked for yet.

Finding j is present with probability q_j = sum_s pi_s P(X_j = 1 | s), s the joint states of the posterior and pi_s
their probabilities. Its expected information, in nats, is how far the answer is expected to move the posterior:

    q_j KL(posterior if present || posterior) + (1 - q_j) KL(posterior if absent || posterior)

over all conditions jointly. For findings of weight one this is the mutual information I(Y; X_j | x). A finding with a
weight w below one moves the posterior by its likelihood to the power w, here as in `posterior`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from whatelse.noisyor.inference.states import with_cause
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints


def expected_information(
    model: NoisyOr, states: Bools, probabilities: Floats, candidates: Ints
) -> tuple[Floats, Floats]:
    """(chance that each of c candidates is present, its expected information), from S states (S, m). O(S c)."""
    pi = probabilities / probabilities.sum()
    sums = np.zeros((5, candidates.size))
    fail = np.ascontiguousarray(model.fail[:, candidates])
    _add_states(states, pi, fail, model.leak[candidates], model.weight[candidates], sums)
    chance, *answers = sums[0], sums[1:3], sums[3:5]
    information = np.zeros(candidates.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        for likely, (total, weighed) in zip((chance, 1.0 - chance), answers, strict=True):
            # KL of pi L / Z from pi is sum_s (pi L / Z) log L - log Z
            gain = weighed / total - np.log(total)
            information += np.where(total > 0, likely * gain, 0.0)  # an answer that cannot come tells nothing
    return chance, np.maximum(information, 0.0)


@njit(cache=True, nogil=True)
def _add_states(states: Bools, pi: Floats, fail: Floats, leak: Floats, weight: Floats, sums: Floats) -> None:
    """Add up over states, for each finding: sums[0] pi p, then for L = p^w (present) and L = (1 - p)^w (absent)
    sums[1], sums[3]: pi L;  sums[2], sums[4]: pi L log L.
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
            for first, likelihood in ((1, p[j]), (3, quiet[j])):
                if weight[j] != 1.0:
                    likelihood = likelihood ** weight[j]
                sums[first, j] += pi[s] * likelihood
                if likelihood > 0.0:
                    sums[first + 1, j] += pi[s] * likelihood * np.log(likelihood)
