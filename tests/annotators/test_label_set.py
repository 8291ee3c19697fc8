"""Labels of several files, in part and weighted; the rates that follow; conditions with neither anchor nor label."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.support.small_department import cohort
from whatelse.annotators import NoiseRates
from whatelse.annotators.label_set import LabelSet
from whatelse.annotators.votes import Votes
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, InputError
from whatelse.learning.rates import ASSUMED, LABELS, rates_of


def _file(path: Path, rows: dict[int, dict[str, str]], weight: dict[int, float] | None = None) -> Path:
    """A wide file: rows of the cohort -> condition -> cell."""
    conditions = sorted({c for cells in rows.values() for c in cells})
    head = ["visit", *(["weight"] if weight else []), *conditions]
    lines = [",".join(head)]
    for row, cells in rows.items():
        own = [cohort().ids[row], *([str(weight[row])] if weight else []), *(cells.get(c, "") for c in conditions)]
        lines.append(",".join(own))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def silenced(source: Cohort, condition: str) -> Cohort:
    """The cohort as it would be if a condition had no anchor."""
    X = source.X.copy().tolil()
    X[:, source.anchor_columns[source.conditions.index(condition)]] = 0
    return Cohort(csr_matrix(X), source.vocabulary, source.ids, source.Y, source.known)


def test_files_are_put_together(tmp_path: Path) -> None:
    one = _file(tmp_path / "one.csv", {3: {"fall": "1", "uti": ""}, 5: {"fall": "0", "uti": "1"}})
    two = _file(tmp_path / "two.csv", {5: {"fall": "0"}, 9: {"fall": "1"}}, weight={5: 4.0, 9: 0.5})
    found = LabelSet.read([one, two], cohort())
    fall, uti = cohort().conditions.index("fall"), cohort().conditions.index("uti")
    assert found.visits == 3 and found.known.sum() == 4
    assert (
        found.probability[3, fall] == found.probability[5, uti] == found.probability[9, fall] == 1
        and found.probability[5, fall] == 0
    )
    assert found.weight[9, fall] == 0.5 and found.weight[5, fall] == 1.0  # both say so: the first file's counts
    on = found.on(cohort())
    assert on.Y is not None and on.known.sum() == 4 and on.Y.sum() == 3
    rest = found.only(np.arange(len(cohort())) != 9)
    assert rest.visits == 2 and rest.weight[9].sum() == 0
    assert rest.then(found).known.sum() == 4


def test_a_list_that_nobody_filled_in_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has a label in .*: write 1 or 0 under its conditions"):
        LabelSet.read([_file(tmp_path / "empty.csv", {3: {"fall": "", "uti": ""}})], cohort())


def test_files_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    one = _file(tmp_path / "one.csv", {3: {"fall": "1"}, 4: {"fall": "0"}})
    two = _file(tmp_path / "two.csv", {3: {"fall": "0"}, 4: {"fall": "0"}})
    with pytest.raises(InputError, match=r"labels of 'two.csv' contradict others about fall of visit 4 .*\(one.csv\)"):
        LabelSet.read([one, two], cohort())
    nobody = tmp_path / "none.csv"
    nobody.write_text(f"visit,fall\n{cohort().ids[0]},\n", encoding="utf-8")
    with pytest.raises(InputError, match="no visit of the cohort has a label"):
        LabelSet.read([nobody], cohort())


def test_rates_come_from_whatever_labels_there_are() -> None:
    whole = cohort()
    assert whole.Y is not None
    found, source = rates_of(Cohort(whole.X, whole.vocabulary, whole.ids))
    assert source == ASSUMED and np.allclose(found.ppv, 0.5) and np.allclose(found.sensitivity, 0.5)
    found, source = rates_of(whole)
    assert source == LABELS
    assert np.allclose(found.sensitivity, NoiseRates.from_labels(whole.A, whole.Y, whole.conditions).sensitivity)
    some = LabelSet.of_cohort(whole).only(np.arange(len(whole)) < 600)
    plain, _ = rates_of(some.on(whole))
    weighted, _ = rates_of(some.on(whole), np.where(some.known, 3.0, 0.0))
    assert np.allclose(plain.prior, weighted.prior)  # weights all the same are no weights


def test_a_condition_needs_an_anchor_or_labels() -> None:
    whole = silenced(cohort(), "pneumonia")
    i = whole.conditions.index("pneumonia")
    with pytest.raises(CohortError, match=r"nothing can be learned about pneumonia: no anchor fires in 2,500 visits"):
        rates_of(Cohort(whole.X, whole.vocabulary, whole.ids))
    some = LabelSet.of_cohort(whole).only(np.arange(len(whole)) < 2000).on(whole)
    found, _ = rates_of(some)
    assert whole.Y is not None
    assert found.prior[i] == pytest.approx(whole.Y[:2000, i].mean(), rel=0.1)
    assert found.sensitivity[i] == pytest.approx(10 * found.false_positive[i]) and not found.uninformative
    few = LabelSet.of_cohort(whole).only(np.arange(len(whole)) < 60).on(whole)
    with pytest.raises(CohortError, match="fewer than 10 labelled visits"):
        rates_of(few)


def test_votes_of_a_program_are_labels_that_may_be_wrong(tmp_path: Path) -> None:
    whole = cohort()
    assert whole.Y is not None
    rng, fall = np.random.default_rng(0), whole.conditions.index("fall")
    wrong = rng.random(len(whole)) < 0.1
    lines = ["visit,condition,value,annotator"]
    lines += [f"{v},fall,{int(whole.Y[k, fall] ^ wrong[k])},model A" for k, v in enumerate(whole.ids)]
    (tmp_path / "votes.csv").write_text("\n".join(lines), encoding="utf-8")
    labels = _file(tmp_path / "labels.csv", {k: {"fall": str(int(whole.Y[k, fall]))} for k in range(800)})
    found = LabelSet.read([tmp_path / "votes.csv", labels], whole)
    program, label = found.votes
    assert not found.certain and label.certain and program.false_positive is not None
    assert program.false_positive[fall] == pytest.approx(0.1, abs=0.03)
    assert np.array_equal(found.probability[:800, fall], whole.Y[:800, fall])  # labels count before votes
    rest = found.probability[800:, fall]
    assert ((rest > 0) & (rest < 1)).all()
    assert np.allclose(found.likelihood()[:800, fall], whole.Y[:800, fall])


def test_votes_that_agree_with_anchors_by_chance_count_nothing_unless_labels_check_them() -> None:
    whole = cohort()
    assert whole.Y is not None
    everywhere = np.ones(whole.A.shape, bool)
    chance = np.random.default_rng(0).random(whole.A.shape) < 0.1
    coin = Votes("coin", chance, everywhere, kind="program")
    with pytest.warns(UserWarning, match="'coin' agree with the anchors no more often than by chance"):
        found = LabelSet.of_votes([coin], whole)
    assert not found.known.any() and not found.likelihood().any()
    good = Votes(
        "program",
        whole.Y ^ (chance & (np.random.default_rng(1).random(chance.shape) < 0.1)),
        everywhere,
        kind="program",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LabelSet.of_votes([good], whole).known.all()
        labels = Votes("labels", whole.Y, np.arange(len(whole)) < 500)
        checked = LabelSet.of_votes([labels, coin], whole)
    assert checked.known[500:].mean() < 0.2  # labels show that nearly all of its votes say nothing
