"""The held-out tag against the sum over states with exactly one more condition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tests.noisyor.test_likelihood import random_model
from tests.support import reference
from whatelse.errors import QueryError
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.inference.heldout import heldout_tag


@pytest.mark.parametrize("general", [False, True])
def test_is_the_sum_over_states(rng, general):
    model = random_model(rng, weighted=general, coupled=general)
    X, known = rng.random((50, model.n)) < 0.4, rng.random((50, model.m)) < 0.3
    known[known.all(1), 0] = False
    evidence = rng.normal(size=(50, model.m)) if general else None
    got = heldout_tag(model, sparse.csr_matrix(X, dtype=np.uint8), known, evidence)
    for v in range(50):
        want = reference.heldout_tag(model, np.flatnonzero(X[v]), known[v], None if evidence is None else evidence[v])
        np.testing.assert_allclose(got[v], want, atol=1e-12)
    np.testing.assert_allclose(got.sum(1), 1.0, atol=1e-12)
    assert not got[known].any()
    np.testing.assert_array_equal(got, heldout_tag(model, [np.flatnonzero(x) for x in X], known, evidence))


def test_nothing_left_nothing_possible_and_nobody(rng):
    model = random_model(rng)
    assert not heldout_tag(model, [[0]], np.ones((1, model.m))).any()
    assert heldout_tag(model, [], np.zeros((0, model.m))).shape == (0, model.m)
    impossible = NoisyOr([0.1, 0.3], [[1.0], [1.0]], [0.0])
    np.testing.assert_allclose(heldout_tag(impossible, [[0]], [[False, False]]), [[0.25, 0.75]])


def test_confirmed_must_fit(rng):
    with pytest.raises(QueryError, match="confirmed has shape"):
        heldout_tag(random_model(rng), [[0]], [[True]])
