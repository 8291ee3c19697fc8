"""A toy network for NVIL's tests, and slow, obvious versions of its objective by full enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from scipy.sparse import csr_matrix

from whatelse.learning.paper.nvil import Training
from whatelse.learning.paper.nvil_course import NvilSettings
from whatelse.noisyor.params import NoisyOr

M, N_FINDINGS = 4, 9
ANCHORS = np.array([7, 0, 4, 2])
STATES = np.array(list(itertools.product([0, 1], repeat=M)), float)


def toy_model(rng: np.random.Generator) -> NoisyOr:
    """Four conditions, nine findings, every anchor with one parent."""
    fail = rng.uniform(0.2, 0.95, (M, N_FINDINGS))
    fail[:, ANCHORS] = 1.0
    fail[np.arange(M), ANCHORS] = rng.uniform(0.1, 0.3, M)
    return NoisyOr(rng.uniform(0.1, 0.5, M), fail, rng.uniform(0.02, 0.2, N_FINDINGS))


def draw(model: NoisyOr, visits: int, rng: np.random.Generator) -> csr_matrix:
    y = rng.random((visits, model.m)) < model.prior
    absent = (1 - model.leak) * np.exp(y @ np.log(model.fail))
    return csr_matrix((rng.random((visits, model.n)) > absent).astype(np.uint8))


def log_joint(model: NoisyOr, x: np.ndarray, y: np.ndarray) -> float:
    """The paper's equation for P(x, y), factor by factor."""
    p = float(np.prod(np.where(y == 1, model.prior, 1 - model.prior)))
    for j in range(model.n):
        absent = (1 - model.leak[j]) * np.prod(model.fail[:, j] ** y)
        p *= 1 - absent if x[j] else absent
    return float(np.log(p))


def log_evidence(model: NoisyOr, X: csr_matrix) -> float:
    """Mean log P(x) over the visits, all states summed."""
    absent, x = (1 - model.leak) * np.exp(STATES @ np.log(model.fail)), X.toarray()
    prior = STATES @ np.log(model.prior) + (1 - STATES) @ np.log(1 - model.prior)
    return float(np.logaddexp.reduce(x @ np.log(1 - absent).T + (1 - x) @ np.log(absent).T + prior, axis=1).mean())


def train_state(model: NoisyOr, X: csr_matrix, **settings: float) -> Training:
    return Training(X, model, ANCHORS, NvilSettings(**settings), 3, torch.float64)  # type: ignore[arg-type]


def every_state(visits: int) -> torch.Tensor:
    """(visits, 2^m, m): all states as samples."""
    return torch.as_tensor(STATES).expand(visits, -1, -1).contiguous()


def exact_objective(
    t: Training, x: torch.Tensor, u: torch.Tensor, phi: torch.Tensor, extra: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Bound and supervised term summed over visits, enumerated, written from the paper's equations."""
    f, leak = torch.sigmoid(-u[:-1]), torch.sigmoid(u[-1])
    f = torch.where(t.free[:-1], f, torch.tensor(t.start.fail))
    leak = torch.where(t.free[-1], leak, torch.tensor(t.start.leak))
    prior, states = torch.tensor(t.start.prior), torch.as_tensor(STATES)
    absent = (1 - leak) * torch.exp(states @ f.log())
    log_p = x @ (1 - absent).log().T + (1 - x) @ absent.log().T
    log_p = log_p + states @ prior.log() + (1 - states) @ (1 - prior).log()
    seen = torch.cat([x - t.centre, torch.ones(len(x), 1)], 1)
    q = torch.sigmoid(seen @ phi.T)
    log_q = q.log() @ states.T + (1 - q).log() @ (1 - states).T
    censored = seen.clone()
    censored[:, torch.as_tensor(ANCHORS)] = 0
    s, a = torch.sigmoid(censored @ phi.T + extra), x[:, torch.as_tensor(ANCHORS)]
    return (log_q.exp() * (log_p - log_q)).sum(), (a * s.log() + (1 - a) * (1 - s).log()).sum()


def exact_gradients(t: Training, x: torch.Tensor, supervised: float) -> dict[str, torch.Tensor]:
    """By automatic differentiation of the enumerated objective."""
    leaves = {name: t.parameters[name].detach().clone().requires_grad_() for name in ("u", "phi", "phi_extra")}
    bound, anchor_term = exact_objective(t, x, *leaves.values())
    (bound + supervised * anchor_term).backward()  # type: ignore[no-untyped-call]
    return {name: leaf.grad for name, leaf in leaves.items()}
