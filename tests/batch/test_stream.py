"""tag --out: the same answers as one by one, in every format; stopped and started again it goes on."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.support import small_department
from whatelse.batch import stream
from whatelse.batch.stream import tag_file
from whatelse.cli import app
from whatelse.errors import InputError, OutputError, QueryError
from whatelse.sources import write_visits
from whatelse.tagger import Tagger
from whatelse.visits import Visit

COUNT = 700


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    Tagger("naive").fit(small_department.cohort()).save(path)
    return path


@pytest.fixture(autouse=True)
def in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are answered here, unless a test wants processes: each takes seconds to start."""
    if "processes" in request.keywords:
        return

    def answered(visits: Iterator[Visit], start: tuple[str, ...], workers: int) -> Iterator[object]:
        stream._start(*start)  # type: ignore[arg-type]
        while some := [v for _, v in zip(range(100), visits, strict=False)]:
            yield stream._answer(some)

    monkeypatch.setattr(stream, "_answered", answered)
    monkeypatch.setattr(stream, "KEPT", 200)


def visits() -> list[Visit]:
    return list(small_department.visits("test")[:COUNT])


def test_answers_are_those_of_one_visit_after_another(model: Path, tmp_path: Path) -> None:
    done = tag_file(model, visits(), tmp_path / "tags.parquet", confirmed=["uti"])
    assert (done.visits, done.before, done.uncertified) == (COUNT, 0, 0)
    rows, tagger = pq.read_table(tmp_path / "tags.parquet").to_pylist(), Tagger.load(model)
    assert [row["id"] for row in rows] == [visit.id for visit in visits()]
    for visit, row in list(zip(visits(), rows, strict=True))[::70]:
        said = tagger.suggest(visit, confirmed="uti")
        assert row["uti"] == 1.0 and row["certified"] == said.certified
        for tag in said.tags:
            assert row[tag.condition] == pytest.approx(tag.probability, abs=1e-9)


def test_every_format_says_the_same(model: Path, tmp_path: Path) -> None:
    for name in ("tags.parquet", "tags.csv", "tags.jsonl"):
        tag_file(model, visits()[:150], tmp_path / name)
    table = pq.read_table(tmp_path / "tags.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "tags.jsonl").read_text().splitlines()]
    with (tmp_path / "tags.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert len(table) == len(lines) == len(cells) == 150
    for row, line, cell in zip(table, lines, cells, strict=True):
        assert row["id"] == line["id"] == cell["id"]
        assert line["headache"] == float(cell["headache"]) == pytest.approx(row["headache"], abs=1e-6)


def test_stopped_it_goes_on(model: Path, tmp_path: Path) -> None:
    out, read = tmp_path / "tags.csv", []

    def some(stop: int | None) -> Iterator[Visit]:
        for k, visit in enumerate(visits()):
            if k == stop:
                raise KeyboardInterrupt
            read.append(k)
            yield visit

    with pytest.raises(KeyboardInterrupt):
        tag_file(model, some(450), out, about="visits")
    assert not out.exists()
    done = tag_file(model, some(None), out, about="visits")
    assert done.before == 400 and done.visits == COUNT
    tag_file(model, visits(), tmp_path / "whole.csv")
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_answers_to_something_else_are_not_taken_up(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "tags.csv"

    def stopped() -> Iterator[Visit]:
        yield from visits()[:300]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tag_file(model, stopped(), out, about="these")
    assert tag_file(model, visits(), out, about="others").before == 0
    with pytest.raises(KeyboardInterrupt):
        tag_file(model, stopped(), out, about="these")
    with pytest.raises(InputError, match="fewer visits"):
        tag_file(model, visits()[:100], out, about="these")


def test_what_cannot_be_written_is_said_first(model: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="such a name"):
        tag_file(model, [], tmp_path / "tags.xlsx")
    with pytest.raises(OutputError, match="folder"):
        tag_file(model, [], tmp_path / "none" / "tags.csv")
    with pytest.raises(QueryError):
        tag_file(model, [], tmp_path / "tags.csv", confirmed=["no such thing"])


def test_the_command(model: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "visits.jsonl.gz", tmp_path / "tags.jsonl"
    write_visits(visits()[:120], file)
    run = CliRunner().invoke(app, ["tag", str(model), str(file), "--out", str(out)])
    assert run.exit_code == 0 and "wrote 120 visits" in run.output
    assert len(out.read_text().splitlines()) == 120
    run = CliRunner().invoke(app, ["tag", str(model), str(file), "--out", str(out), "--limit", "3"])
    assert run.exit_code == 2


@pytest.mark.processes
def test_processes_give_the_same(model: Path, tmp_path: Path) -> None:
    some = visits() * 2
    tag_file(model, some, tmp_path / "tags.parquet", workers=2)
    found, tagger = pq.read_table(tmp_path / "tags.parquet"), Tagger.load(model)
    assert found.column("id").to_pylist() == [visit.id for visit in some]
    values = np.stack([found.column(name).to_numpy() for name in tagger.conditions_], 1)
    np.testing.assert_allclose(values, tagger.predict_proba(some), atol=1e-12)
