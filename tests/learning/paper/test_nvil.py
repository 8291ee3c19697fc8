"""NVIL: hand-derived gradients against enumeration and autograd, what must not move, and stopping and resuming."""

from __future__ import annotations

import dataclasses
import itertools
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
from whatelse.learning.paper.nvil import likelihood  # noqa: E402
from whatelse.learning.paper.nvil.learner import L2_CHOICES, EpochEnd, EpochRecord, NvilResult, NvilSettings, fit_nvil  # noqa: E402
from whatelse.learning.paper.nvil.training import Batch, Training, censored_logits, log_bernoulli, recognition_gradient  # noqa: E402


def log_likelihood(
    t: Training, batch: Batch, y: torch.Tensor, weight: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    table = likelihood.cost_table(t.parameters["u"], t.fixed, t.free)
    weight = torch.ones_like(y[:, :, 0]) if weight is None else weight
    log_p, gradient = likelihood.log_likelihood(table, batch.columns, y, weight, gradient=True)
    without, nothing = likelihood.log_likelihood(table, batch.columns, y, weight, gradient=False)
    assert gradient is not None and nothing is None and torch.equal(log_p, without)
    return log_p, gradient * t.free


def test_log_likelihood_equals_the_papers_product(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 30, rng)
    t = train_state(model, X)
    batch, y = t.visits.batch(torch.arange(30)), every_state(30)
    log_p = log_likelihood(t, batch, y)[0] + log_bernoulli(y, t.prior_logits)
    expected = [[log_joint(model, x, state) for state in STATES] for x in X.toarray()]
    np.testing.assert_allclose(log_p.numpy(), expected, rtol=1e-9)


def test_long_visits_in_single_precision_equal_a_loop(rng: np.random.Generator) -> None:
    """Hundreds of unlikely findings present: the product of chances passes the range of floats many times."""
    n, m, visits, samples = 600, 6, 5, 4
    table = torch.as_tensor(rng.exponential(1e-3, (n, m + 1)), dtype=torch.float32)
    x = rng.random((visits, n)) < 0.9
    x[3] = False
    columns = torch.tensor([[*np.flatnonzero(row), *[n] * (n - row.sum())] for row in x])
    y = torch.as_tensor(rng.random((visits, samples, m)) < 0.4, dtype=torch.float32)
    weight = torch.as_tensor(rng.random((visits, samples)), dtype=torch.float32)
    log_p, gradient = likelihood.log_likelihood(table, columns, y, weight, gradient=True)
    w = table.double().requires_grad_()
    causes = torch.cat([y, torch.ones(visits, samples, 1)], 2).double()
    z = causes @ w.T
    present = torch.as_tensor(x)[:, None]
    each = torch.where(present, torch.log(-torch.expm1(-z).clamp(max=-likelihood.SMALLEST_CHANCE)), -z).sum(2)
    (each * weight).sum().backward()  # type: ignore[no-untyped-call]
    assert float(log_p.min()) < -1500 and w.grad is not None and gradient is not None
    torch.testing.assert_close(log_p.double(), each.detach(), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(gradient.double(), w.grad * -torch.expm1(-table.double()), rtol=1e-4, atol=1e-3)


def test_batch_is_centred_and_padded_and_survives_visits_with_nothing_present(rng: np.random.Generator) -> None:
    X = csr_matrix(np.array([[0] * 9, [1, 0, 0, 0, 0, 0, 0, 0, 1], [0] * 9], np.uint8))
    t = train_state(toy_model(rng), X)
    batch = t.visits.batch(torch.tensor([2, 1]))
    dense = np.hstack([X.toarray()[[2, 1]] - X.toarray().mean(0), np.ones((2, 1))])
    np.testing.assert_allclose(batch.x.numpy(), dense, rtol=1e-12)
    assert batch.columns.tolist() == [[9, 9], [0, 8]]
    assert batch.anchors.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
    empty = train_state(toy_model(rng), csr_matrix((3, 9), dtype=np.uint8))
    assert empty.visits.batch(torch.tensor([0, 1])).columns.tolist() == [[9], [9]]


def test_expected_score_function_gradient_is_the_gradient_of_the_enumerated_objective(rng: np.random.Generator) -> None:
    """Every state weighted by q(y | x), and any baseline taken off the signal: exact for theta, phi and phi_0'."""
    model = toy_model(rng)
    t = train_state(model, draw(model, 12, rng), phi_range=0.8)
    batch, y, now = t.visits.batch(torch.arange(12)), every_state(12), t.parameters
    exact = exact_gradients(t, batch, supervised=0.7)

    logits = batch.x @ now["phi"].T
    q, log_q = torch.sigmoid(logits), log_bernoulli(y, logits)
    weight = log_q.exp()
    log_p, u = log_likelihood(t, batch, y, weight)
    torch.testing.assert_close(u, exact["u"], rtol=1e-9, atol=1e-10)
    assert not u[~t.free].any()

    baseline = torch.as_tensor(rng.normal(size=(12, 1)) * 5)
    signal = weight * (log_p + log_bernoulli(y, t.prior_logits) - log_q - baseline)
    pull = torch.einsum("bs,bsi->bi", signal, y - q[:, None])
    blind = censored_logits(batch, logits, now["phi"], now["phi_extra"], t.visits.anchor_columns)
    supervised_pull = 0.7 * (batch.anchors - torch.sigmoid(blind))
    phi, extra = recognition_gradient(batch, pull, supervised_pull, t.visits.anchor_columns)
    torch.testing.assert_close(phi, exact["phi"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(extra, exact["phi_extra"], rtol=1e-9, atol=1e-10)


def test_sampled_gradient_averages_to_the_exact_one(rng: np.random.Generator) -> None:
    """The gradient that training really takes, over many draws, within its own standard error."""
    model = toy_model(rng)
    t = train_state(model, draw(model, 6, rng), samples=2_000, supervised=0.5, phi_range=0.5, l2=0.3)
    batch = t.visits.batch(torch.arange(6))
    exact = exact_gradients(t, batch, supervised=0.0)
    anchor_part = {name: value - exact[name] for name, value in exact_gradients(t, batch, supervised=0.5).items()}
    random = torch.Generator().manual_seed(1)
    draws: dict[str, list[torch.Tensor]] = {"u": [], "phi": []}
    for _ in range(100):
        ascent, _ = t.gradients(batch, random, 0.0, theta=True)
        draws["u"].append(ascent["u"] * 6)
        # Undo what is not the score function: weight decay, the supervised term, the division of the signal.
        decay = 0.3 * t.parameters["phi"].clone()
        decay[:, -1] = 0.0
        score = (ascent["phi"] + decay) * 6 - anchor_part["phi"]
        draws["phi"].append(score * t.moments[1].sqrt().clamp(min=1.0))
    for name, values in draws.items():
        stack = torch.stack(values)
        error = (stack.mean(0) - exact[name]).abs() / (stack.std(0) / 10 + 1e-12)
        assert error.max() < 4.5, name
        assert error.square().mean() < 2.0, name


def test_baseline_gradient_lowers_the_squared_signal(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    t = train_state(model, draw(model, 8, rng), samples=50)
    batch = t.visits.batch(torch.arange(8))

    def half_square(hidden: torch.Tensor, out: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
        return -0.5 * ((signal - (torch.tanh(batch.x @ hidden) @ out)[:, None]) ** 2).sum() / 50

    ascent, _ = t.gradients(batch, torch.Generator().manual_seed(5), 0.0, theta=False)
    centre, scale = t.moments[0], t.moments[1].sqrt().clamp(min=1.0)
    # The same draws again, with no baseline and moments held fixed, give the signal that it has to predict.
    hidden, out = t.parameters["hidden"], t.parameters["out"]
    q = torch.sigmoid(batch.x @ t.parameters["phi"].T)
    uniform = torch.rand(8, 50, M, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y = (uniform < q[:, None]).double()
    target = log_likelihood(t, batch, y)[0] + log_bernoulli(y, t.prior_logits)
    target = target - log_bernoulli(y, batch.x @ t.parameters["phi"].T) - centre
    leaves = [hidden.clone().requires_grad_(), out.clone().requires_grad_()]
    half_square(leaves[0], leaves[1], target).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ascent["hidden"] * 8 * scale, leaves[0].grad, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(ascent["out"] * 8 * scale, leaves[1].grad, rtol=1e-9, atol=1e-10)


def test_supervised_term_sees_no_anchor(rng: np.random.Generator) -> None:
    model = toy_model(rng)
    X = draw(model, 10, rng)
    flipped = X.toarray()
    flipped[:, ANCHORS] = 1 - flipped[:, ANCHORS]
    t, phi = train_state(model, X), train_state(model, X).parameters["phi"]
    batch = t.visits.batch(torch.arange(10))
    other = dataclasses.replace(train_state(model, csr_matrix(flipped)).visits, centre=t.visits.centre).batch(
        torch.arange(10)
    )
    extra, columns = t.parameters["phi_extra"], t.visits.anchor_columns
    blind = censored_logits(batch, batch.x @ phi.T, phi, extra, columns)
    torch.testing.assert_close(blind, censored_logits(other, other.x @ phi.T, phi, extra, columns))
    gradient, _ = recognition_gradient(batch, torch.zeros_like(blind), batch.anchors - blind.sigmoid(), columns)
    assert gradient[:, ANCHORS].abs().max() < 1e-12
    assert gradient.abs().sum() > 1


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
        on_epoch=lambda end: models.append(end.model()),
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
    fit_nvil(X, truth, ANCHORS, fast(), 0, on_epoch=lambda end: models.append(end.model()))
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
                X, model, ANCHORS, fast(epochs=3), 1, on_epoch=lambda _: inside.append(torch.get_num_threads())
            )
            results.append(run)
    finally:
        torch.set_num_threads(before)
    assert same(*results)
    assert inside == [1, 1, 1, 2, 2, 2]


def test_stopped_and_resumed_is_bit_for_bit_uninterrupted(rng: np.random.Generator, tmp_path: Path) -> None:
    model = toy_model(rng)
    X = draw(model, 150, rng)
    file = tmp_path / "run.safetensors"

    def note(end: EpochEnd) -> None:
        end.notes["leak"] = float(end.model().leak.mean())

    whole = fit_nvil(X, model, ANCHORS, fast(l2=0.01), 4, on_epoch=note)
    part = fit_nvil(X, model, ANCHORS, fast(l2=0.01, epochs=2), 4, on_epoch=note, checkpoint=file)
    assert len(part.history) == 2
    longer = fit_nvil(X, model, ANCHORS, fast(l2=0.01, epochs=4), 4, on_epoch=note, checkpoint=file)
    assert len(longer.history) == 4
    resumed = fit_nvil(X, model, ANCHORS, fast(l2=0.01), 4, on_epoch=note, checkpoint=file)
    assert same(whole, resumed)
    again = fit_nvil(X, model, ANCHORS, fast(l2=0.01), 4, checkpoint=file)
    assert same(whole, again) and all(type(record) is EpochRecord for record in again.history)


def test_interrupt_inside_an_epoch_loses_that_epoch_only(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy_model(rng)
    X = draw(model, 150, rng)
    file = tmp_path / "run.safetensors"
    whole = fit_nvil(X, model, ANCHORS, fast(), 4)
    steps, move = itertools.count(), Training.move

    def interrupted(self: Training, ascent: dict[str, torch.Tensor]) -> None:
        if next(steps) == 17:  # the third step of the fourth epoch
            raise KeyboardInterrupt
        move(self, ascent)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "move", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit_nvil(X, model, ANCHORS, fast(), 4, checkpoint=file)
    seen: list[int] = []
    resumed = fit_nvil(X, model, ANCHORS, fast(), 4, checkpoint=file, on_epoch=lambda end: seen.append(end.epoch))
    assert seen == [4, 5, 6]
    assert same(whole, resumed)
    assert [path.name for path in tmp_path.iterdir()] == ["run.safetensors"]


def test_checkpoint_of_another_run_or_a_damaged_one_is_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    model = toy_model(rng)
    X = draw(model, 60, rng)
    file = tmp_path / "run.safetensors"
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
