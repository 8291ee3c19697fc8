"""log P(x | y) for sampled conditions, and its gradient, in time that goes with the findings that are present.

Symbols: B visits in a minibatch, S samples of the conditions for each, m conditions, n findings, P the largest
number of present findings of a visit in the minibatch. Every finding has m + 1 possible causes: the conditions and
the leak, which is always on. With the cost of cause i not turning on finding j

    w_ij = -log f_ij,   w_mj = -log(1 - l_j),   w = softplus(u),   P(cause i turns on j) = sigmoid(u_ij)

so u = -theta for failures (f = sigmoid(theta)) and u = theta for leaks: one table for all that is learned. Then

    z_j = sum_i y_i w_ij,   log P(x | y) = -sum_{j absent} z_j + sum_{j present} log(1 - e^-z_j)
    d log P / dw_ij = y_i (x_j / (1 - e^-z_j) - 1),   dw/du = sigmoid(u) = 1 - e^-w

The sum over absent findings is linear in y, so only present ones are visited. Compiled loops skip the
conditions that are off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

SMALLEST_CHANCE = 1e-6
"""A present finding that nothing explains (leak 0, no parent on) would make the bound -inf. It counts as this much
probability instead, far below what a leak that is learned comes to."""


def cost_table(u: Tensor, fixed: Tensor, free: Tensor) -> Tensor:
    """w (n, m + 1) from u (n, m + 1), with `fixed` costs where `free` is False."""
    return torch.where(free, torch.nn.functional.softplus(u), fixed)


def log_likelihood(
    table: Tensor, columns: Tensor, y: Tensor, weight: Tensor, *, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """log P(x | y) (B, S), and sum_bs weight_bs d log P(x_b | y_bs) / du (n, m + 1) if `gradient`.

    table (n, m + 1) of costs w; columns (B, P) of present findings, padded with n; y (B, S, m) of 0/1; weight (B, S).
    """
    log_p = np.empty(weight.shape)
    dw = np.zeros(table.shape if gradient else (0, 0))
    on, share = y.to(torch.uint8).numpy(), weight.double().contiguous().numpy()
    fires = -torch.expm1(-table)
    everything = table.sum(0, dtype=torch.float64)
    _visit_present(
        table.double().numpy(), fires.double().numpy(), everything.numpy(), columns.numpy(), on, share, log_p, dw
    )
    found = torch.from_numpy(log_p).to(table.dtype)
    if not gradient:
        return found, None
    du = torch.from_numpy(dw).to(table.dtype)
    du -= torch.cat([torch.einsum("bs,bsi->i", weight, y), weight.sum()[None]])
    return found, du.mul_(fires)


@njit(cache=True, error_model="numpy")
def _visit_present(
    w: NDArray[Any],
    fires: NDArray[Any],
    everything: NDArray[Any],
    columns: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[Any],
    log_p: NDArray[Any],
    dw: NDArray[Any],
) -> None:
    """Fill log_p, and dw unless it is empty: a few multiplications for each present finding and sample.

    w and fires = 1 - e^-w are (n, m + 1), everything (m + 1,) is the sum of w over all findings.

    The logarithm is taken of products of chances, whenever they come near the end of the range of floats.
    """
    n, m = w.shape[0], w.shape[1] - 1
    learn = dw.size > 0
    absent = np.empty(m + 1)
    on = np.empty(m + 1, np.int64)
    for b in range(y.shape[0]):
        absent[:] = everything
        count = 0
        while count < columns.shape[1] and columns[b, count] < n:
            j = columns[b, count]
            for i in range(m + 1):
                absent[i] -= w[j, i]
            count += 1
        for s in range(y.shape[1]):
            causes = 0
            total, product = -absent[m], 1.0
            for i in range(m):
                if y[b, s, i]:
                    on[causes] = i
                    causes += 1
                    total -= absent[i]
            for p in range(count):
                j = columns[b, p]
                chance = fires[j, m]
                for c in range(causes):
                    chance += fires[j, on[c]] * (1.0 - chance)  # 1 - prod (1 - fires), without cancellation
                chance = max(chance, SMALLEST_CHANCE)
                product *= chance
                if product < 1e-290:
                    total += np.log(product)
                    product = 1.0
                if learn:
                    pull = weight[b, s] / chance
                    dw[j, m] += pull
                    for c in range(causes):
                        dw[j, on[c]] += pull
            log_p[b, s] = total + np.log(product)
