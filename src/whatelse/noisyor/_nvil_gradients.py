"""The arithmetic of one NVIL step: pure functions of tensors, with gradients derived by hand.

Symbols: B visits in a minibatch, S samples of the conditions for each, m conditions, n findings, P the largest
number of present findings of a visit in the minibatch. Every finding has m + 1 possible causes: the conditions and
the leak, which is a condition that is always on (y has a last column of ones). With the cost of cause i not turning
on finding j

    w_ij = -log f_ij,   w_mj = -log(1 - l_j),   w = softplus(u),   P(cause i turns on j) = sigmoid(u_ij)

so u = -theta for failures (f = sigmoid(theta)) and u = theta for leaks: one table for all that is learned. Then

    z_j = sum_i y_i w_ij,   log P(x | y) = -sum_j z_j + sum_{j present} (z_j + log(1 - e^-z_j))

The first sum is linear in y; the second needs only the findings that are present, which are gathered and padded to P.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_Z = 1e-6
"""A present finding that nothing explains (z = 0: leak 0, no parent on) would make the bound -inf. It counts as this
much probability instead, far below what any leak that is learned can reach."""


@dataclass(frozen=True)
class Batch:
    """Some visits, in the two forms that a step needs.

    columns (B, P)     the present findings of each visit, padded with n
    x       (B, n + 1) the visit centred, its last entry 1: the input of the recognition model and of the baseline
    anchors (B, m)     0 or 1
    """

    columns: Tensor
    x: Tensor
    anchors: Tensor


@dataclass(frozen=True)
class Visits:
    """All visits on the device: the index arrays of the CSR matrix, column means (n,) and anchor columns (m,)."""

    indptr: Tensor
    indices: Tensor
    centre: Tensor
    anchor_columns: Tensor

    def batch(self, rows: Tensor) -> Batch:
        """The visits in `rows` (B,): O(B n)."""
        n = self.centre.numel()
        first, last = self.indptr[rows], self.indptr[rows + 1]
        width = max(int((last - first).max()), 1)
        at = first[:, None] + torch.arange(width, device=rows.device)
        present = at < last[:, None]
        columns = self.indices[at.clamp_(max=max(self.indices.numel() - 1, 0))] if self.indices.numel() else at
        columns = torch.where(present, columns, n)

        x = torch.zeros(rows.numel(), n + 1, dtype=self.centre.dtype, device=rows.device)
        x.scatter_(1, columns, 1.0)  # what is padding lands in the last column, which is the constant 1 anyway
        anchors = x[:, self.anchor_columns]
        x[:, :n] -= self.centre
        x[:, n] = 1.0
        return Batch(columns, x, anchors)


def cost_table(u: Tensor, fixed: Tensor, free: Tensor) -> Tensor:
    """w (n + 1, m + 1) from u (n, m + 1), with `fixed` costs where `free` is 0.

    Row n stands for padding: only a leak of 1/2, for which z + log(1 - e^-z) = log(e^z - 1) is 0.
    """
    table = torch.zeros(u.shape[0] + 1, u.shape[1], dtype=u.dtype, device=u.device)
    torch.where(free, torch.nn.functional.softplus(u), fixed, out=table[:-1])
    table[-1, -1] = math.log(2.0)
    return table


def log_likelihood(table: Tensor, columns: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """log P(x | y) (B, S) for y (B, S, m + 1), and 1 / (1 - e^-z) (B, P, S), which its gradient needs.

    Cost O(B P S m) multiplications and B P S logarithms, whatever n is.
    """
    z = torch.bmm(table[columns], y.transpose(1, 2)).clamp_(min=SMALLEST_Z)
    fired = -torch.expm1(-z)  # P(X_j = 1 | y)
    absent = y @ table[:-1].sum(0)
    return (z + fired.log()).sum(1) - absent, fired.reciprocal_()


def likelihood_gradient(
    table: Tensor, columns: Tensor, y: Tensor, inverse: Tensor, weight: Tensor, free: Tensor
) -> Tensor:
    """sum_bs weight_bs d log P(x_b | y_bs) / du, (n, m + 1); zero where `free` is 0.

    d log P / dw_ij = y_i (x_j / (1 - e^-z_j) - 1), and dw/du = sigmoid(u) = 1 - e^-w.
    """
    pulls = torch.bmm(inverse * weight[:, None, :], y)  # (B, P, m + 1)
    gradient = torch.zeros_like(table)
    gradient.index_add_(0, columns.flatten(), pulls.flatten(0, 1))
    gradient -= torch.einsum("bs,bsi->i", weight, y)
    return gradient[:-1].mul_(-torch.expm1(-table[:-1])).mul_(free)


def log_bernoulli(y: Tensor, logits: Tensor) -> Tensor:
    """sum_i log Bernoulli(y_i; sigmoid(logits_i)): y (B, S, m), logits (B, m) or (m,), answer (B, S)."""
    constant = torch.nn.functional.softplus(logits).sum(-1)
    return (y @ logits.unsqueeze(-1)).squeeze(-1) - (constant if logits.dim() == 1 else constant[:, None])


def censored_logits(batch: Batch, logits: Tensor, phi: Tensor, phi_extra: Tensor, anchor_columns: Tensor) -> Tensor:
    """phi . x~ + phi_0' (B, m): the recognition model blind to all anchors, from its logits with them."""
    return logits - batch.x[:, anchor_columns] @ phi[:, anchor_columns].T + phi_extra


def recognition_gradient(
    batch: Batch, pull: Tensor, supervised_pull: Tensor, anchor_columns: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients for phi (m, n + 1) and phi_0' (m,), summed over visits.

    pull (B, m) is the gradient of the bound with respect to the logits, supervised_pull (B, m) that of
    lambda R, which reaches every weight but those of the anchors.
    """
    phi = (pull + supervised_pull).T @ batch.x
    phi[:, anchor_columns] -= supervised_pull.T @ batch.x[:, anchor_columns]
    return phi, supervised_pull.sum(0)
