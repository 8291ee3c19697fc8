"""fit, evaluate, tag, reproduce and demo, as a person runs them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.small_department import cohort, visits
from whatelse.annotators import NoiseRates
from whatelse.cli import app
from whatelse.cohort import Cohort
from whatelse.evaluation.rows import ELKAN_NOTO, OURS, TAUGHT, TOLERANT
from whatelse.sources.write import write_visits
from whatelse.store import Decision, Store
from whatelse.tagger import Tagger


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cohorts `train`, `test` and `bare` (no labels), records, and a model."""
    here = tmp_path_factory.mktemp("learn")
    cohort().save(here / "train")
    cohort("test").save(here / "test")
    whole = cohort()
    Cohort(whole.X, whole.vocabulary, whole.ids).save(here / "bare")
    write_visits(iter(visits("test")[:40]), here / "visits.jsonl")
    run("fit", here / "train", "--learner", "naive", "--out", here / "model")
    return here


def test_fit_says_what_was_learned_and_what_is_next(folder: Path) -> None:
    out = run("fit", folder / "train", "--learner", "moments", "--out", folder / "m")
    assert "learned 23 conditions x" in out and "2,500 visits" in out and "moments, converged" in out
    assert f"next: whatelse evaluate {folder / 'm'}" in out


def test_fit_by_default_and_what_it_refuses(folder: Path) -> None:
    run("fit", folder / "train", "--setting", "knowledge=false", "--out", folder / "d")
    assert Tagger.load(folder / "d").settings == {"knowledge": False}
    assert "there is no learner 'magic'" in run(
        "fit", folder / "train", "--learner", "magic", "--out", folder / "x", code=2
    )
    assert "needs NAME=VALUE" in run("fit", folder / "train", "--setting", "knowledge", "--out", folder / "x", code=2)
    assert not (folder / "x").exists()


def test_fit_says_what_became_of_the_knowledge(folder: Path, tmp_path: Path) -> None:
    out = run("fit", folder / "train", "--out", tmp_path / "m")
    assert "knowledge: " in out and "the records moved" in out
    kept = Tagger.load(tmp_path / "m").notes_["knowledge"]
    assert kept["conditions"] >= 20 and kept["findings"] > 100
    out = run("fit", folder / "train", "--without-knowledge", "--no-excuse", "uti:fever", "--out", tmp_path / "n")
    assert "knowledge: " not in out and "--no-excuse does nothing any more" in out
    assert Tagger.load(tmp_path / "n").settings == {"knowledge": False}


def test_fit_with_rates_or_with_labels(folder: Path, tmp_path: Path) -> None:
    whole = cohort()
    assert whole.Y is not None
    rates = NoiseRates.from_labels(whole.A, whole.Y, whole.conditions).to_json()
    backwards = {name: rates[name] for name in reversed(whole.conditions)}  # order does not matter
    (tmp_path / "rates.json").write_text(json.dumps(backwards), encoding="utf-8")
    naive = ("--learner", "naive", "--out", tmp_path / "m")
    run("fit", folder / "bare", "--rates", tmp_path / "rates.json", *naive)
    assert (Tagger.load(tmp_path / "m").model_.noisyor.fail == Tagger.load(folder / "model").model_.noisyor.fail).all()
    lines = ["id," + ",".join(whole.conditions)]
    lines += [f"{whole.ids[k]}," + ",".join(str(int(v)) for v in whole.Y[k]) for k in range(400)]
    (tmp_path / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    assert "400 labelled visits of 2,500" in run("fit", folder / "bare", "--labels", tmp_path / "labels.csv", *naive)
    both = ("--rates", tmp_path / "rates.json", "--labels", tmp_path / "labels.csv")
    assert "--rates learns without labels" in run("fit", folder / "bare", *both, *naive, code=2)
    del backwards["fall"]
    (tmp_path / "rates.json").write_text(json.dumps(backwards), encoding="utf-8")
    assert "has no rates of fall" in run("fit", folder / "bare", "--rates", tmp_path / "rates.json", *naive, code=2)
    (tmp_path / "rates.json").write_text("{", encoding="utf-8")
    assert "is not JSON" in run("fit", folder / "bare", "--rates", tmp_path / "rates.json", *naive, code=2)


def test_without_labels_it_says_so_and_what_to_label_first(folder: Path, tmp_path: Path) -> None:
    out = run("fit", folder / "bare", "--learner", "naive", "--out", tmp_path / "m")
    assert "note: noise rates assumed, probabilities uncalibrated" in out
    assert f"next: whatelse anchors label-next {folder / 'bare'} --model {tmp_path / 'm'} --out labels.csv" in out
    tagger = Tagger.load(tmp_path / "m")
    assert tagger.assumed_ and tagger.suggest(visits("test")[0]).caveat == tagger.caveat_ != ""
    assert "noise rates assumed" in run("tag", tmp_path / "m", folder / "visits.jsonl", "--limit", 1)
    said = json.loads(run("tag", tmp_path / "m", folder / "visits.jsonl", "--limit", 1, "--json"))
    assert said["caveat"] == "noise rates assumed, probabilities uncalibrated"
    assert not Tagger.load(folder / "model").assumed_ and Tagger.load(folder / "model").caveat_ == ""


def test_fit_from_decisions(folder: Path, tmp_path: Path) -> None:
    """As people make them on the page: the three likeliest tags of some visits, by the truth."""
    whole, database = cohort(), f"sqlite:///{tmp_path / 'd.db'}"
    assert whole.Y is not None
    likely = Tagger.load(folder / "model").predict_proba(whole[:300])
    store = Store(database)
    waiting = []
    for v in range(300):
        for k, i in enumerate(np.argsort(-likely[v])[:3].tolist()):
            shown = {"rank": 1, "probability": float(likely[v, i]), "confirmed": [], "rejected": ["x"] * k}
            verdict = "confirmed" if whole.Y[v, i] else "rejected"
            request = f"request-{v}-{k}"
            decided = Decision(str(whole.ids[v]), k, "tag", whole.conditions[i], verdict, "ann", "m", request, shown)
            waiting.append(store.record(decided))
    for future in waiting:
        future.result()
    store.close()
    out = run("fit", folder / "bare", "--decisions", database, "--learner", "naive", "--out", tmp_path / "m")
    assert "900 tags of 300 visits were decided on" in out
    assert not Tagger.load(tmp_path / "m").assumed_
    said = json.loads(run("store", "decisions", "--database", database, "--json"))
    assert said["decisions"] == 900 and said["twice"] == 0 and len(said["looked_at"]) == 3
    lines = [future.result().entry for future in waiting]
    rejected = Counter(line.subject for line in lines if line.verdict == "rejected")
    assert {row["condition"]: row["times"] for row in said["pressed"]} == dict(rejected.most_common(10))
    assert said["missed"] == []
    assert "near the assumed 5%: nobody decided on a tag" in run("store", "decisions", "--database", database)


def test_evaluate(folder: Path) -> None:
    out = run("evaluate", folder / "model", folder / "test", "--draws", 1)
    assert (
        "held-out tag" in out
        and "held-out anchor" in out
        and "after / before" in out
        and "per 100 visits" in out
        and "pneumonia" in out
    )
    said = json.loads(run("evaluate", folder / "model", folder / "test", "--draws", 1, "--json"))
    assert said["heldout_tag"]["accuracy_interval"][0] < said["heldout_tag"]["accuracy"]
    assert len(said["heldout_tag"]["by_condition"]) == len(said["conditions"]) == 23
    assert "held-out tag needs such labels" in run("evaluate", folder / "model", folder / "bare", "--draws", 1)
    assert "not a model file" in run("evaluate", folder / "visits.jsonl", folder / "test", code=2).lower()


def test_tag(folder: Path) -> None:
    out = run("tag", folder / "model", folder / "visits.jsonl", "--confirmed", "uti", "--rejected", "pneumonia")
    assert out.count("what else?") == 10 and "confirmed: uti; rejected: pneumonia" in out and "more visits" in out
    lines = run(
        "tag", folder / "model", folder / "visits.jsonl", "--confirmed", "uti", "--json", "--top", 3
    ).splitlines()
    assert len(lines) == 40
    said = json.loads(lines[0])
    assert said["visit"] == visits("test")[0].id and len(said["tags"]) == 3 and said["certified"]
    tagger = Tagger.load(folder / "model")
    best = tagger.suggest(visits("test")[0], ["uti"]).tags[0]
    assert said["tags"][0]["condition"] == best.condition
    assert said["tags"][0]["probability"] == pytest.approx(best.probability, abs=2e-3)


def test_tag_one_visit_or_refuse(folder: Path) -> None:
    wanted = visits("test")[30].id
    assert wanted in run("tag", folder / "model", folder / "visits.jsonl", "--visit", wanted)
    assert "there is no visit 'nobody' in this file" in run(
        "tag", folder / "model", folder / "visits.jsonl", "--visit", "nobody", code=2
    )
    assert "'gout' is not a condition of this model" in run(
        "tag", folder / "model", folder / "visits.jsonl", "--confirmed", "gout", code=2
    )


def test_reproduce(folder: Path, tmp_path: Path) -> None:
    where = ("--train", folder / "train", "--test", folder / "test", "--out", tmp_path / "report")
    quick = ("--draws", 1, "--without", "nvil", "--without", TOLERANT, "--without", ELKAN_NOTO)
    out = run("reproduce", *where, *quick)
    assert "Noisy-or oracle MLE" in out and "not in the table: Noisy-or final" in out and "index.html" in out
    results = json.loads((tmp_path / "report" / "results.json").read_text("utf-8"))
    assert {row["model"] for row in results["rows"]} == {
        "Naive labels",
        "Noisy-or init",
        "whatelse",
        "whatelse, with labels",
        "Noisy-or oracle MLE",
    }
    assert (tmp_path / "report" / "index.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_stopped_command_says_how_to_continue(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whatelse.learning import learners

    where = ("--train", folder / "train", "--test", folder / "test", "--out", tmp_path / "report", "--draws", 1)
    rows = [word for row in ("nvil", TOLERANT, ELKAN_NOTO, OURS, TAUGHT) for word in ("--without", row)]

    def stop(cohort: object, rates: object, seed: int, progress: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(learners.LEARNERS, "oracle", stop)
        said = run("reproduce", *where, *rows, code=130)
        assert said.splitlines()[-1] == "whatelse: stopped; run the same command again to continue the NVIL runs"
        assert run("fit", folder / "train", "--learner", "oracle", "--out", tmp_path / "m", code=130).splitlines()[
            -1:
        ] == ["whatelse: stopped before the end; run the same command again"]
    assert "Noisy-or oracle MLE" in run("reproduce", *where, *rows)


@pytest.mark.slow
def test_demo_runs_and_runs_again(tmp_path: Path) -> None:
    for _ in range(2):
        out = run("demo", "--out", tmp_path / "demo", "--visits", 2000, "--no-serve")
        assert "1. simulate" in out and "before learning" in out and "what else?" in out
        assert "whatelse serve --model emergency" in out and (tmp_path / "demo" / "model.safetensors").is_file()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear", encoding="utf-8")
    assert "is not a demo's folder" in run("demo", "--out", tmp_path / "mine", "--no-serve", code=2)
