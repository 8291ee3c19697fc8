"""Evidence: its sum and its lines agree, what was not looked for brings nothing, an excused anchor is taken back."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from whatelse.errors import ModelError, QueryError
from whatelse.noisyor import NoisyOr, enumerate_posterior, posterior
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.mle import edit_anchors

M, N = 3, 9
ANCHORS = np.array([7, 2, 4])
SENSITIVITY, FALSE_POSITIVE = np.array([0.7, 0.5, 0.6]), np.array([0.02, 0.1, 0.05])
TOLD = np.stack([np.log((1 - SENSITIVITY) / (1 - FALSE_POSITIVE)), np.log(SENSITIVITY / FALSE_POSITIVE)])


def evidence(rng: np.random.Generator, *, linear: bool = True, excuses: float = 0.2) -> Evidence:
    excuse = rng.random((M, N)) < excuses
    excuse[:, ANCHORS] = False
    weight = rng.normal(0, 1, (M, N)) * linear
    weight[:, ANCHORS] = 0.0
    return Evidence(weight, rng.uniform(0.1, 0.5, N), excuse, ANCHORS, TOLD)


def test_sum_is_that_of_its_lines_and_of_loops(rng: np.random.Generator) -> None:
    told = evidence(rng)
    X, hidden = rng.random((30, N)) < 0.4, rng.random((30, N)) < 0.3
    X &= ~hidden
    for unobserved in (hidden, np.zeros_like(hidden)):
        whole = told(sp.csr_matrix(X.astype(float)), sp.csr_matrix(unobserved.astype(float)))
        for v in range(30):
            lines = told.lines(np.flatnonzero(X[v]), np.flatnonzero(unobserved[v]))
            assert lines.shape == (M, N)
            np.testing.assert_allclose(lines.sum(1), whole[v], rtol=0, atol=1e-12)
            for i in range(M):
                total = sum(told.weight[i, j] * (X[v, j] - told.centre[j]) for j in range(N) if not unobserved[v, j])
                if (X[v] & told.excuse[i]).any() and not unobserved[v, ANCHORS[i]]:
                    total -= TOLD[int(X[v, ANCHORS[i]]), i]
                assert whole[v, i] == pytest.approx(total, abs=1e-12)
    np.testing.assert_array_equal(told(sp.csr_matrix(X.astype(float))), whole)  # nothing unobserved: may be left out


def test_every_form_of_a_visit_gives_the_same(rng: np.random.Generator) -> None:
    told, X = evidence(rng), rng.random((5, N)) < 0.4
    rows = [np.flatnonzero(x) for x in X]
    np.testing.assert_array_equal(told(rows), told(sp.csr_matrix(X.astype(np.uint8))))
    np.testing.assert_array_equal(told(rows), told(X.astype(np.uint8)))
    assert told([]).shape == (0, M)


def test_what_was_not_looked_for_brings_nothing(rng: np.random.Generator) -> None:
    told = evidence(rng)
    np.testing.assert_allclose(told([[]], [np.arange(N)]), 0.0, atol=1e-12)
    lines = told.lines(np.array([0, 1]), np.array([5, 6]))
    assert not lines[:, [5, 6]].any()
    # and it stands for the average: over visits whose findings have mean c, the evidence is zero on average
    plain = Evidence(told.weight, told.centre, np.zeros((M, N), bool), ANCHORS, TOLD)
    X = rng.random((200_000, N)) < told.centre
    np.testing.assert_allclose(plain(X.astype(np.uint8)).mean(0), 0.0, atol=0.02)


@pytest.mark.parametrize("fires", [True, False])
def test_an_excused_anchor_is_exactly_taken_back(rng: np.random.Generator, fires: bool) -> None:
    """The posterior with the evidence is that of the plain model had nobody looked for the excused anchor."""
    told = evidence(rng, linear=False, excuses=0.0)
    excuse = told.excuse.copy()
    excuse[1, 0] = True
    told = Evidence(told.weight, told.centre, excuse, ANCHORS, TOLD)
    fail = rng.uniform(0.3, 1.0, (M, N))
    model = edit_anchors(
        NoisyOr([0.1, 0.2, 0.3], fail, rng.uniform(0.01, 0.2, N)), ANCHORS, SENSITIVITY, FALSE_POSITIVE
    )
    present = np.array([0, 3, 7, *([2] if fires else [])])
    with_evidence = enumerate_posterior(model, present, evidence=told([present])[0])
    unobserved = enumerate_posterior(model, np.setdiff1d(present, [2]), unobserved=[2])
    plain = enumerate_posterior(model, present)
    np.testing.assert_allclose(with_evidence.marginals, unobserved.marginals, rtol=0, atol=1e-12)
    assert np.abs(plain.marginals - unobserved.marginals).max() > 1e-3
    # an anchor nobody looked for has told nothing, so there is nothing to take back
    assert not told([[0, 3]], [[2]]).any()


@pytest.mark.parametrize("name", ["centre", "excuse", "anchor_columns", "anchor_log_odds"])
def test_wrong_shapes_are_named(rng: np.random.Generator, name: str) -> None:
    told = evidence(rng)
    values: dict[str, Any] = {f.name: getattr(told, f.name) for f in fields(Evidence)}
    values[name] = values[name][:-1] if name != "anchor_log_odds" else values[name][:, :-1]
    with pytest.raises(ModelError, match=rf"{name} of the evidence has shape .*, needs"):
        Evidence(**values)


def test_wrong_values_are_named(rng: np.random.Generator) -> None:
    told = evidence(rng)
    with pytest.raises(ModelError, match="weight of the evidence has shape"):
        Evidence(told.centre, told.centre, told.excuse, ANCHORS, TOLD)
    with pytest.raises(ModelError, match="weight of the evidence must be finite"):
        Evidence(np.full((M, N), np.nan), told.centre, told.excuse, ANCHORS, TOLD)
    with pytest.raises(ModelError, match="anchor_columns of the evidence must be finding indices from 0 to 8"):
        Evidence(told.weight, told.centre, told.excuse, [0, 1, N], TOLD)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="5 columns"):
        told(np.zeros((1, 5), np.uint8))


def test_evidence_cannot_be_changed(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="read-only"):
        evidence(rng).weight[0, 0] = 1.0


def test_silence_counts_by_the_length_of_the_record() -> None:
    rng = np.random.default_rng(7)
    silence, base = rng.normal(size=(3, 6)), rng.normal(size=3)
    quiet = Evidence.none(3, 6)
    evidence = replace(quiet, silence=silence, silence_base=base, half_length=np.array([2.0]))
    for present in ([], [1], [0, 2, 5]):
        factor = len(present) / (len(present) + 2.0)
        expected = factor * (base + silence[:, present].sum(1))
        np.testing.assert_allclose(evidence([np.array(present, int)])[0], expected)


def test_absence_of_zero_makes_absent_findings_say_nothing() -> None:
    rng = np.random.default_rng(8)
    parts = dict(prior=rng.uniform(0.05, 0.3, 3), fail=rng.uniform(0.1, 1, (3, 5)), leak=rng.uniform(0.01, 0.3, 5))
    silent, plain = NoisyOr(**parts, absence=np.zeros(5)), NoisyOr(**parts)
    absent = posterior(silent, [1, 3]).marginals
    np.testing.assert_allclose(absent, posterior(plain, [1, 3], unobserved=[0, 2, 4]).marginals, atol=2e-3)
