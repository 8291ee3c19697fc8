"""annotate, annotators and fit --votes, as a person runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from tests.support.language_model import model_server
from tests.support.small_department import cohort, visits
from whatelse.annotators.label_set import LabelSet
from whatelse.annotators.vote_files import read_votes
from whatelse.cli import app
from whatelse.cohort import Cohort, build_cohort
from whatelse.sources.write import write_visits
from whatelse.tagger import Tagger


def run(*arguments: object, code: int = 0, typed: str = "") -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=typed)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records, a cohort without labels (`bare`), one with labels (`train`), and labels.csv."""
    here = tmp_path_factory.mktemp("annotate")
    some = visits()[:1200]
    write_visits(iter(some), here / "visits.jsonl")
    whole = build_cohort(some, max_terms=200, lexicon="none", about={"files": [str(here / "visits.jsonl")]})
    whole.save(here / "train")
    Cohort(whole.X, whole.vocabulary, whole.ids, about=whole.about).save(here / "bare")
    assert whole.Y is not None
    lines = ["visit," + ",".join(whole.conditions)]
    lines += [f"{whole.ids[k]}," + ",".join(str(int(v)) for v in whole.Y[k]) for k in range(0, 1200, 6)]
    (here / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    return here


def test_from_a_cohort_to_a_model(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "votes.parquet"
    with model_server(seed=1, refusal=0.05, invented=0.05) as server:
        said = run(
            *("annotate", folder / "bare", "--endpoint", server.url, "--model", "tiny", "--count", 150, "--out", out),
            *("--second-pass", 0.2),
        )
    assert "150 visits to ask about 23 conditions; 0 visits are done" in said
    assert "self-agreement: " in said and "refused" in said and "quotes records" in said
    bare = Cohort.open(folder / "bare")
    (votes,) = read_votes(out, bare)
    assert votes.annotator == "tiny" and votes.kind == "program" and 120 < votes.visits <= 150
    assert votes.weight[votes.known].max() > votes.weight[votes.known].min()  # those of label-next
    began, ended = map(json.loads, out.with_name("votes.parquet.audit.jsonl").read_text().splitlines())
    assert began["event"] == "began" and began["visits"] == 150 and began["host"] == "127.0.0.1"
    assert ended["event"] == "ended" and ended["outcome"] == "done" and ended["visits"] == 150
    table = run("annotators", folder / "bare", "--votes", out, "--labels", folder / "labels.csv")
    assert all(word in table for word in ("tiny", "labels.csv", "headache", "odds x", "anchors"))
    parsed = json.loads(run("annotators", folder / "bare", "--votes", out, "--json"))
    assert [row["annotator"] for row in parsed["annotators"]] == ["tiny", "anchors"]
    assert len(parsed["by_condition"]) == 2 * 23
    said = run(
        *("fit", folder / "bare", "--votes", out, "--labels", folder / "labels.csv", "--learner", "naive"),
        *("--out", tmp_path / "model"),
    )
    assert "200 labelled visits of 1,200" in said and "votes of 'tiny' on" in said
    assert all(
        word in said for word in ("coverage", "conflict", "tiny", "labels.csv", "anchors")
    )  # the annotator table
    assert Tagger.load(tmp_path / "model").conditions_ == bare.conditions


@pytest.mark.slow
def test_killed_and_continued(folder: Path, tmp_path: Path) -> None:
    """Killed without warning, then stopped by Ctrl-C: the votes are those of a run that was never stopped."""
    command = ["annotate", str(folder / "visits.jsonl"), "--model", "m", "--second-pass", "0.1"]
    (tmp_path / "ids.csv").write_text("\n".join(["visit", *(visit.id for visit in visits()[:120])]), encoding="utf-8")
    command += ["--ids", str(tmp_path / "ids.csv")]
    with model_server(seed=4, fenced=0.1) as server:
        run(*command, "--endpoint", server.url, "--out", tmp_path / "whole.parquet")
        out = tmp_path / "killed.parquet"
        command = [sys.executable, "-m", "whatelse", *command, "--endpoint", server.url, "--out", str(out)]
        for how in (signal.SIGKILL, signal.SIGINT):
            enough, before = threading.Event(), len(server.questions)
            server.notify = lambda n, e=enough, b=before: e.set() if n >= b + 30 else None  # type: ignore[misc]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            assert enough.wait(60)
            os.kill(process.pid, how)
            error = process.communicate()[1]
            assert process.returncode == (130 if how == signal.SIGINT else -9)
            assert how == signal.SIGKILL or "are kept in" in error
        run(*command[3:])
        assert "120 visits are done: there is nothing left to ask" in run(*command[3:])
        most = max(server.asked.values())
    order = [("visit", "ascending"), ("condition", "ascending")]
    one, other = (pyarrow.parquet.read_table(path).sort_by(order) for path in (tmp_path / "whole.parquet", out))
    assert one.num_rows == 120 * 23 and one.equals(other)
    assert most <= 2 * 2 + 2 * 2  # two passes of two runs, and what was under way at two stops
    events = [json.loads(line)["event"] for line in (tmp_path / "killed.parquet.audit.jsonl").read_text().splitlines()]
    assert events == ["began", "began", "ended", "began", "ended"]


def test_only_visits_of_the_cohort_are_asked_about_and_each_once(folder: Path, tmp_path: Path) -> None:
    part = Cohort.open(folder / "bare").rows(np.arange(10))
    part.save(tmp_path / "part")
    file = folder / "visits.jsonl"
    common = ("--model", "m", "--out", tmp_path / "v.parquet", "--visits", file, "--visits", file)
    with model_server() as server:
        said = run("annotate", tmp_path / "part", "--endpoint", server.url, *common)
    assert "10 visits have votes" in said and max(server.asked.values()) <= 2
    assert read_votes(tmp_path / "v.parquet", part)[0].visits == 10


def test_dry_run_sends_nothing_and_shows_the_question(folder: Path, tmp_path: Path) -> None:
    with model_server() as server:
        said = run(
            *("annotate", folder / "visits.jsonl", "--endpoint", server.url, "--model", "m", "--dry-run"),
            *("--out", tmp_path / "v.parquet", "--remove-identifiers"),
        )
        assert not server.questions
    assert "--- system\nYou read the record" in said and "--- prompt 1-" in said and "nothing was sent" in said
    assert not list(tmp_path.iterdir())


def test_records_go_outside_only_if_allowed_and_confirmed(folder: Path, tmp_path: Path) -> None:
    common = ("annotate", folder / "visits.jsonl", "--model", "m", "--out", tmp_path / "v.parquet", "--endpoint")
    outside = "https://203.0.113.7/v1"
    assert "is outside" in run(*common, outside, code=2)
    assert "is outside" in run(*common, outside, "--allow-remote", "203.0.113.8", code=2)
    said = run(*common, outside, "--allow-remote", "203.0.113.7", code=1, typed="n\n")
    assert "Send the records of 1,200 visits to 203.0.113.7, outside?" in said
    run(*common, outside, "--allow-remote", "203.0.113.7", code=1)  # nobody there to confirm
    assert not list(tmp_path.iterdir())


def test_the_key_comes_from_the_environment(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHATELSE_LLM_KEY", "sesame")
    (tmp_path / "ids.csv").write_text(f"visit\n{visits()[3].id}\n", encoding="utf-8")
    with model_server() as server:
        said = run(
            *("annotate", folder / "visits.jsonl", "--endpoint", server.url, "--model", "m"),
            *("--out", tmp_path / "v.parquet", "--ids", tmp_path / "ids.csv"),
        )
        assert {headers["Authorization"] for headers in server.headers} == {"Bearer sesame"}
    files = "".join(path.read_text(errors="replace") for path in tmp_path.iterdir())
    assert "sesame" not in said and "sesame" not in files


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--count", 5), "--count needs a cohort"),
        (("--count", 5, "--ids", "x.csv"), "give one of them"),
        (("--ids", "missing.csv"), "no such file"),
    ],
)
def test_what_annotate_refuses(folder: Path, tmp_path: Path, more: tuple[object, ...], message: str) -> None:
    common = ("annotate", folder / "visits.jsonl", "--model", "m", "--endpoint", "http://127.0.0.1:9/v1")
    assert message in run(*common, "--out", tmp_path / "v.parquet", *more, code=2)


def test_fit_takes_votes_of_any_program(folder: Path, tmp_path: Path) -> None:
    """CSV and Parquet give the same model; the cohort's own labels stay labels; votes by chance count nothing."""
    train = Cohort.open(folder / "train")
    assert train.Y is not None
    rng = np.random.default_rng(0)
    guess = rng.random(train.Y.shape) < 0.3
    lines = ["visit,condition,value,annotator"]
    for k in range(0, 1200, 2):
        lines += [f"{train.ids[k]},{c},{int(guess[k, i])},coin" for i, c in enumerate(train.conditions)]
    (tmp_path / "v.csv").write_text("\n".join(lines), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(tmp_path / "v.csv"), tmp_path / "v.parquet")
    models = []
    for kind in ("csv", "parquet"):
        model = tmp_path / f"model-{kind}"
        said = run("fit", folder / "train", "--votes", tmp_path / f"v.{kind}", "--learner", "naive", "--out", model)
        assert "13,800 votes of 'coin' on 600 visits" in said
        models.append(Tagger.load(model).predict_proba(train))
    assert np.array_equal(*models)
    (coin,) = [
        v
        for v in LabelSet.of_votes(
            [*LabelSet.of_cohort(train).votes, *read_votes(tmp_path / "v.csv", train)], train
        ).votes
        if v.annotator == "coin"
    ]
    yes, no = coin.vote_odds()
    assert np.median(np.abs(yes)) < 0.5 and np.median(np.abs(no)) < 0.2
    assert "give labels, which never err, with --labels" in run(
        "fit", folder / "train", "--votes", folder / "labels.csv", "--out", tmp_path / "x", code=2
    )
    assert "--rates learns without labels" in run(
        *("fit", folder / "train", "--votes", tmp_path / "v.csv", "--rates", "r.json", "--out", tmp_path / "x"), code=2
    )
    assert cohort().conditions == train.conditions
