"""What labels teach on top of anchors: a pseudo-likelihood, with strengths of its priors found from the labels.

Of a labelled visit, each condition whose label is known is predicted from the findings and from the other conditions:

    log odds of Y_i = b_i + (c + c_i) a_i(x) + w_i . x + sum_k y_k (s J0_ik + l + D_ik) + kappa r_i(x, y)

a_i(x)   log odds of the condition alone, as anchors taught them;  J0 the couplings they taught
r_i(x,y) what the other conditions on take away from what the findings say for i (explaining away), of the noisy-or
Labels that are not known (NaN) are not predicted; as other conditions they count with their probability `belief`.

c, s, l and kappa are four numbers, which a hundred labels can tell. b, c_i and D have Gaussian priors around zero, one
precision for each kind; w, the correction of what each finding says, a t distribution with one degree of freedom: most
corrections are next to nothing, and a few ("h/a" for headache) are large. The precisions are found from the labels
themselves (MacKay's fixed point of the marginal likelihood: precision = well-determined parameters / sum of their
squares), and the t distribution by giving each weight the precision that goes with its size, a few times over. Given
the precisions the problem is concave. So few labels move little and many labels say what anchors cannot. Every pass
over visits is a sum over blocks of them.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from whatelse.types import Bools, Floats

PARTS = 8
MAX_STEPS = 100
ROUNDS, ROUND_STEPS = 4, 20  # of finding the precisions, and steps of each
TAIL = 1.0  # degrees of freedom of the t distribution that corrections of findings have
HEAD = (10.0, 10.0, 40.0, 20.0)  # precisions of c, s, l and kappa
ENOUGH = 10  # labels of a condition that make it an example
KINDS = ("bias", "scale", "coupling", "weight")
STEADY = 5.0  # parameters that the precisions at the start are worth
START = {"bias": 4.0, "scale": 50.0, "coupling": 100.0, "weight": 50.0}
RANGE = {"bias": (0.1, 1e4), "scale": (1.0, 1e5), "coupling": (1.0, 1e5), "weight": (1.0, 1e5)}


@dataclass(frozen=True, eq=False)
class Lesson:
    """L labelled visits: findings x CSR (L, n), labels y (L, m) with NaN where not known, alone (L, m), taken (L, m),
    belief (L, m) (y where known), weight (L, m) of each label. A label may lie between 0 and 1."""

    x: sp.csr_matrix
    y: Floats
    alone: Floats
    taken: Floats
    belief: Floats
    weight: Floats

    def rows(self, which: Any) -> Lesson:
        """Some of the visits."""
        return Lesson(*(getattr(self, name)[which] for name in ("x", "y", "alone", "taken", "belief", "weight")))


@dataclass(frozen=True, eq=False)
class Taught:
    """bias, scale (m,); coupling (m, m) whole, J0 included; kappa; weight (m, n); precision of each kind."""

    bias: Floats
    scale: Floats
    coupling: Floats
    kappa: float
    weight: Floats
    precision: dict[str, float]

    def fields(self, x: sp.csr_matrix, alone: Floats) -> Floats:
        """(V, m) log odds when no other condition is on."""
        out: Floats = self.bias + self.scale * alone + np.asarray(x @ self.weight.T)
        return out


class _Problem:
    """Loss and gradient as functions of one flat vector: c, s, l, kappa | b | c_i | D (upper triangle) | w (n, m)."""

    def __init__(self, lesson: Lesson, coupling: Floats) -> None:
        self.lesson, self.J0 = lesson, coupling
        L, m = lesson.y.shape
        n = lesson.x.shape[1]
        self.m, self.n = m, n
        self.upper = np.triu_indices(m, 1)
        sizes = [4, m, m, len(self.upper[0]), n * m]
        self.cut = np.cumsum([0, *sizes])
        self.parts = np.linspace(0, L, PARTS + 1).astype(np.int64)
        self.indptr, self.indices = lesson.x.indptr.astype(np.int64), lesson.x.indices.astype(np.int64)

    def unpack(self, flat: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        head, bias, scale, pairs, weight = (flat[a:b] for a, b in zip(self.cut[:-1], self.cut[1:], strict=True))
        D = np.zeros((self.m, self.m))
        D[self.upper] = pairs
        off = 1 - np.eye(self.m)
        J = head[1] * self.J0 + head[2] * off + D + D.T
        return head, bias, scale, J, weight.reshape(self.n, self.m)

    def value(self, flat: Floats, pool: ThreadPoolExecutor, curvature: bool = False) -> tuple[float, Floats, Any]:
        """Loss and gradient without priors; with `curvature` also the diagonal of its Hessian."""
        head, bias, scale, J, weight = self.unpack(flat)
        t = self.lesson

        def part(k: int) -> Any:
            return _loss(
                self.parts[k], self.parts[k + 1], self.indptr, self.indices, t.y, t.alone, t.taken, t.belief, t.weight,
                bias, head[0] + scale, J, head[3], weight, curvature,
            )  # fmt: skip

        found = list(pool.map(part, range(PARTS)))
        loss, g_b, g_c, g_J, g_k, g_w, h_b, h_c, h_J, h_w = (sum(f[i] for f in found) for i in range(10))
        g_J = g_J + g_J.T
        gradient = np.concatenate([
            [g_c.sum(), (g_J * self.J0).sum() / 2, (g_J[self.upper]).sum(), g_k], g_b, g_c, g_J[self.upper], g_w.ravel()
        ])  # fmt: skip
        hessian = (h_b, h_c, (h_J + h_J.T)[self.upper], h_w.ravel()) if curvature else None
        return float(loss), gradient, hessian


def unlike(known: Bools) -> float:
    """By how much labels, known (L, m), are held back from telling of all conditions what they tell of some.

    (m / k)^2, where k conditions have some ENOUGH labels: one where all have. Conditions differ from one another, so
    however many labels one condition has, the others do not learn more from them than one example.
    """
    with_labels = float(np.minimum(known.sum(0) / ENOUGH, 1.0).sum())
    return float(known.shape[1] / max(with_labels, 0.1)) ** 2


def teach(
    lesson: Lesson, coupling: Floats, kappa: float, *, precision: dict[str, float] | None = None, steps: int = MAX_STEPS
) -> Taught:
    """Fit to the labels. coupling (m, m) is J0, kappa where to start.

    What labels of few conditions say of all of them (c, s, l, kappa) is held back (`unlike`).

    precision  of each kind; None: found from the labels, in ROUNDS of fitting and counting what is well determined
    steps      of the last fit, at most
    """
    problem = _Problem(lesson, coupling)
    total = max(float(lesson.weight.mean(1).sum()), 1.0)
    found = dict(START if precision is None else precision)
    centre = np.zeros(problem.cut[-1])
    centre[:4] = 1.0, 1.0, 0.0, kappa
    parts = {kind: slice(problem.cut[k + 1], problem.cut[k + 2]) for k, kind in enumerate(KINDS)}
    head_precision = unlike(~np.isnan(lesson.y)) * np.array(HEAD)
    penalty = np.concatenate(
        [head_precision, *(np.full(part.stop - part.start, found[kind]) for kind, part in parts.items())]
    )
    flat = centre
    with ThreadPoolExecutor(min(PARTS, os.cpu_count() or 1)) as pool, threadpool_limits(1, "blas"):

        def fitted(start: Floats, most: int) -> Floats:
            def objective(v: Floats) -> tuple[float, Floats]:
                loss, gradient, _ = problem.value(v, pool)
                away = v - centre
                return (loss + 0.5 * float(penalty @ away**2)) / total, (gradient + penalty * away) / total

            options = {"maxiter": most, "maxcor": 15, "gtol": 1e-6, "ftol": 1e-8}
            out: Floats = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
            return out

        for _ in range(ROUNDS):
            flat = fitted(flat, ROUND_STEPS)
            _, _, curvature = problem.value(flat, pool, True)
            for (kind, part), bent in zip(parts.items(), curvature, strict=True):
                own, squares = penalty[part], flat[part] ** 2
                if precision is None:
                    known = float((bent / (bent + own)).sum()) + STEADY
                    spread = float((squares * own).sum()) / found[kind] + STEADY / START[kind]
                    found[kind] = float(np.clip(known / spread, *RANGE[kind]))
                if kind == "weight":
                    penalty[part] = (TAIL + 1) / (TAIL / found[kind] + squares)
                else:
                    penalty[part] = found[kind]
        flat = fitted(flat, steps)
    head, bias, scale, J, weight = problem.unpack(flat)
    return Taught(bias, head[0] + scale, J, float(head[3]), weight.T.copy(), found)


@njit(cache=True, nogil=True)
def _loss(first, end, indptr, indices, y, alone, taken, belief, label_weight, bias, scale, J, kappa, weight, curvature):  # type: ignore[no-untyped-def]
    """-log pseudo-likelihood of visits first … end - 1, gradients by bias, scale, J (one triangle), kappa, weight, and
    the diagonal of the Hessian."""
    m, n = bias.size, weight.shape[0]
    g_b, g_c, g_J, g_k, g_w = np.zeros(m), np.zeros(m), np.zeros((m, m)), 0.0, np.zeros((n, m))
    h_b, h_c, h_J = np.zeros(m), np.zeros(m), np.zeros((m, m))
    h_w = np.zeros((n, m)) if curvature else np.zeros((1, 1))
    z, d, loss = np.empty(m), np.empty(m), 0.0
    for v in range(first, end):
        for i in range(m):
            z[i] = bias[i] + scale[i] * alone[v, i] + kappa * taken[v, i]
        for k in range(m):
            q = belief[v, k]
            if q > 0.001:
                for i in range(m):
                    z[i] += q * J[k, i]
        for at in range(indptr[v], indptr[v + 1]):
            row = weight[indices[at]]
            for i in range(m):
                z[i] += row[i]
        for i in range(m):
            if np.isnan(y[v, i]):
                d[i] = 0.0
                continue
            w = label_weight[v, i]
            u = z[i]
            e = np.exp(-abs(u))
            p = 1.0 / (1.0 + e) if u > 0 else e / (1.0 + e)
            loss += w * (np.log1p(e) + max(u, 0.0) - u * y[v, i])
            d[i] = w * (p - y[v, i])
            g_b[i] += d[i]
            g_c[i] += d[i] * alone[v, i]
            g_k += d[i] * taken[v, i]
            z[i] = w * p * (1.0 - p)
            if curvature:
                h_b[i] += z[i]
                h_c[i] += z[i] * alone[v, i] ** 2
        for k in range(m):
            q = belief[v, k]
            if q > 0.001:
                for i in range(m):
                    g_J[k, i] += q * d[i]
                    if curvature and not np.isnan(y[v, i]):
                        h_J[k, i] += q * q * z[i]
        for at in range(indptr[v], indptr[v + 1]):
            row = g_w[indices[at]]
            for i in range(m):
                row[i] += d[i]
            if curvature:
                row = h_w[indices[at]]
                for i in range(m):
                    if not np.isnan(y[v, i]):
                        row[i] += z[i]
    return loss, g_b, g_c, g_J, g_k, g_w, h_b, h_c, h_J, h_w
