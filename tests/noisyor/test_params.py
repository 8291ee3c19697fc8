"""NoisyOr checks what it is given and says which entry is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from whatelse.errors import ModelError
from whatelse.noisyor import NoisyOr


def small() -> dict[str, np.ndarray]:
    return dict(prior=np.array([0.1, 0.2]), fail=np.full((2, 3), 0.5), leak=np.full(3, 0.1))


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("prior", (1,), 0.0, "prior of condition 1 is 0.0"),
        ("prior", (0,), np.nan, "prior of condition 0 is nan"),
        ("fail", (1, 2), 1.5, "fail of condition 1, finding 2 is 1.5"),
        ("fail", (0, 0), np.nan, "fail of condition 0, finding 0 is nan"),
        ("leak", (2,), -0.1, "leak of finding 2 is -0.1"),
    ],
)
def test_a_wrong_entry_is_named(name: str, index: tuple[int, ...], value: float, message: str) -> None:
    arrays = small()
    arrays[name][index] = value
    with pytest.raises(ModelError, match=message.replace(".", r"\.")):
        NoisyOr(**arrays)


def test_shapes_must_agree() -> None:
    with pytest.raises(ModelError, match="leak has 2 findings but fail has 3 columns"):
        NoisyOr(**{**small(), "leak": np.zeros(2)})
    with pytest.raises(ModelError, match="prior has 3 conditions but fail has 2 rows"):
        NoisyOr(**{**small(), "prior": np.full(3, 0.1)})
    with pytest.raises(ModelError, match="symmetric"):
        NoisyOr(**small(), coupling=np.array([[0.0, 1.0], [0.0, 0.0]]))


def test_the_model_cannot_be_changed_from_outside() -> None:
    arrays = small()
    model = NoisyOr(**arrays)
    arrays["fail"][:] = 0.9
    assert model.fail[0, 0] == 0.5
    with pytest.raises(ValueError):
        model.fail[0, 0] = 0.9
    assert (model.m, model.n) == (2, 3)
    assert (model.weight == 1).all() and not model.coupling.any()
