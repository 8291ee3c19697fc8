"""A round of refitting: what serves is whole at every moment, and no worse than what served before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.small_department import cohort
from whatelse.annotators.label_set import LabelSet
from whatelse.cli import app
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, ModelFileError, WhatelseError
from whatelse.lifecycle.refit import beside, held_out, locked, refit, roll_back
from whatelse.tagger import Tagger

STEPS = ("learning", "saved", "compared", "kept", "put")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of anchors taken for the truth with assumed rates, in a folder with the cohort it came from."""
    whole = cohort()
    bare = Cohort(whole.X, whole.vocabulary, whole.ids)
    Tagger("naive").fit(bare).save(tmp_path / "model")
    return tmp_path / "model"


def lesson() -> LabelSet:
    return LabelSet.of_cohort(cohort())


def test_the_same_visits_are_held_out_in_every_round() -> None:
    out = held_out(cohort(), 0.25)
    assert 0.2 < out.mean() < 0.3
    assert (out[:100] == held_out(cohort()[:100], 0.25)).all() and (held_out(cohort(), 0.4) >= out).all()


def test_a_better_model_takes_the_place_and_can_be_taken_back(model: Path) -> None:
    before, steps = model.read_bytes(), list[str]()
    done = refit(model, cohort(), lesson(), told=steps.append)
    assert done.put and done.fair and done.comparison.verdict == "better" and steps == list(STEPS)
    assert Tagger.load(model).digest_ == done.comparison.new != done.comparison.old
    assert beside(model, "previous").read_bytes() == before and not beside(model, "candidate").exists()
    new = model.read_bytes()
    assert roll_back(model) == (done.comparison.new, done.comparison.old)
    with pytest.raises(ModelFileError, match="serves already"):  # the new one is kept, not overwritten by the old
        roll_back(model)
    assert model.read_bytes() == before and beside(model, "rolled-back").read_bytes() == new


def test_a_worse_model_does_not_serve(model: Path) -> None:
    """One that saw every label serves, and says that it was learned from anchors alone, as the new one is."""
    served = Tagger("oracle").fit(cohort())
    served.learner = "naive"
    served.save(model)
    before = model.read_bytes()
    done = refit(model, cohort(), lesson())
    assert not done.put and done.comparison.verdict == "worse" and not done.fair
    assert model.read_bytes() == before and done.candidate.is_file()
    with pytest.raises(ModelFileError, match="no previous model"):
        roll_back(model)


def test_what_cannot_be_judged_is_refused(model: Path) -> None:
    few = lesson().only(~held_out(cohort(), 0.25))
    with pytest.raises(CohortError, match="none of the 25% of visits that are held out is labelled"):
        refit(model, cohort(), few)
    with locked(model), pytest.raises(WhatelseError, match="another 'whatelse refit' or a workbench is at work"):
        refit(model, cohort(), lesson())
    with pytest.raises(ModelFileError, match="no such model"):
        refit(model.with_name("other"), cohort(), lesson())


KILLED = """
import os, signal, sys
from pathlib import Path
from whatelse.cohort import Cohort
from whatelse.annotators.label_set import LabelSet
from whatelse.lifecycle.refit import refit
model, folder, last = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
cohort = Cohort.open(folder)
def told(step):
    if step == last:
        os.kill(os.getpid(), signal.SIGKILL)
refit(model, cohort, LabelSet.of_cohort(cohort), told=told)
"""


@pytest.mark.slow
def test_killed_at_any_step_it_leaves_a_model_that_serves(model: Path, tmp_path: Path) -> None:
    cohort().save(tmp_path / "cohort")
    before = model.read_bytes()
    for step in STEPS:
        model.write_bytes(before)
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, str(model), str(tmp_path / "cohort"), step], env={**os.environ}, check=False
        )
        assert ended.returncode == -signal.SIGKILL, step
        assert Tagger.load(model).conditions_ == cohort().conditions
        assert (model.read_bytes() == before) == (step != "put")
    model.write_bytes(before)
    assert refit(model, cohort(), lesson()).put  # nothing that was left behind is in the way


def test_on_the_command_line(model: Path, tmp_path: Path) -> None:
    whole = cohort()
    assert whole.Y is not None
    Cohort(whole.X, whole.vocabulary, whole.ids).save(tmp_path / "cohort")
    lines = ["visit," + ",".join(whole.conditions)]
    lines += [f"{whole.ids[k]}," + ",".join(str(int(v)) for v in whole.Y[k]) for k in range(len(whole))]
    (tmp_path / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    arguments = ["refit", str(model), str(tmp_path / "cohort"), "--labels", str(tmp_path / "labels.csv")]
    out = CliRunner().invoke(app, arguments)
    assert out.exit_code == 0 and "verdict: better" in out.output and "to go back" in out.output
    again = CliRunner().invoke(app, [*arguments, "--require", "better"])
    assert again.exit_code == 1 and "is unchanged" in again.output
    back = CliRunner().invoke(app, ["refit", str(model), "--rollback"])
    assert back.exit_code == 0 and "again" in back.output
    bare = CliRunner().invoke(app, ["refit", str(model), str(tmp_path / "cohort")])
    assert bare.exit_code == 2 and "needs a cohort, and --labels" in bare.output
    assert np.isfinite(Tagger.load(model).predict_proba(whole[:5])).all()
