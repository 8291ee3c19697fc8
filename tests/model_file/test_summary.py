"""`whatelse show MODEL` and what it is made of: rates and their origin, couplings, findings that say most."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.small_department import cohort
from whatelse.cli import app
from whatelse.cohort import Cohort
from whatelse.model_file.file import load
from whatelse.model_file.summary import brings, model_summary
from whatelse.noisyor.inference.enumeration import enumerate_posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import NoisyOr
from whatelse.tagger import Tagger

OLD = Path(__file__).parents[1] / "data" / "model-schema-1.safetensors"


def run(*words: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("show") / "model"
    Tagger().fit(cohort()).save(path)
    return path


def test_what_a_finding_brings_is_what_its_answer_does_to_an_empty_record(rng: np.random.Generator) -> None:
    """Against enumeration: one finding observed and all others not, present against absent."""
    m, n = 4, 6
    noisyor = NoisyOr(rng.uniform(0.05, 0.4, m), rng.uniform(0.1, 1.0, (m, n)), rng.uniform(0.01, 0.3, n))
    told = brings(JointModel.plain(noisyor))
    for j in range(n):
        others = [k for k in range(n) if k != j]
        here = enumerate_posterior(noisyor, [j], unobserved=others).marginals
        gone = enumerate_posterior(noisyor, [], unobserved=others).marginals
        logit = [np.log(p) - np.log1p(-p) for p in (here, gone)]
        np.testing.assert_allclose(told[:, j], logit[0] - logit[1], atol=1e-9)


def test_a_model_shows_what_it_was_learned_from(model: Path) -> None:
    said = json.loads(run("show", model, "--json", "--top", 3))
    tagger = Tagger.load(model)
    assert said["digest"] == tagger.digest_ and said["learner"] == tagger.learner and said["rates_from"] == "labels"
    assert said["learned"]["visits"] == said["learned"]["labelled"] == len(cohort())
    assert [entry["condition"] for entry in said["conditions"]] == list(tagger.conditions_)
    uti = said["conditions"][tagger.conditions_.index("uti")]
    i = tagger.conditions_.index("uti")
    assert uti["prior"] == tagger.rates_.prior[i]
    assert uti["right_when_it_fires"] == pytest.approx(tagger.rates_.ppv[i])
    assert len(uti["findings"]) == 3 and all(not f["finding"].startswith("anchor:") for f in uti["findings"])
    odds = [f["log_odds"] for f in uti["findings"]]
    assert odds == sorted(odds, reverse=True) and all(f["visits"] >= 10 for f in uti["findings"])
    coupling = tagger.model_.noisyor.coupling
    for pair in said["couplings"]:
        a, b = (tagger.conditions_.index(name) for name in pair["conditions"])
        assert pair["log_odds"] == coupling[a, b]
    assert len(said["couplings"]) == (np.triu(np.abs(coupling), 1) >= 0.05).sum() > 0
    text = run("show", model)
    assert "learned from 2,500 visits" in text and "counted in labelled visits" in text and "go together" in text
    assert uti["findings"][0]["finding"] in text


def test_rates_that_were_assumed_say_so(tmp_path: Path) -> None:
    bare = Cohort(cohort().X, cohort().vocabulary, cohort().ids)
    Tagger("naive").fit(bare).save(tmp_path / "a")
    os.utime(tmp_path / "a", (1_700_000_000, 1_700_000_000))
    text = run("show", tmp_path / "a", "--top", 0)
    assert "assumed, for want of labels" in text and "couplings: none" in text
    assert "written 2023-11-14 22:13 UTC" in text and "0 of them with labels" in text


def test_an_old_model_shows_what_it_has() -> None:
    text = run("show", OLD)
    assert "an unknown number of visits" in text


def test_a_strange_file_is_shown_all_the_same(model: Path) -> None:
    """Whatever JSON stands where people would look."""
    file = load(model)
    for odd in (None, 3, [], "x", {"data": 3}, {"data": {"visits": "many"}, "noise_rates": "\x1b[2J"}):
        strange = replace(file, learned={"notes": odd, "learner": odd}, vocabulary={"source": odd, "counts": odd})
        said = model_summary(strange)
        assert said["rates_from"] is None and len(said["conditions"]) == 23
        json.dumps(said, allow_nan=False)


def test_a_cohort_as_json_and_what_show_refuses(model: Path, tmp_path: Path) -> None:
    cohort().save(tmp_path / "cohort")
    said = json.loads(run("show", tmp_path / "cohort", "--json", "--top", 4))
    assert said["visits"] == 2500 and len(said["common"]) == 4 and said["conditions"][0]["labelled"] == 2500
    assert cohort().Y is not None and said["conditions"][1]["true"] == cohort().Y[:, 1].sum()
    assert "is a model: --visit is for cohorts" in run("show", model, "--visit", "1", code=2)
    assert "no such cohort or model" in run("show", tmp_path / "nothing", code=2)
    assert "leave out --visit" in run("show", tmp_path / "cohort", "--json", "--visit", "1", code=2)
    assert "not a model" in run("show", tmp_path / "cohort" / "cohort.json", code=2)
