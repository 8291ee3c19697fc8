"""NVIL: sampled gradients against enumeration, what must not move, and stopping and resuming."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from whatelse.errors import ModelError, ModelFileError
from whatelse.noisyor.params import NoisyOr

torch = pytest.importorskip("torch", reason="the extra 'nvil' is not installed")

from tests.support.reference_nvil import (  # noqa: E402
    ANCHORS,
    STATES,
    M,
    draw,
    every_state,
    exact_gradients,
    log_evidence,
    log_joint,
    toy_model,
    train_state,
)
from whatelse.learning.paper.nvil import SMALLEST_CHANCE, Epoch, NvilResult, Training, fit_nvil, log_bernoulli  # noqa: E402
from whatelse.learning.paper.nvil_course import L2_CHOICES, NvilSettings  # noqa: E402


def test_log_likelihood_equals_the_papers_product(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 30, rng)
    t = train_state(model, X)
    y = every_state(30)
    log_p = t.log_likelihood(t.visits(torch.arange(30)), y) + log_bernoulli(y, t.prior_logits)
    expected = [[log_joint(model, x, state) for state in STATES] for x in X.toarray()]
    np.testing.assert_allclose(log_p.detach().numpy(), expected, rtol=1e-9)


def test_long_visits_in_single_precision_equal_double(rng: np.random.Generator) -> None:
    """Hundreds of unlikely findings present."""
    n, m, visits, samples = 600, 6, 5, 4
    fires = -np.expm1(-rng.exponential(1e-3, (m + 1, n)))
    x = rng.random((visits, n)) < 0.9
    x[3] = False
    model = NoisyOr(np.full(m, 0.1), 1 - fires[:m], fires[m])
    t = Training(csr_matrix(x.astype(np.uint8)), model, np.arange(m), NvilSettings(margin=1e-9), 0)
    y = torch.as_tensor(rng.random((visits, samples, m)) < 0.4, dtype=torch.float32)
    found = t.log_likelihood(t.visits(torch.arange(visits)), y)
    found.sum().backward()  # type: ignore[no-untyped-call]
    w = torch.tensor(-np.log1p(-fires)).requires_grad_()
    z = torch.cat([y, torch.ones(visits, samples, 1)], 2).double() @ w
    each = torch.where(torch.as_tensor(x)[:, None], torch.log((-torch.expm1(-z)).clamp(min=SMALLEST_CHANCE)), -z).sum(2)
    each.sum().backward()  # type: ignore[no-untyped-call]
    assert float(found.detach().min()) < -1500 and w.grad is not None and t.parameters["u"].grad is not None
    torch.testing.assert_close(found.detach().double(), each.detach(), rtol=1e-5, atol=1e-3)
    exact = torch.where(t.free, w.grad * torch.tensor(fires), 0.0)
    torch.testing.assert_close(t.parameters["u"].grad.double(), exact, rtol=1e-4, atol=1e-3)


def test_visits_with_nothing_present_are_learned_from(rng: np.random.Generator) -> None:
    X = csr_matrix((3, 9), dtype=np.uint8)
    result = fit_nvil(X, toy_model(rng), ANCHORS, fast(epochs=3))
    assert np.isfinite([epoch.bound for epoch in result.history]).all()


def gradients(t: Training, x: torch.Tensor, random: torch.Generator) -> dict[str, torch.Tensor]:
    """One estimate of the gradient, per visit."""
    t.optimizer.zero_grad()
    t.objective(x, random, 0.0)[0].backward()
    return {name: value.grad.clone() for name, value in t.parameters.items() if value.grad is not None}


def test_sampled_gradient_averages_to_the_exact_one(rng: np.random.Generator) -> None:
    """The gradient that training really takes, over many draws, within its own standard error."""
    model = toy_model(rng)
    t = train_state(model, draw(model, 6, rng), samples=2_000, supervised=0.5, phi_range=0.5, l2=0.3)
    x = t.visits(torch.arange(6))
    exact = exact_gradients(t, x, supervised=0.0)
    anchor_part = {name: value - exact[name] for name, value in exact_gradients(t, x, supervised=0.5).items()}
    random = torch.Generator().manual_seed(1)
    draws: dict[str, list[torch.Tensor]] = {"u": [], "phi": []}
    for _ in range(100):
        ascent = gradients(t, x, random)
        draws["u"].append(ascent["u"] * 6)
        torch.testing.assert_close(ascent["phi_extra"] * 6, anchor_part["phi_extra"])
        # Undo what is not the score function: weight decay, the supervised term, the division of the signal.
        decay = 0.3 * t.parameters["phi"].detach().clone()
        decay[:, -1] = 0.0
        score = (ascent["phi"] + decay) * 6 - anchor_part["phi"]
        draws["phi"].append(score * t.moments[1].sqrt().clamp(min=1.0))
    assert not draws["u"][0][~t.free].any()
    for name, values in draws.items():
        stack = torch.stack(values)
        error = (stack.mean(0) - exact[name]).abs() / (stack.std(0) / 10 + 1e-12)
        assert error.max() < 4.5, name
        assert error.square().mean() < 2.0, name


def test_baseline_gradient_lowers_the_squared_signal(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    t = train_state(model, draw(model, 8, rng), samples=50)
    x = t.visits(torch.arange(8))
    seen = torch.cat([x - t.centre, torch.ones(8, 1)], 1)

    def half_square(hidden: torch.Tensor, out: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
        return -0.5 * ((signal - (torch.tanh(seen @ hidden) @ out)[:, None]) ** 2).sum() / 50

    ascent = gradients(t, x, torch.Generator().manual_seed(5))
    centre, scale = t.moments[0], t.moments[1].sqrt().clamp(min=1.0)
    # The same draws again, with no baseline and moments held fixed, give the signal that it has to predict.
    logits = (seen @ t.parameters["phi"].T).detach()
    uniform = torch.rand(8, 50, M, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y = (uniform < torch.sigmoid(logits)[:, None]).double()
    target = t.log_likelihood(x, y).detach() + log_bernoulli(y, t.prior_logits) - log_bernoulli(y, logits) - centre
    leaves = [t.parameters[name].detach().clone().requires_grad_() for name in ("hidden", "out")]
    half_square(leaves[0], leaves[1], target).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ascent["hidden"] * 8 * scale, leaves[0].grad, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(ascent["out"] * 8 * scale, leaves[1].grad, rtol=1e-9, atol=1e-10)


def test_supervised_term_sees_no_anchor(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 10, rng)
    t = train_state(model, X)
    x = t.visits(torch.arange(10))
    flipped = x.clone()
    flipped[:, t.anchors] = 1 - flipped[:, t.anchors]
    own, other = (t.blind_logits(torch.cat([each - t.centre, torch.ones(10, 1)], 1)) for each in (x, flipped))
    torch.testing.assert_close(own, other)
    own.square().sum().backward()
    gradient = t.parameters["phi"].grad
    assert gradient is not None and gradient[:, ANCHORS].abs().max() == 0 and gradient.abs().sum() > 1


def fast(**changes: float) -> NvilSettings:
    """Settings under which a toy learns in a second."""
    return dataclasses.replace(
        NvilSettings(epochs=6, burn_in=2, learning_rate=5e-3, minibatch=32, hidden=10),
        **changes,  # type: ignore[arg-type]
    )


def same(a: NvilResult, b: NvilResult) -> bool:
    arrays = [(r.model.fail, r.model.leak, r.phi, r.phi_extra) for r in (a, b)]
    course = [[(h.epoch, h.bound, h.supervised, h.notes) for h in r.history] for r in (a, b)]
    return all(np.array_equal(p, q) for p, q in zip(*arrays, strict=True)) and course[0] == course[1]


def test_bound_is_below_the_evidence_and_both_rise(rng: np.random.Generator) -> None:
    truth = toy_model(rng)
    X = draw(truth, 600, rng)
    free = np.ones(truth.fail.shape, bool)
    free[:, ANCHORS] = False
    start = dataclasses.replace(truth, fail=np.where(free, 0.7, truth.fail))
    models: list[NoisyOr] = []
    result = fit_nvil(
        X,
        start,
        ANCHORS,
        fast(epochs=30, burn_in=8, theta_rate=1.0, supervised=1.0),
        0,
        on_epoch=lambda epoch, model: models.append(model()),
    )
    bounds = [record.bound for record in result.history]
    after_burn_in, final = log_evidence(models[7], X), log_evidence(models[-1], X)
    assert bounds[0] < bounds[7] < after_burn_in == pytest.approx(log_evidence(start, X), abs=1e-6)
    assert bounds[7] < bounds[-1] < final
    assert final > after_burn_in + 0.1
    assert result.history[-1].supervised > result.history[0].supervised
    assert abs(models[-1].fail - truth.fail)[free].mean() < 0.8 * abs(start.fail - truth.fail)[free].mean()


def test_burn_in_moves_phi_only_and_anchors_never_move(rng: np.random.Generator) -> None:
    truth = toy_model(rng)
    X = draw(truth, 200, rng)
    models: list[NoisyOr] = []
    fit_nvil(X, truth, ANCHORS, fast(), 0, on_epoch=lambda epoch, model: models.append(model()))
    for model in models[:2]:
        np.testing.assert_allclose(model.fail, truth.fail, rtol=1e-6)
        np.testing.assert_allclose(model.leak, truth.leak, rtol=1e-5)
    assert np.array_equal(models[0].fail, models[1].fail)
    kept = np.zeros((M + 1, truth.n), bool)
    kept[:, ANCHORS] = True
    for model in models:
        assert np.array_equal(model.fail[kept[:-1]], truth.fail[kept[:-1]])
        assert np.array_equal(model.leak[kept[-1]], truth.leak[kept[-1]])
        assert np.array_equal(model.prior, truth.prior)
    assert (models[-1].fail != models[1].fail)[~kept[:-1]].all()
    assert (models[-1].leak != models[1].leak)[~kept[-1]].all()


def test_same_seed_same_result_and_another_seed_another(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 150, rng)
    first = fit_nvil(X, model, ANCHORS, fast(), 11)
    assert same(first, fit_nvil(X, model, ANCHORS, fast(), 11))
    assert not same(first, fit_nvil(X, model, ANCHORS, fast(), 12))


def test_threads_change_nothing_and_are_given_back(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 150, rng)
    before = torch.get_num_threads()
    results, inside = [], []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            run = fit_nvil(
                X, model, ANCHORS, fast(epochs=3), 1, on_epoch=lambda *_: inside.append(torch.get_num_threads())
            )
            results.append(run)
    finally:
        torch.set_num_threads(before)
    assert same(*results)
    assert inside == [1, 1, 1, 2, 2, 2]


def test_stopped_and_resumed_is_bit_for_bit_uninterrupted(rng: np.random.Generator, tmp_path: Path) -> None:
    model = toy_model(rng)
    X = draw(model, 150, rng)
    file = tmp_path / "run.course"

    def note(epoch: Epoch, model: Callable[[], NoisyOr]) -> None:
        epoch.notes["score"] = -float(model().leak.mean())

    whole = fit_nvil(X, model, ANCHORS, fast(l2=0.01), 4, on_epoch=note)
    part = fit_nvil(X, model, ANCHORS, fast(l2=0.01, epochs=2), 4, on_epoch=note, checkpoint=file)
    assert len(part.history) == 2
    longer = fit_nvil(X, model, ANCHORS, fast(l2=0.01, epochs=4), 4, on_epoch=note, checkpoint=file)
    assert len(longer.history) == 4
    resumed = fit_nvil(X, model, ANCHORS, fast(l2=0.01), 4, on_epoch=note, checkpoint=file)
    assert same(whole, resumed)
    again = fit_nvil(X, model, ANCHORS, fast(l2=0.01), 4, checkpoint=file)
    assert same(whole, again)
    assert (
        whole.best is not None
        and again.best is not None
        and again.best[0] == resumed.best[0] == max(again.history, key=lambda epoch: epoch.notes["score"])
    )
    assert np.array_equal(again.best[1].fail, whole.best[1].fail)


def test_interrupt_inside_an_epoch_loses_that_epoch_only(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(rng)
    X = draw(model, 150, rng)
    file = tmp_path / "run.course"
    whole = fit_nvil(X, model, ANCHORS, fast(), 4)
    steps, visits = itertools.count(), Training.visits

    def interrupted(self: Training, rows: torch.Tensor) -> torch.Tensor:
        if next(steps) == 17:  # the third step of the fourth epoch
            raise KeyboardInterrupt
        return visits(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "visits", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit_nvil(X, model, ANCHORS, fast(), 4, checkpoint=file)
    seen: list[int] = []
    resumed = fit_nvil(
        X, model, ANCHORS, fast(), 4, checkpoint=file, on_epoch=lambda epoch, model: seen.append(epoch.epoch)
    )
    assert seen == [4, 5, 6]
    assert same(whole, resumed)
    assert [path.name for path in tmp_path.iterdir()] == ["run.course"]


def test_checkpoint_of_another_run_or_a_damaged_one_is_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    model = toy_model(rng)
    X = draw(model, 60, rng)
    file = tmp_path / "run.course"
    fit_nvil(X, model, ANCHORS, fast(epochs=1), 4, checkpoint=file)
    for other in (
        lambda: fit_nvil(X, model, ANCHORS, fast(epochs=1), 5, checkpoint=file),
        lambda: fit_nvil(X, model, ANCHORS, fast(epochs=1, l2=0.1), 4, checkpoint=file),
        lambda: fit_nvil(X[:50], model, ANCHORS, fast(epochs=1), 4, checkpoint=file),
        lambda: fit_nvil(X, toy_model(rng), ANCHORS, fast(epochs=1), 4, checkpoint=file),
    ):
        with pytest.raises(ModelFileError, match="another run"):
            other()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ModelFileError, match="damaged"):
        fit_nvil(X, model, ANCHORS, fast(epochs=1), 4, checkpoint=file)


def test_parameters_at_the_edge_stay_finite(rng: np.random.Generator) -> None:
    """Anchors without false positives or misses, failures of exactly 0 and 1, leaks of 0: as moments may give them."""
    model = toy_model(rng)
    X = draw(model, 100, rng)
    fail, leak = model.fail.copy(), model.leak.copy()
    fail[np.arange(M), ANCHORS], leak[ANCHORS] = 0.0, 0.0
    fail[0, 1], fail[1, 1], leak[1] = 0.0, 1.0, 0.0
    result = fit_nvil(X, NoisyOr(model.prior, fail, leak), ANCHORS, fast(), 0)
    assert np.isfinite([record.bound for record in result.history]).all()
    assert np.isfinite(result.phi).all() and 0 < result.model.leak[1] < 1
    assert np.array_equal(result.model.fail[:, ANCHORS], fail[:, ANCHORS])


def test_weight_decay_shrinks_the_weights(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 200, rng)
    sizes = [np.abs(fit_nvil(X, model, ANCHORS, fast(l2=l2, epochs=10), 0).phi[:, :-1]).mean() for l2 in (0.0, 10.0)]
    assert sizes[1] < 0.5 * sizes[0]


def test_defaults_are_the_papers() -> None:
    s = NvilSettings()
    assert (s.samples, s.learning_rate, s.theta_rate, s.burn_in) == (10, 1e-4, 0.2, 50)
    assert (s.phi_range, s.hidden) == (0.1, 100)
    assert set(L2_CHOICES) == {0, 0.1, 0.01, 0.001}


@pytest.mark.parametrize(
    "changes", [{"samples": 0}, {"learning_rate": -1.0}, {"l2": float("nan")}, {"smoothing": 1.0}, {"margin": 0.0}]
)
def test_settings_out_of_range_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ModelError, match=next(iter(changes))):
        NvilSettings(**changes)  # type: ignore[arg-type]


def test_input_that_does_not_fit_is_refused(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 20, rng)
    coupling = np.zeros((M, M))
    coupling[0, 1] = coupling[1, 0] = 0.5
    for bad, message in [
        (lambda: fit_nvil(X[:, :8], model, ANCHORS), "9 findings"),
        (lambda: fit_nvil(2 * X, model, ANCHORS), "CSR matrix of ones"),
        (lambda: fit_nvil(X, model, ANCHORS[:3]), "each of the 4 conditions"),
        (lambda: fit_nvil(X, model, [0, 1, 2, 9]), "found 0 to 9"),
        (lambda: fit_nvil(X, dataclasses.replace(model, coupling=coupling), ANCHORS), "without coupling"),
    ]:
        with pytest.raises(ModelError, match=message):
            bad()
