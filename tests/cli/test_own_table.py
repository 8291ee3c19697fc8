"""A table with a map of its own through every command: build, split, fit, tag, serve need to be told once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.sources.test_mimic_ed import make
from whatelse.annotators import AnchorSet, NoiseRates
from whatelse.annotators.label_set import with_labels
from whatelse.cli import app
from whatelse.cohort import Cohort, build_cohort
from whatelse.server.run import open_service
from whatelse.server.settings import load_settings
from whatelse.sources import read_visits
from whatelse.tagger import Tagger

CONDITIONS = {
    "conditions": [
        {"name": "broken hip", "anchors": {"notes": ["hip fx"]}},
        {"name": "pneumonia", "anchors": {"notes": ["pna"]}, "codes": {"icd10": ["J18"]}},
        {"name": "delirium", "anchors": {"notes": ["delirium"]}},
    ]
}
MAP = """
delimiter: ";"
id: nr
chief_complaint: why
triage_note: text
billing: {column: dx, system: icd10}
numbers: {temp: [">= 38 -> vital:fever"], pulse: bands}
"""


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(5)
    lines = ["nr;why;text;dx;temp;pulse;caf\xe9"]
    for i in range(400):
        hip, lung, mind = rng.random(3) < (0.25, 0.3, 0.2)
        words = ["fell and cannot walk"] * bool(hip) + ["cough, sputum"] * bool(lung) + ["confused"] * bool(mind)
        words += ["hip fx"] * bool(hip & (rng.random() < 0.6)) + ["pna"] * bool(lung & (rng.random() < 0.6))
        words += ["delirium"] * bool(mind & (rng.random() < 0.6)) + ["stable"]
        temp = 37 + 1.5 * lung + rng.normal(0, 0.5)
        text, code, pulse = ". ".join(words), "J18.9" * bool(lung), 80 + 20 * lung + rng.normal(0, 10)
        lines.append(f"v{i};ill;{text};{code};{temp:.1f};{pulse:.0f};\xe9")
    (folder / "visits.csv").write_bytes("\n".join(lines).encode("latin-1"))
    (folder / "map.yaml").write_text(MAP, encoding="utf-8")
    (folder / "conditions.yaml").write_text(json.dumps(CONDITIONS), encoding="utf-8")
    given = ("--map", folder / "map.yaml", "--conditions", folder / "conditions.yaml", "--out", folder / "cohort")
    run("build", folder / "visits.csv", *given)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["visit", "broken hip", "pneumonia", "delirium"])
        for line in lines[1:201]:
            cells = line.split(";")
            said = ("cannot walk" in cells[2], "sputum" in cells[2], "confused" in cells[2])
            table.writerow([cells[0], *map(int, said)])
    run("fit", folder / "cohort", "--labels", folder / "labels.csv", "--out", folder / "model")
    return folder


def test_conditions_without_codes_are_unlabelled(here: Path) -> None:
    cohort = Cohort.open(here / "cohort")
    assert cohort.known.sum(0).tolist() == [0, 400, 0] and not cohort.labelled.any()
    assert "vital:fever" in cohort.vocabulary.names and not cohort.vocabulary.bands
    assert "tachycardia" in cohort.vocabulary.names  # what the column "pulse" means


def test_tag_reads_files_like_those_learned_from_without_being_told(here: Path) -> None:
    said = run("tag", here / "model", here / "visits.csv", "--visit", "v3", "--json")
    assert json.loads(said[said.index("{") :])["visit"] == "v3"  # the first run after an install says that it compiles
    missing = run("tag", here / "model", here / "visits.csv", "--visit", "v3", "--visit", "V-9", "--json", code=2)
    assert "there is no visit 'V-9' in this file" in missing
    assert Tagger.load(here / "model").vocabulary_.source["delimiter"] == ";"
    other = here / "other.csv"
    other.write_text("id,triage_note\nx,cough\n", encoding="utf-8")
    refused = run("tag", here / "model", other, code=2)
    assert "the map that came with the cohort or model" in refused and "--source table" in refused
    assert json.loads(run("tag", here / "model", other, "--source", "table", "--json"))["visit"] == "x"
    mine = here / "mine.yaml"
    mine.write_text("id: Nr\ntriage_note: t\n", encoding="utf-8")
    (here / "third.csv").write_bytes("Nr|t\ny|café\n".encode("utf-16"))
    given = ("--map", mine, "--option", "delimiter=|", "--option", "encoding=utf-16", "--json")
    assert json.loads(run("tag", here / "model", here / "third.csv", *given))["visit"] == "y"


def test_serve_reads_them_too(here: Path) -> None:
    database = f"sqlite:///{here / 'd.db'}"
    service = open_service(load_settings(None, model=here / "model", visits=[here / "visits.csv"], database=database))
    try:
        assert len(service.worklist.visits) == 400
    finally:
        service.close()
    help_of = {name: run(name, "--help") for name in ("build", "tag", "drift")}
    for option in ("--source", "--map", "--option", "delimiter", "encoding", "labels"):
        assert all(option in text for text in help_of.values()), option


def test_like_reads_as_the_other_was_read(here: Path, tmp_path: Path) -> None:
    for source in ((), ("--source", "table")):
        run("build", *source, here / "visits.csv", "--vocabulary-from", here / "cohort", "--out", tmp_path / "again")
        first, again = Cohort.open(here / "cohort"), Cohort.open(tmp_path / "again")
        assert (first.X != again.X).nnz == 0
    said = run("show", here / "cohort", "--visit", "v7")
    assert "visit v7" in said and "stable" in said


def test_anchors_are_hunted_for_in_files_with_a_map(here: Path) -> None:
    run("anchors", "suggest", here / "cohort", "--visits", here / "visits.csv")
    given = ("--condition", "pneumonia", "--phrase", "sputum", "--json")
    said = json.loads(run("anchors", "suggest", here / "cohort", *given))
    assert said["fires"] > 80 and said["phrase"] == "sputum"


def test_a_cohort_made_in_python_knows_its_files_too(here: Path, tmp_path: Path) -> None:
    made = build_cohort(read_visits(here / "visits.csv", columns=here / "map.yaml"), AnchorSet.from_json(CONDITIONS))
    made.save(tmp_path / "made")
    by_command = Cohort.open(here / "cohort").about  # which also keeps what was chosen, to build it again
    assert Cohort.open(tmp_path / "made").about == {k: v for k, v in by_command.items() if k != "choice"}
    assert "visit v7" in run("show", tmp_path / "made", "--visit", "v7")


def test_split_parts_at_random_and_brings_labels_along(here: Path, tmp_path: Path) -> None:
    given = ("--train", tmp_path / "train", "--test", tmp_path / "test", "--labels", here / "labels.csv", "--seed", 3)
    said = run("split", here / "cohort", *given)
    train, test = Cohort.open(tmp_path / "train"), Cohort.open(tmp_path / "test")
    assert (len(train), len(test)) == (300, 100) and "whatelse fit" in said
    assert sorted([*train.ids, *test.ids]) == sorted(Cohort.open(here / "cohort").ids)
    assert train.vocabulary.to_json() == test.vocabulary.to_json()
    assert int(train.labelled.sum() + test.labelled.sum()) == 200 and 20 < test.labelled.sum() < 80
    run("split", here / "cohort", *given)
    assert Cohort.open(tmp_path / "test").ids.tolist() == test.ids.tolist()
    assert "between 0 and 1" in run("split", here / "cohort", *given, "--share", 1, code=2)
    run("fit", tmp_path / "train", "--labels", here / "labels.csv", "--out", tmp_path / "m", code=2)
    run("fit", tmp_path / "train", "--labels", here / "labels.csv", "--skip-other-labels", "--out", tmp_path / "m")


def test_what_people_said_counts_for_more_than_billing(here: Path, tmp_path: Path) -> None:
    cohort = Cohort.open(here / "cohort")
    (tmp_path / "l.csv").write_text("visit,pneumonia,delirium\nv0,1,0\nv1,0,\n", encoding="utf-8")
    both = with_labels(cohort, tmp_path / "l.csv")
    assert both.Y is not None and cohort.Y is not None
    assert both.Y[:2, 1].tolist() == [True, False] and both.known[:2].tolist() == [
        [False, True, True],
        [False, True, False],
    ]
    np.testing.assert_array_equal(both.Y[2:], cohort.Y[2:])


def test_a_model_of_a_folder_tags_a_folder(tmp_path: Path) -> None:
    """'tag' and 'serve' on MIMIC-IV-ED, and what happens to a file that is something else."""
    (tmp_path / "mimic").mkdir()
    make(tmp_path / "mimic")
    (tmp_path / "c.yaml").write_text(
        json.dumps({"conditions": [{"name": "cold", "anchors": {"notes": ["cough"]}}]}), encoding="utf-8"
    )
    given = ("--conditions", tmp_path / "c.yaml", "--max-share", 1, "--out", tmp_path / "c")
    run("build", "--source", "mimic-ed", tmp_path / "mimic", *given)
    cohort = Cohort.open(tmp_path / "c")
    assert cohort.vocabulary.source == {"source": "mimic-ed"} and cohort.Y is None  # no codes: nobody knows
    rates = NoiseRates.from_given(cohort.conditions, prior=[0.3], sensitivity=[0.5], false_positive=[0.1])
    Tagger("naive").fit(cohort, rates=rates).save(tmp_path / "m")
    said = run("tag", tmp_path / "m", tmp_path / "mimic", "--limit", 1, "--json")
    assert json.loads(said)["visit"] == cohort.ids[0]
    settings = load_settings(
        None, model=tmp_path / "m", visits=[tmp_path / "mimic"], database=f"sqlite:///{tmp_path}/d"
    )
    service = open_service(settings)
    assert len(service.worklist.visits) == len(cohort)
    service.close()


def test_evaluate_where_no_visit_is_known_throughout(here: Path) -> None:
    said = run("evaluate", here / "model", here / "cohort")
    assert "held-out anchor" in said and "held-out tag needs such labels" in said
    given = ("evaluate", here / "model", here / "cohort", "--labels", here / "labels.csv")
    labelled = run(*given, "--threshold", 0.3)
    assert "held-out tag" in labelled and "probability of 0.3" in labelled and "top 5" not in said + labelled
    said = [run(*given, "--draws", 1, "--json", "--threshold", t) for t in (0.1, 0.9)]
    low, high = (json.loads(text[text.index("{") :])["by_condition"] for text in said)
    assert [entry["labelled"] for entry in low] == [200, 400, 200]
    assert all(a["sensitivity"] >= b["sensitivity"] for a, b in zip(low, high, strict=True))
    assert [entry["auroc"] for entry in low] == [entry["auroc"] for entry in high]
    assert "--threshold" in run(*given, "--threshold", 2, code=2)


def test_what_stops_names_the_next_step(here: Path, tmp_path: Path) -> None:
    assert "whatelse inspect FILE --out map.yaml" in run("build", here / "visits.csv", code=2)
    assert "Missing argument" in run("build", code=2)
    assert "unknown source" in run("build", here / "visits.csv", "--source", "exel", code=2)
    assert "no such file" in run("build", tmp_path / "none.csv", code=2)
