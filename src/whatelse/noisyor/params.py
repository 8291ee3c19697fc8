"""NoisyOr: the parameters of the joint model, checked once and never changed.

    P(Y_i = 1)      = pi_i
    P(X_j = 0 | y)  = (1 - l_j) prod_i f_ij^{y_i}

m conditions, n findings. Names live outside: everything here is an index.

Two optional generalisations keep the same inference (both default to the plain noisy-or network):
`weight` (n,) raises a finding's likelihood to a power in [0, 1], for findings that repeat one another
more than the model can express, and `absence` (n,) does the same where the finding is absent; `coupling` (m, m) adds
sum_{i<k} J_ik y_i y_k to the log prior.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whatelse.errors import ModelError
from whatelse.types import Floats

LARGEST = 15.0  # log odds that a prior holds without losing digits


@dataclass(frozen=True, eq=False)
class NoisyOr:
    """The joint model.

    prior  (m,)    pi, each strictly between 0 and 1
    fail   (m, n)  f, in [0, 1]; 1 means no edge, 0 means the condition always turns the finding on
    leak   (n,)    l, in [0, 1]
    weight (n,)    in [0, 1], optional (all ones)
    absence (n,)   in [0, 1], optional (as `weight`): 0 means that an absent finding says nothing
    coupling (m, m) symmetric, zero diagonal, optional (zeros): then `prior` is no longer the exact
                   marginal of the conditions but their log odds when no other condition is on.

    Arrays are copied, made read-only and kept as float64.
    """

    prior: Floats
    fail: Floats
    leak: Floats
    weight: Floats = field(default=None)  # type: ignore[arg-type]
    coupling: Floats = field(default=None)  # type: ignore[arg-type]
    absence: Floats = field(default=None)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        fail = _array("fail", self.fail, 2)
        m, n = fail.shape
        weight = np.ones(n) if self.weight is None else self.weight
        given = {"prior": self.prior, "leak": self.leak, "weight": weight}
        given["absence"] = weight if self.absence is None else self.absence
        arrays = {"fail": fail} | {name: _array(name, value, 1) for name, value in given.items()}
        for name in given:
            size, noun, axis = (m, "conditions", "rows") if name == "prior" else (n, "findings", "columns")
            if arrays[name].size != size:
                raise ModelError(f"{name} has {arrays[name].size} {noun} but fail has {size} {axis}")
        for name, value in arrays.items():
            _in_range(name, value, open_interval=name == "prior")
        coupling = np.zeros((m, m)) if self.coupling is None else _array("coupling", self.coupling, 2)
        if coupling.shape != (m, m):
            raise ModelError(f"coupling has shape {coupling.shape}, needs {(m, m)}")
        if not np.isfinite(coupling).all() or not np.array_equal(coupling, coupling.T) or coupling.diagonal().any():
            raise ModelError("coupling must be finite and symmetric with a zero diagonal")
        for name, value in (arrays | {"coupling": coupling}).items():
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    @property
    def m(self) -> int:
        """Number of conditions."""
        return int(self.fail.shape[0])

    @property
    def n(self) -> int:
        """Number of findings."""
        return int(self.fail.shape[1])


def _array(name: str, value: ArrayLike, ndim: int) -> NDArray[Any]:
    array = np.array(value, dtype=np.float64)
    if array.ndim != ndim:
        raise ModelError(f"{name} has {array.ndim} dimensions, needs {ndim}")
    return array


def _in_range(name: str, value: Floats, *, open_interval: bool = False) -> None:
    """Raise with the first entry that is NaN or outside [0, 1] (or (0, 1))."""
    inside = (value > 0) & (value < 1) if open_interval else (value >= 0) & (value <= 1)
    if inside.all():
        return
    index = np.argwhere(~inside)[0]
    axes = {"prior": ["condition"], "fail": ["condition", "finding"]}.get(name, ["finding"])
    where = ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=True))
    interval = "(0, 1)" if open_interval else "[0, 1]"
    raise ModelError(f"{name} of {where} is {value[tuple(index)]}, must be in {interval}")
