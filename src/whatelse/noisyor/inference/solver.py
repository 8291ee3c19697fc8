"""The solver: answers a Query (`query.py`) with a certified error.

Few conditions, or couplings: best-first search over states (`states.py`; `pairwise.py` where conditions are
coupled and no present finding bears on them). The states visited carry mass Z, those left out at most R. A marginal is
N / Z where the exact one is (N + r) / (Z + r') with 0 <= r <= r' <= R, so it is wrong by at most R / (Z + R). Many
conditions without couplings: branch and bound (`branching.py`), with an interval for each marginal. `error_bound` is
the largest error, plus what rounding can do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from whatelse.noisyor.inference.branching import branch, lay_out_problem, merge_single_causes, merged_marginal
from whatelse.noisyor.inference.components import combine_best, label_parts
from whatelse.noisyor.inference.pairwise import sum_pairwise
from whatelse.noisyor.inference.query import CONFIRMED, POSSIBLE, REJECTED, Query, reduce_visit
from whatelse.noisyor.inference.states import Tree, search
from whatelse.noisyor.likelihood import Rows, Tables, tables
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

MANY = 64  # conditions beyond which visits are solved by branch and bound, if nothing is coupled
NODES = 1000  # of a branch and bound, at most
LEAST_LEAK = 1e-12  # branch and bound divides by it
EPSILON = 2.0**-52
VISITS_PER_THREAD = 32  # below this a thread costs more than it brings


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the model believes about one visit, or about V of them: then every array has V in front.

    marginals      (m,)  P(Y_i = 1 | question): 1 for confirmed, 0 for rejected conditions
    error_bound    ()    no marginal, and no probability of an explanation, is further than this from the exact one
    certified      ()    bool: error_bound is within the tolerance asked for; if not, the budget was spent first
    log_evidence   ()    log P(x, confirmed on, rejected off): within 2.2 tolerances where certified;
                         confirmed looks are not yet taken to be real, which would add log `real` of each
    explanations   (top, m)  bool: the most probable joint states, best first; of looks, where not every look is real
    probabilities  (top,)    their posterior probabilities; 0 where there are fewer states
    states         ()    how many states were weighed
    impossible     ()    -1, or why log_evidence is -inf: the index of a finding that cannot be as it is in any state
                         allowed. The marginals are then the priors and error_bound is 1.
    """

    marginals: Floats
    error_bound: Floats
    certified: Bools
    log_evidence: Floats
    explanations: Bools
    probabilities: Floats
    states: Ints
    impossible: Ints


def solve(
    model: NoisyOr, query: Query, tolerance: float, budget: int, top: int, threads: int | None = None
) -> Posterior:
    """Answer a question already laid out."""
    out = empty(model, query, top)
    t = tables(model)
    branching = model.m > MANY and not t.coupled and t.least_leak >= LEAST_LEAK
    kernel, most = (_solve_by_branching, NODES) if branching else (_solve, budget)

    def run(first: int, end: int) -> None:
        kernel(
            first, end, query.present, query.unobserved, query.status, query.evidence, t, tolerance, most,
            out.marginals, out.error_bound, out.log_evidence, out.explanations, out.probabilities, out.states,
            out.impossible,
        )  # fmt: skip

    by_threads(run, query.size, threads)
    return finish(model, query, out, tolerance)


def by_threads(run: Callable[[int, int], None], visits: int, threads: int | None = None) -> None:
    """Call run(first, end) for every part of `visits`. threads: how many at once; None: one a core."""
    workers = min(visits // VISITS_PER_THREAD, threads or os.cpu_count() or 1)
    if workers < 2:
        run(0, visits)
        return
    # the kernels hold no lock; small parts, as some visits take far longer than others
    cuts = np.linspace(0, visits, 8 * workers + 1).astype(int).tolist()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, cuts[:-1], cuts[1:]))


def empty(model: NoisyOr, query: Query, top: int) -> Posterior:
    """A Posterior of V visits to be filled in."""
    V, m = query.size, model.m
    return Posterior(
        marginals=np.zeros((V, m)),
        error_bound=np.zeros(V),
        certified=np.zeros(V, bool),
        log_evidence=np.full(V, -np.inf),
        explanations=np.zeros((V, top, m), bool),
        probabilities=np.zeros((V, top)),
        states=np.zeros(V, np.int64),
        impossible=np.full(V, POSSIBLE, np.int64),
    )


def finish(model: NoisyOr, query: Query, out: Posterior, tolerance: float) -> Posterior:
    """Set what follows from the rest, and drop the first axis if one visit was asked about."""
    np.less_equal(out.error_bound, tolerance, out=out.certified)
    lost = np.isneginf(out.log_evidence)
    if lost.any():
        status = query.status[lost]
        out.marginals[lost] = np.where(status == CONFIRMED, 1.0, np.where(status == REJECTED, 0.0, model.prior))
        out.error_bound[lost] = 1.0
        out.certified[lost] = False
        out.probabilities[lost] = 0.0
        out.explanations[lost] = False
    out.marginals[...] *= query.share
    if not query.single:
        return out
    return Posterior(**{name: value[0, ...] for name, value in vars(out).items()})


@njit(cache=True, nogil=True)
def _solve(
    first: int, end: int, present: Rows, unobserved: Rows, status: NDArray[np.int8], evidence: Floats, t: Tables,
    tolerance: float, budget: int,
    marginals: Floats, error_bound: Floats, log_evidence: Floats, explanations: Bools, probabilities: Floats,
    states: Ints, impossible: Ints,
) -> None:  # fmt: skip
    """Visits first .. end - 1, each into its row of the arrays in the last two lines."""
    m, top = status.shape[1], probabilities.shape[1]
    room = budget + 2 * m + 2
    tree = (
        np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32),
        np.empty(room), np.empty(room), np.empty(room), np.empty(room), np.empty(room, np.int32),
    )  # fmt: skip
    more, members = np.empty(top), np.empty((top, m), np.bool_)
    factor = np.exp(t.coupling) if t.coupled else t.coupling
    for v in range(first, end):
        verdict, base, scale, free, unary, on, w, rows = reduce_visit(v, present, unobserved, status, evidence, t)
        impossible[v] = verdict
        for i in range(m):
            if status[v, i] == CONFIRMED:
                marginals[v, i] = 1.0
        if verdict != POSSIBLE:
            continue
        M, P = rows.shape
        pair = np.empty((M, M))
        for a in range(M):
            for b in range(M):
                pair[a, b] = t.coupling[free[a], free[b]]
        parts, label = label_parts(rows, pair)

        # Findings that no free condition causes are a constant factor; each other one belongs to one part.
        owner = np.full(P, -1, np.int64)
        for j in range(P):
            for k in range(M):
                if rows[k, j] < 1.0:
                    owner[j] = label[k]
            if owner[j] < 0:
                base += w[j] * np.log(on[j])
        joined = 0
        for part in range(parts):
            joined += np.sum(label == part) > 1
        kept = min(1, top)
        for r in range(kept):
            probabilities[v, r] = 1.0
            for i in range(m):
                explanations[v, r, i] = status[v, i] == CONFIRMED
        certain, deepest, log_found = 1.0, 0, 0.0
        for part in range(parts):  # each to its share of the tolerance, less a little for rounding
            own, heard = np.flatnonzero(label == part), np.flatnonzero(owner == part)
            mass, share, rest = np.empty(own.size), 0.99 * tolerance / max(joined, 1), budget - states[v]
            pairwise = heard.size == 0 and own.size > 1 and top == 0
            if pairwise:
                size, depth, peak, found, left = sum_pairwise(
                    unary[own], take(pair, own, own), take(factor, free[own], free[own]), share, rest, tree, mass
                )
                pairwise = found > 0.0
            if not pairwise:
                size, depth, peak, found, left = search(
                    take(rows, own, heard), on[heard], w[heard], unary[own], take(pair, own, own), share, rest, tree
                )
            states[v] += size
            deepest += depth
            if found == 0.0:
                log_found = -np.inf
                break
            if pairwise:
                extra = 0
                for k in range(own.size):
                    marginals[v, free[own[k]]] = min(mass[k] / found, 1.0)
            else:
                extra, found = read_tree(tree, size, peak, free[own], marginals[v], more, members)
            log_found += peak + np.log(found)
            certain *= found / (found + left)
            kept = combine_best(probabilities[v], explanations[v], kept, more, members, extra)
        log_evidence[v] = base + log_found
        # Each log weight is a sum of numbers of size `scale` per condition on, and of logarithms of products of P
        # terms; then the states are added up.
        rounding = EPSILON * (8.0 * (P + scale * (1 + deepest) + abs(log_found)) + states[v])
        error_bound[v] = min(1.0, (1.0 - certain) * (1.0 + 1e-9) + rounding) if log_found > -np.inf else 1.0


@njit(cache=True, nogil=True)
def _solve_by_branching(
    first: int, end: int, present: Rows, unobserved: Rows, status: NDArray[np.int8], evidence: Floats, t: Tables,
    tolerance: float, budget: int,
    marginals: Floats, error_bound: Floats, log_evidence: Floats, explanations: Bools, probabilities: Floats,
    states: Ints, impossible: Ints,
) -> None:  # fmt: skip
    """As `_solve`, by branch and bound over decisions (`branching.py`); faster if no explanations are asked for."""
    m, top = status.shape[1], probabilities.shape[1]
    for v in range(first, end):
        verdict, base, scale, free, unary, on, w, rows = reduce_visit(v, present, unobserved, status, evidence, t)
        impossible[v] = verdict
        for i in range(m):
            if status[v, i] == CONFIRMED:
                marginals[v, i] = 1.0
        if verdict != POSSIBLE:
            continue
        M, P = rows.shape
        whole, taken = lay_out_problem(unary, rows, on, w)
        problem, kept_in, place = whole, np.arange(taken.size), np.arange(taken.size)
        if top == 0:  # conditions that are summed out are in no explanation
            problem, kept_in, place = merge_single_causes(whole)
        K = kept_in.size
        log_alone, product = 0.0, 1.0  # of conditions that nothing present bears on: they are independent
        for q in range(M):
            odds = np.exp(min(unary[q], 300.0))
            marginals[v, free[q]] = odds / (1.0 + odds)
            product *= 1.0 + odds
            if product > 1e100:
                log_alone, product = log_alone + np.log(product), 1.0
        log_alone += np.log(product)
        for k in range(K):
            log_alone -= np.log1p(problem.odds[k])
        chance, best, which = np.empty(K), np.full(top, -np.inf), np.zeros((top, K), np.bool_)
        size, log_found, error, kept = branch(problem, tolerance, budget, chance, best, which)
        states[v] = size
        for k in range(taken.size):
            other = place[k] if place[k] >= 0 else -1 - place[k]
            of_k = chance[other] if place[k] >= 0 else merged_marginal(whole, k, kept_in[other], chance[other])
            marginals[v, free[taken[k]]] = of_k
        for r in range(kept):
            probabilities[v, r] = np.exp(min(best[r] - log_found - log_alone, 0.0))
            for i in range(m):
                explanations[v, r, i] = status[v, i] == CONFIRMED
            for k in range(K):
                explanations[v, r, free[taken[kept_in[k]]]] = which[r, k]
        log_evidence[v] = base + log_found + log_alone
        rounding = EPSILON * (8.0 * (P + scale * (1 + K) + abs(log_found)) + size * m)
        error_bound[v] = min(1.0, error * (1.0 + 1e-9) + rounding)


@njit(cache=True, nogil=True)
def take(table: Floats, rows: Ints, columns: Ints) -> Floats:
    """table[rows][:, columns]."""
    out = np.empty((rows.size, columns.size))
    for a in range(rows.size):
        for b in range(columns.size):
            out[a, b] = table[rows[a], columns[b]]
    return out


@njit(cache=True, nogil=True)
def read_tree(
    tree: Tree, size: int, peak: float, free: Ints, marginals: Floats, more: Floats, members: Bools
) -> tuple[int, float]:
    """From the states of a search: marginals of its conditions `free`, its best states; returns (how many, mass)."""
    parent, cond, weights, mass = tree[0], tree[1], tree[3], tree[6]
    top, kept = more.size, 0
    best = np.empty(top + 1, np.int64)
    for c in range(size):
        mass[c] = np.exp(weights[c] - peak)
        if top > 0 and mass[c] > 0.0 and (kept < top or mass[c] > mass[best[top - 1]]):
            at = kept
            while at > 0 and mass[best[at - 1]] < mass[c]:
                best[at] = best[at - 1]
                at -= 1
            best[at] = c
            kept = min(kept + 1, top)
    for r in range(kept):
        more[r] = mass[best[r]]
    # A state's mass belongs to each condition on the way to it: hand masses up, last state (and least mass) first.
    for c in range(size - 1, 0, -1):
        mass[parent[c]] += mass[c]
        marginals[free[cond[c]]] += mass[c]
    found = mass[0]
    for k in free:
        marginals[k] = min(marginals[k] / found, 1.0)
    for r in range(kept):
        more[r] /= found
        for i in range(members.shape[1]):
            members[r, i] = False
        c = best[r]
        while c > 0:
            members[r, free[cond[c]]] = True
            c = parent[c]
    return kept, found
