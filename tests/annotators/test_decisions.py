"""Decisions as labels: what was looked at, who erred, and what it costs to ignore that."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.support.small_department import cohort
from whatelse.annotators.decisions import CAP, ERROR, Opinion, combine, judge, looking, opinions_of, read_opinions
from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.store import Decision, Store
from whatelse.store.history import Entry
from whatelse.store.labels import labels, to_csv, to_parquet


def _line(
    version: int, subject: str, verdict: str, actor: str = "ann", undoes: int | None = None, **shown: Any
) -> Entry:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    return Entry("v", version, "tag", subject, verdict, undoes, actor, at, "model", shown, f"r{version}")


def test_a_persons_last_word_counts_and_what_is_taken_back_does_not() -> None:
    lines = [
        _line(1, "fall", "confirmed", rank=1, probability=0.8, confirmed=[], rejected=[]),
        _line(2, "uti", "confirmed", rank=2, probability=0.4, confirmed=["fall"], rejected=[]),
        _line(3, "fall", "rejected", "bob", rank=None),
        _line(4, "uti", "rejected", rank=3, probability=0.3, confirmed=[], rejected=["fall"]),
        _line(5, "sepsis", "confirmed"),
        _line(6, "sepsis", "open", undoes=5),
        _line(7, "stroke", "rejected"),
        _line(8, "stroke", "open", "bob"),
    ]
    found = {(o.condition, o.person): o for o in opinions_of(lines)}
    assert set(found) == {("fall", "ann"), ("fall", "bob"), ("uti", "ann")}
    assert (
        found["fall", "ann"].confirmed and not found["fall", "bob"].confirmed and found["fall", "bob"].position is None
    )
    assert not found["uti", "ann"].confirmed and found["uti", "ann"].position == 4  # third, with one decided before


def test_looking_never_rises_and_rare_places_count_more() -> None:
    looked = looking([1] * 90 + [2] * 50 + [3] * 60 + [5] * 4 + [None] * 7, 100)
    assert len(looked) == 5 and (np.diff(looked) <= 0).all() and looked[0] == pytest.approx(90.5 / 101)
    assert looked[1] == looked[2] == pytest.approx(55.5 / 101)
    said = [Opinion(f"v{k}", "fall", True, "ann", place, 0.5) for k, place in enumerate([1] * 90 + [5] * 3)]
    found = combine(said)
    assert found.weight["v0", "fall"] == 1.0 and found.weight["v92", "fall"] == CAP
    assert combine([Opinion("v", "fall", True, "ann")]).weight["v", "fall"] == 1.0


def test_errors_are_found_where_people_decide_twice_and_assumed_where_not() -> None:
    rng = np.random.default_rng(0)
    truth, shown = [], []
    for _ in range(6000):
        p = float(rng.choice([0.03, 0.3, 0.7]))
        shown.append(p)
        truth.append(bool(rng.random() < p))
    a, b = 0.04, 0.15  # false confirmations, false rejections

    def opinions(people: int) -> list[Opinion]:
        rng = np.random.default_rng(1)
        return [
            Opinion(f"v{k}", "fall", bool(rng.random() < ((1 - b) if y else a)), f"p{person}", 1, p)
            for k, (y, p) in enumerate(zip(truth, shown, strict=True))
            for person in range(people)
        ]

    thrice = combine(opinions(3))
    assert thrice.false_confirm == pytest.approx(a, abs=0.012) and thrice.false_reject == pytest.approx(b, abs=0.02)
    once = combine(opinions(1))
    assert once.false_confirm == pytest.approx(ERROR, abs=0.02) and once.false_reject == pytest.approx(ERROR, abs=0.02)
    chance = np.array([thrice.chance[f"v{k}", "fall"] for k in range(6000)])
    said = {o.visit: [] for o in opinions(3)}
    for o in opinions(3):
        said[o.visit].append(o.confirmed)
    majority = np.array([sum(said[f"v{k}"]) >= 2 for k in range(6000)])
    together = [np.log((1 - thrice.false_reject) / thrice.false_confirm) * sum(votes) for votes in said.values()]
    against = np.log(thrice.false_reject / (1 - thrice.false_confirm))
    together = np.array(together) + [against * (3 - sum(votes)) for votes in said.values()]
    names = cohort().vocabulary
    ids = np.array([f"v{k}" for k in range(6000)], object)
    made = Cohort(csr_matrix((6000, len(names.names)), dtype=np.uint8), names, ids)
    as_labels, fall = thrice.labels(made), made.conditions.index("fall")
    np.testing.assert_allclose(as_labels.likelihood()[:, fall], 1 / (1 + np.exp(-together)))
    assert [votes.annotator for votes in as_labels.votes] == ["people"] * 3 and as_labels.known.sum() == 6000
    np.testing.assert_allclose(as_labels.probability[:, fall], chance)
    brier, by_majority = np.mean((chance - truth) ** 2), np.mean((majority - np.array(truth, float)) ** 2)
    assert brier < 0.8 * by_majority  # the majority is not the truth
    assert chance.sum() == pytest.approx(sum(truth), rel=0.03)


def test_a_model_that_is_too_sure_does_not_make_people_err() -> None:
    """Shown with 0.9 to 0.9999 and true six times in ten: who rejects the rest does not err."""
    rng = np.random.default_rng(2)
    sure = rng.random(3000) < 0.3
    truth = rng.random(3000) < np.where(sure, 0.6, 0.01)
    shown = np.where(sure, 1 - 10.0 ** rng.uniform(-4, -1, 3000), 0.002)
    yes = (truth ^ (rng.random(3000) < 0.05)).astype(float)
    a, b, _ = judge(yes, 1 - yes, shown, None)
    assert a < 0.07 and b < 0.07


def test_judging_is_bayes_when_the_error_is_given() -> None:
    """Against the posterior written out: one bin, known chance in the limit of many tags."""
    yes, no = np.array([1.0] * 300 + [0.0] * 700), np.array([0.0] * 300 + [1.0] * 700)
    a, b, chance = judge(yes, no, np.full(1000, 0.3), 0.05)
    assert a == b == 0.05
    p = (0.3 - 0.05) / 0.9  # what share of true tags makes 30% confirmations
    expected = p * 0.95 / (p * 0.95 + (1 - p) * 0.05)
    assert chance[0] == pytest.approx(expected, abs=0.01)


def test_weights_undo_that_only_the_top_of_the_list_is_looked_at() -> None:
    """How common a condition is, from decisions: right with weights, far off without them."""
    rng = np.random.default_rng(3)
    opinions, truths = [], []
    for v in range(4000):
        p = np.sort(rng.beta(0.4, 3.0, size=8))[::-1]
        y = rng.random(8) < p
        truths.append(y.mean())
        looked = np.flatnonzero(rng.random(8) < 0.75 ** np.arange(8)).tolist()
        opinions += [Opinion(f"v{v}", f"c{k}", bool(y[k]), "ann", k + 1, float(p[k])) for k in looked]
    found = combine(opinions, error=0.001)
    weight = np.array([found.weight[o.visit, o.condition] for o in opinions])
    told = np.array([o.confirmed for o in opinions], float)
    true = float(np.mean(truths))
    assert (weight @ told) / weight.sum() == pytest.approx(true, rel=0.06)
    assert told.mean() > 1.4 * true


def test_from_a_database_and_from_its_export(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    shown = {"rank": 2, "probability": 0.25, "of": 22, "confirmed": ["uti"], "rejected": []}
    for k, (visit, verdict, actor) in enumerate([("-v1", "confirmed", "ann"), ("v2", "rejected", "=bob")]):
        store.record(Decision(visit, 0, "tag", "fall", verdict, actor, "m", f"request{k}", shown)).result()  # type: ignore[arg-type]
    direct = list(opinions_of(store.tag_lines()))
    (tmp_path / "d.csv").write_text("".join(to_csv(labels(store))), encoding="utf-8")
    with (tmp_path / "d.parquet").open("wb") as stream:
        to_parquet(labels(store), stream)
    store.close()
    assert [(o.visit, o.confirmed, o.position, o.probability) for o in direct] == [
        ("-v1", True, 3, 0.25),
        ("v2", False, 3, 0.25),
    ]
    for name in ("d.csv", "d.parquet"):
        again = list(read_opinions(tmp_path / name))
        assert [(o.visit, o.person, o.position) for o in again] == [(o.visit, o.person, o.position) for o in direct]
    (tmp_path / "bad.csv").write_text("visit,condition,label\nv,fall,maybe\n", encoding="utf-8")
    with pytest.raises(InputError, match="row 1: is not a row of decisions"):
        list(read_opinions(tmp_path / "bad.csv"))
    for rank, probability in (("-3", "0.5"), ("0", "0.5"), (str(10**12), "0.5"), ("1", "nan"), ("1", "5")):
        (tmp_path / "bad.csv").write_text(
            f"visit,condition,label,actor,rank,probability\nv,fall,1,ann,{rank},{probability}\n", encoding="utf-8"
        )
        with pytest.raises(InputError, match=r"row 1: .* rank \(from 1\) and probability \(0 to 1\)"):
            list(read_opinions(tmp_path / "bad.csv"))
    with pytest.raises(InputError, match="no decisions"):
        combine([])
