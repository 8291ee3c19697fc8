"""The commands from records to cohorts, as a person runs them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pyreadstat
import pytest
from typer.testing import CliRunner

from whatelse import __version__
from whatelse.cli import app
from whatelse.cohort import Cohort

COLUMNS = "id,age,sex,chief_complaint,triage_note"
ROWS = [
    "v1,44,F,fall,s/p fall with head strike. denies etoh",
    'v2,71,M,abd pain,"abd pain x2 days, no fever"',
    "v3,30,F,etoh,found intoxicated on street",
    "v4,12,M,fever,fever and cough",
]


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("\n".join([COLUMNS, *ROWS]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def cohort(tmp_path: Path, table: Path) -> Path:
    run("build", table, "--out", tmp_path / "cohort")
    return tmp_path / "cohort"


def test_build_and_show(cohort: Path) -> None:
    assert Cohort.open(cohort).ids.tolist() == ["v1", "v2", "v3", "v4"]
    out = run("show", cohort)
    assert "4 visits" in out and "no labels" in out and "most common findings" in out and "fever" in out


def test_without_out_nothing_is_saved(tmp_path: Path, table: Path) -> None:
    assert "nothing was saved" in run("build", table)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["visits.csv"]


def test_one_visit_with_the_text_it_came_from(cohort: Path, table: Path) -> None:
    out = run("show", cohort, "--visit", "v1")
    assert "s/p fall with head strike" in out and "anchor:fall" in out and "neg:alcohol" in out
    moved = table.rename(table.with_name("moved.csv"))
    assert "no such file" in run("show", cohort, "--visit", "v1", code=2)
    assert "anchor:fall" in run("show", cohort, "--visit", "v1", "--visits", moved)
    assert "has no visit 'v9'" in run("show", cohort, "--visit", "v9", code=2)


def test_like_reuses_the_findings(cohort: Path, table: Path, tmp_path: Path) -> None:
    run("build", table, "--vocabulary-from", cohort, "--out", tmp_path / "test")
    first, second = Cohort.open(cohort), Cohort.open(tmp_path / "test")
    assert first.vocabulary.names == second.vocabulary.names and (first.X != second.X).nnz == 0
    assert "leave --conditions out" in run("build", table, "--vocabulary-from", cohort, "--conditions", table, code=2)


def test_own_conditions_and_options(table: Path, tmp_path: Path) -> None:
    conditions = tmp_path / "mine.yaml"
    conditions.write_text("conditions:\n- {name: fever, anchors: {notes: [fever]}}\n- {name: gout}\n", encoding="utf-8")
    options = ("--max-terms", 3, "--max-share", 1, "--min-visits", 1, "--rules", "paper", "--no-bigrams")
    out = run("build", table, "--conditions", conditions, "--out", tmp_path / "c", *options)
    assert "1 conditions have no anchors and are left out (--unanchored keeps them, to learn from labels): gout" in out
    cohort = Cohort.open(tmp_path / "c")
    assert cohort.conditions == ("fever",) and cohort.A[:, 0].tolist() == [False, False, False, True]
    assert (
        cohort.vocabulary.rules.name == "paper" and not cohort.vocabulary.bigrams and len(cohort.vocabulary.names) == 4
    )


def test_shared_anchors_are_noted(table: Path, tmp_path: Path) -> None:
    conditions = tmp_path / "mine.yaml"
    entries = "".join(f"- {{name: {name}, anchors: {{notes: [fever, etoh]}}}}\n" for name in ("flu", "cold"))
    conditions.write_text("conditions:\n" + entries, encoding="utf-8")
    assert "2 anchors stand for flu and cold" in run("build", table, "--conditions", conditions)


def test_anchors_check_as_table_and_as_json(cohort: Path) -> None:
    out = run("anchors", "check", cohort)
    assert "abdominal pain" in out and "no labels" in out and "never fires" in out
    checks = json.loads(run("anchors", "check", cohort, "--json"))
    assert len(checks) == 23 and {c["condition"]: c["fires"] for c in checks}["alcohol"] == 1


def test_what_goes_wrong_is_one_line_without_a_traceback(tmp_path: Path, table: Path) -> None:
    (tmp_path / "bad.yaml").write_text("conditions: 3\n", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine", encoding="utf-8")
    for arguments in (
        ("show", tmp_path),
        ("anchors", "check", tmp_path / "nowhere"),
        ("build", tmp_path / "nowhere.csv"),
        ("build", table, "--conditions", tmp_path / "bad.yaml"),
        ("build", table, "--out", tmp_path / "full"),
        ("build", table, "--max-share", 0),
    ):
        out = run(*arguments, code=2)
        assert "whatelse: " in out and "Traceback" not in out


def test_rows_left_out_are_counted(table: Path) -> None:
    table.write_text("\n".join([COLUMNS, *ROWS, ROWS[0]]) + "\n", encoding="utf-8")
    assert "seen before" in run("build", table, code=2)
    out = run("build", table, "--on-error", "skip")
    assert "left out 1 rows: duplicate id" in out and "4 visits" in out


def test_simulate_then_build(tmp_path: Path) -> None:
    visits = tmp_path / "visits.jsonl"
    assert "wrote 300 visits" in run("simulate", "--visits", 300, "--seed", 4, "--out", visits)
    out = run("build", visits, "--out", tmp_path / "c")
    assert "300 visits" in out and "with two or more" in out
    again = tmp_path / "again.jsonl"
    run("simulate", "--visits", 300, "--seed", 4, "--out", again)
    assert again.read_bytes() == visits.read_bytes()
    run(
        "simulate", "--visits", 300, "--seed", 4, "--out", again, "--departure", "drift=0", "--departure", "prose=false"
    )
    assert again.read_bytes() != visits.read_bytes()
    run("simulate", "--visits", 50, "--obey-model", "--min-conditions", 2, "--out", again)
    assert "with two or more" in run("build", again)
    for wrong in ("gravity=1", "drift", "drift=much", "drift=9"):
        assert "whatelse: " in run("simulate", "--visits", 5, "--out", again, "--departure", wrong, code=2)
    assert "whatelse: " in run("simulate", "--visits", 5, "--out", tmp_path / "x.txt", code=2)


def test_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["whatelse", "--version"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("whatelse", run_name="__main__")
    assert stopped.value.code == 0 and capsys.readouterr().out.startswith("whatelse ")


def test_version() -> None:
    assert __version__ in run("--version")


@pytest.mark.data
def test_mimic_iv_ed_demo(data_folder: Path) -> None:
    out = run("build", "--source", "mimic-ed", data_folder / "mimic-iv-ed-demo")
    assert "222 visits" in out and "91 visits with at least one condition, 20 with two or more" in out


@pytest.mark.data
def test_nhamcs_has_the_labels_and_anchors_of_its_conditions(data_folder: Path, tmp_path: Path) -> None:
    folder = data_folder / "nhamcs"
    zips = sorted(folder.glob("ed201*_sas.zip"))
    options = ("--conditions", folder / "conditions.json", "--option", f"labels={folder}", "--out", tmp_path / "c")
    assert "56,467 visits" in run("build", "--source", "nhamcs", *zips, *options)
    cohort = Cohort.open(tmp_path / "c")
    assert cohort.Y is not None and not any(name.startswith(("icd10:", "cause:")) for name in cohort.vocabulary.names)

    # The first 3,000 visits again, straight from the columns.
    import zipfile

    with zipfile.ZipFile(zips[0]) as archive:
        sas = archive.extract(next(n for n in archive.namelist() if n.endswith("sas7bdat")), tmp_path)
    groups = {"DIAG": 5, "CAUSE": 3, "RFV": 5, "DRUGID": 30}
    names = [f"{stem}{k}" for stem, n in groups.items() for k in range(1, n + 1)]
    raw, _ = pyreadstat.read_sas7bdat(sas, usecols=names, output_format="dict", row_limit=3000)
    drug = dict(line.strip().split(",", 1) for line in (folder / "drug_labels.csv").read_text().splitlines())
    conditions = json.loads((folder / "conditions.json").read_text())
    size = len(raw["DIAG1"])
    Y, A = np.zeros((size, len(conditions)), bool), np.zeros((size, len(conditions)), bool)
    for i, entry in enumerate(conditions.values()):
        labels = tuple(entry["anchor_drugs"])
        for row in range(size):
            Y[row, i] = any(
                str(raw[f"{stem}{k}"][row]).startswith(tuple(entry[key]))
                for stem, key in (("DIAG", "icd10_prefixes"), ("CAUSE", "cause_prefixes"))
                for k in range(1, groups[stem] + 1)
            )
            A[row, i] = any(
                f"{int(raw[f'RFV{k}'][row]):05d}" in entry["anchor_reasons"]
                for k in range(1, 6)
                if raw[f"RFV{k}"][row] == raw[f"RFV{k}"][row] and raw[f"RFV{k}"][row] is not None
            )
            if labels and not A[row, i]:
                given = [drug.get(str(raw[f"DRUGID{k}"][row]), "") for k in range(1, 31)]
                A[row, i] = any(name == label or name.startswith(label + "-") for name in given for label in labels)
    assert np.array_equal(cohort.Y[:size], Y) and np.array_equal(cohort.A[:size], A)
