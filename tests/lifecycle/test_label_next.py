"""Which visits to label next: known chances, weights that undo them, lists that go on, and the command."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit
from typer.testing import CliRunner

from tests.support.small_department import cohort, visits
from whatelse.annotators import NoiseRates
from whatelse.annotators.vote_files import read_votes
from whatelse.cli import app
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import CohortError, InputError
from whatelse.lifecycle.label_next import LabelNext, guess_probabilities, informativeness, label_next, write_sheet
from whatelse.sources import write_visits
from whatelse.visits import Visit


def department(rng: np.random.Generator, n: int = 30_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Anchors, conditions and a rough model's probabilities of 12 conditions, most of them rare."""
    prior, sensitivity = np.geomspace(0.08, 0.003, 12), np.tile([0.2, 0.5, 0.8], 4)
    wrong = np.tile([0.1, 0.5, 1.0, 4.0], 3)
    score = rng.normal(size=(n, 12))
    odds = np.exp(2 * score) * prior / (1 - prior) / np.exp(2)
    Y = rng.random((n, 12)) < odds / (1 + odds)
    A = np.where(Y, rng.random((n, 12)) < sensitivity, rng.random((n, 12)) < wrong * prior * sensitivity)
    rough = np.exp(1.5 * score) * prior
    return A, Y, rough / (1 + rough)


def _table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines(keepends=True)))


def test_visits_are_chosen_as_often_as_they_are_said_to_be(rng: np.random.Generator) -> None:
    A, _, probability = department(rng, 400)
    chosen, chance = np.zeros(400), np.zeros(400)
    for seed in range(3000):
        found = label_next(A, probability, 40, seed=seed)
        chosen[found.rows] += 1 / 3000
        chance[found.rows] = found.chance
    assert chance.sum() == pytest.approx(40, rel=0.01) and len(np.unique(found.rows)) == 40
    error = (chosen - chance) / np.sqrt(chance * (1 - chance) / 3000 + 1e-12)
    assert np.sqrt(np.mean(error**2)) < 1.6  # sequential Poisson sampling is exact only in the limit
    np.testing.assert_allclose(found.weights * found.chance, 40 / 400)


def test_the_chances_are_the_best_ones(rng: np.random.Generator) -> None:
    """The variance they should minimise, at them and at others."""
    A, _, p = department(rng, 2000)
    missed = np.where(A, 0, p)
    worth = (missed / missed.sum(0) + 4 * A / A.sum(0)).sum(1)
    best = informativeness(A, p)

    def variance(c: np.ndarray) -> float:
        return float((worth / (c / c.sum())).sum())

    for step in (0.01, 0.3):
        assert variance(best) < variance(best * np.exp(step * rng.normal(size=2000)))
    assert variance(best) < 0.7 * variance(np.ones(2000))


def test_labels_of_chosen_visits_say_more_than_labels_at_random(rng: np.random.Generator) -> None:
    A, Y, probability = department(rng)
    true = NoiseRates.from_labels(A, Y)
    error: dict[str, list[float]] = {"random": [], "chosen": []}
    for seed in range(10):
        found = label_next(A, probability, 300, seed=seed)
        at_random = np.random.default_rng(seed).choice(len(A), 300, replace=False)
        for name, rows, weights in (("random", at_random, None), ("chosen", found.rows, found.weights)):
            rates = NoiseRates.from_sample(A, Y[rows], rows, weights=weights)
            wrong = np.abs(logit(rates.ppv) - logit(true.ppv)) + np.abs(logit(rates.fn) - logit(true.fn))
            error[name].append(float(wrong.mean()))
    mean = {name: float(np.mean(values)) for name, values in error.items()}
    assert mean["chosen"] < 0.92 * mean["random"], mean


def test_weights_undo_the_choice(rng: np.random.Generator) -> None:
    """Visits that look like missed cases are chosen more often: counted alike they would make fn too high."""
    A, Y, probability = (array[:, :2] for array in department(rng))
    true = NoiseRates.from_labels(A, Y)
    found = label_next(A, probability, 4000)
    weighted, alike = (
        NoiseRates.from_sample(A, Y[found.rows], found.rows, weights=weights) for weights in (found.weights, None)
    )
    assert abs((logit(weighted.fn) - logit(true.fn)).mean()) < 0.1
    assert (logit(alike.fn) - logit(true.fn)).mean() > 0.25


def test_a_list_goes_on_where_it_stopped() -> None:
    train = cohort()
    probability = guess_probabilities(train)
    assert probability.shape == train.A.shape and (probability >= 0).all() and (probability <= 1).all()
    short, long = (label_next(train.A, probability, count, seed=3) for count in (20, 50))
    assert (long.rows[:20] == short.rows).all()
    np.testing.assert_allclose(long.weights[:20], short.weights)
    rest = label_next(train.A, probability, 30, seed=3, done=short.rows)
    assert (rest.rows == long.rows[20:]).all()
    np.testing.assert_allclose(rest.weights, long.weights[20:])
    every = label_next(train.A, probability, len(train))
    np.testing.assert_allclose(every.chance, 1)
    with pytest.raises(CohortError, match="not labelled yet: ask for no more"):
        label_next(train.A, probability, len(train), done=[0])


def test_the_list_can_be_filled_in_and_used(tmp_path: Path) -> None:
    train = cohort()
    assert train.Y is not None
    Cohort(train.X, train.vocabulary, train.ids).save(tmp_path / "bare")
    out = tmp_path / "list.csv"

    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        return f"{result.exit_code} {result.output}"

    assumed = run("fit", tmp_path / "bare", "--out", tmp_path / "m")  # without labels: typical rates, and what is next
    assert assumed.startswith("0 ") and "whatelse anchors label-next" in " ".join(assumed.split())
    listed = run("anchors", "label-next", tmp_path / "bare", "--count", 60, "--out", out)
    assert listed.startswith("0 note: the list has ids only") and "60 visits to label" in listed
    where = {str(visit): row for row, visit in enumerate(train.ids)}
    rows = _table(out)
    for row in rows:
        row |= {c: str(int(train.Y[where[row["visit"]], i])) for i, c in enumerate(train.conditions)}
    filled = tmp_path / "filled.csv"
    with filled.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    number = [where[row["visit"]] for row in rows]
    (votes,) = read_votes(filled, train)
    assert np.array_equal(np.flatnonzero(votes.known.any(1)), sorted(number))
    assert np.array_equal(votes.value[number], train.Y[number])
    assert votes.weight[number, 0].tolist() == [float(row["weight"]) for row in rows]
    more = tmp_path / "more.csv"
    assert run("anchors", "label-next", tmp_path / "bare", "--labels", filled, "--count", 5, "--out", more)[0] == "0"
    assert not {row["visit"] for row in _table(more)} & {row["visit"] for row in rows}
    assert "learned 23" in run(
        "fit", tmp_path / "bare", "--learner", "naive", "--labels", filled, "--out", tmp_path / "m"
    )
    run("anchors", "label-next", tmp_path / "bare", "--model", tmp_path / "m", "--count", 5, "--out", more)
    assert len(more.read_text(encoding="utf-8").splitlines()) == 6


@pytest.fixture
def read_again(tmp_path: Path) -> Path:
    """A cohort whose records can be read again."""
    write_visits(visits("train")[:300], tmp_path / "visits.jsonl")
    arguments = ["build", "table", tmp_path / "visits.jsonl", "--out", tmp_path / "c"]
    assert CliRunner().invoke(app, [str(a) for a in arguments]).exit_code == 0
    return tmp_path / "c"


def _run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["anchors", "label-next", *map(str, arguments)])
    return result.exit_code, " ".join(result.output.split())


def test_the_sheet_carries_what_a_person_needs_and_says_so(read_again: Path, tmp_path: Path) -> None:
    out = tmp_path / "list with blanks.csv"
    code, said = _run(read_again, "--count", 20, "--out", out)
    assert code == 0 and "holds text of the records" in said and "--out model" in said and "'" in said
    by_id = {visit.id: visit for visit in visits("train")}
    rows = _table(out)
    assert len(rows) == 20
    for row in rows:
        record = by_id[row["visit"]]
        assert row["record: triage note"].removeprefix("'") == record.triage_note
        assert row["record: sex"] == record.sex and "record: billing" not in row and "record: truth" not in row
    assert not read_votes(out, Cohort.open(read_again))[0].known.any()  # it is read back, though it holds no label yet
    assert "text of the records" not in _run(read_again, "--count", 20, "--out", tmp_path / "b.csv", "--no-text")[1]
    assert not any(name.startswith("record") for name in _table(tmp_path / "b.csv")[0])
    (tmp_path / "visits.jsonl").rename(tmp_path / "moved.jsonl")
    code, said = _run(read_again, "--count", 20, "--out", tmp_path / "b.csv")
    assert code == 0 and "ids only" in said and "give --visits" in said
    _run(read_again, "--count", 20, "--out", tmp_path / "b.csv", "--visits", tmp_path / "moved.jsonl")
    assert _table(tmp_path / "b.csv") == rows


def test_labels_are_never_overwritten(read_again: Path, tmp_path: Path) -> None:
    out = tmp_path / "list.csv"
    _run(read_again, "--count", 10, "--out", out)
    assert _run(read_again, "--count", 12, "--out", out)[0] == 0  # nothing was filled in yet
    rows = _table(out)
    rows[3]["fall"] = "0"
    with out.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    before = out.read_bytes()
    code, said = _run(read_again, "--count", 12, "--out", out)
    assert code == 2 and "holds 1 labels" in said and "--labels to go on" in said and out.read_bytes() == before
    (tmp_path / "letter.txt").write_text("Dear colleague", encoding="utf-8")
    code, said = _run(read_again, "--count", 12, "--out", tmp_path / "letter.txt")
    assert code == 2 and "is not a list of visits to label" in said
    assert (tmp_path / "letter.txt").read_text(encoding="utf-8") == "Dear colleague"
    assert _run(read_again, "--count", 5, "--labels", out, "--out", tmp_path / "more.csv")[0] == 0


def test_visits_at_random_all_weigh_the_same(read_again: Path, tmp_path: Path) -> None:
    code, said = _run(read_again, "--count", 40, "--at-random", "--out", tmp_path / "r.csv")
    assert code == 0 and "whatelse evaluate MODEL" in said
    rows = _table(tmp_path / "r.csv")
    assert len({row["visit"] for row in rows}) == 40 and {row["weight"] for row in rows} == {"1"}
    assert {row["chance"] for row in rows} == {f"{40 / 300:.6g}"}


def test_no_cell_of_the_sheet_is_a_formula(tmp_path: Path) -> None:
    record = Visit("1", chief_complaint='=HYPERLINK("x")', triage_note="-fever", md_comments="@x")
    made = build_cohort([record])
    chosen = LabelNext(np.array([0]), np.array([1.0]), np.array([1.0]))
    write_sheet(tmp_path / "s.csv", made, chosen, {"1": record})
    (row,) = _table(tmp_path / "s.csv")
    texts = [row[f"record: {name}"] for name in ("chief complaint", "triage note", "md comments")]
    assert texts == ['\'=HYPERLINK("x")', "'-fever", "'@x"]


@pytest.mark.parametrize(("weight", "says"), [("", "above 0"), ("0", "above 0"), ("inf", "above 0"), ("x", "above 0")])
def test_weights_that_cannot_be_used(weight: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(f"visit,weight,fall\n{cohort().ids[0]},{weight},1\n", encoding="utf-8")
    with pytest.raises(InputError, match=says):
        read_votes(path, cohort())
    path.write_text(
        f"visit,weight,condition,label\n{cohort().ids[0]},1,fall,1\n{cohort().ids[0]},2,uti,1\n", encoding="utf-8"
    )
    with pytest.raises(InputError, match="two weights"):
        read_votes(path, cohort())
