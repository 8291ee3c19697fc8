"""Every command and snippet of README and docs, run as it stands: page by page, in order, in a folder with small data.

A page finds in its folder what it takes for granted (NEEDS). Blocks that cannot run are listed by page and first line,
with the reason (CANNOT). docs/tutorial.md has a test of its own.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.support.serving import live, service
from tests.support.snippets import ROOT, Block, Shell, blocks
from whatelse.cohort import build_cohort
from whatelse.simulate import simulate
from whatelse.sources.write import write_visits
from whatelse.store import Decision, Store
from whatelse.tagger import Tagger
from whatelse.visits import Visit

LANGUAGES = {"sh", "python", "yaml", "text", "nginx", "{toctree}", "{eval-rst}"}
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "_build" not in path.parts and path.name not in ("CHANGELOG.md", "tutorial.md", "transcript.md")
)
CHECKOUT = "is about the checkout itself, and installs into it"
HOURS = "takes hours, or the public data sets; what it gave is in the tables beside it"
LOAD = "takes minutes and both cores; tests/test_soak.py and tests/server/test_app.py run the same in small"
SERVERS = "needs a hospital's servers; tests/sources/fhir/test_client.py and tests/sources/test_omop.py start their own"
CLUSTER = "needs a Spark cluster; tests/spark/test_spark.py runs one on this machine"
CANNOT = {
    ("README.md", "make demo"): CHECKOUT,
    ("CONTRIBUTING.md", "make test"): CHECKOUT,
    ("SECURITY.md", "python scripts/lock.py"): "needs a package index; tests/test_supply.py runs what does not",
    ("docs/annotators.md", "pip install"): "needs a language model's server; tests/cli/test_annotate.py has its own",
    ("docs/annotators.md", "python -m benchmarks.annotators"): HOURS,
    ("docs/integration.md", "whatelse build --source fhir https://"): SERVERS,
    ("docs/integration.md", "whatelse serve --config serve.yaml --check"): SERVERS,
    ("docs/scale.md", "pip install"): CLUSTER,
    ("docs/scale.md", "from whatelse import spark"): CLUSTER,
    ("docs/serving.md", "python -m benchmarks.load"): LOAD,
    ("docs/soak.md", "python -m benchmarks.soak"): LOAD,
}
NEEDS = {
    "docs/annotators.md": ("cohort", "labels.csv"),
    "README.md": ("demo", "visits.csv", "new.csv", "labels.csv"),
    "docs/howto/integrator.md": ("department.model", "visits.jsonl"),
    "docs/inference.md": ("model",),
    "docs/integration.md": ("export", "cdm", "hospital.duckdb"),
    "docs/model-file.md": ("model.safetensors",),
    "docs/noise-rates.md": ("cohort",),
    "docs/records.md": ("visits.csv",),
    "docs/scale.md": ("model", "visits.csv"),
    "docs/serving.md": ("department.model", "visits.jsonl"),
    "docs/teaching.md": ("visits.csv", "lastmonth.csv", "today.csv", "whatelse.db"),
    "docs/workbench.md": ("visits.jsonl.gz", "new.jsonl.gz", "mine.yaml"),
}
DATABASE = ("docs/teaching.md",)  # pages that name it by $WHATELSE_DATABASE


def of(block: Block, key: tuple[str, str]) -> bool:
    return block.page == key[0] and block.first.startswith(key[1])


def cannot(block: Block) -> bool:
    return any(of(block, key) for key in CANNOT)


# ---- what pages find in their folder


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that pages take for granted, made once."""
    from tests.sources.fhir.test_visit import visit_resources
    from tests.sources.test_omop import write_csv, write_duckdb

    here = tmp_path_factory.mktemp("shelf")
    visits = small_hospital()
    write_table(here / "visits.csv", visits)
    write_table(here / "new.csv", visits[:20])
    write_table(here / "today.csv", visits[:20])
    write_table(here / "lastmonth.csv", visits[:200])
    names = build_cohort(visits[:1]).conditions
    with (here / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["visit", *names])
        rows.writerows([v.id, *(int(name in (v.truth or ())) for name in names)] for v in visits[:300])
    bare = build_cohort([replace(visit, truth=None, billing=None) for visit in visits], max_terms=200)
    bare.save(here / "cohort")
    write_visits(iter(visits[:60]), here / "visits.jsonl")
    for name in ("visits.jsonl.gz", "new.jsonl.gz"):
        write_visits((replace(visit, truth=None) for visit in visits), here / name)
    mine = [{"name": "headache", "anchors": {"notes": ["headache"]}}, {"name": "fall", "anchors": {"notes": ["fell"]}}]
    (here / "mine.yaml").write_text(yaml.safe_dump({"conditions": mine}), encoding="utf-8")
    tagger = Tagger("naive").fit(build_cohort(visits, max_terms=300))
    for name in ("model", "model.safetensors", "department.model"):
        tagger.save(here / name)
    decide(here, tagger, visits[:60])
    (here / "demo").mkdir()
    tagger.save(here / "demo" / "model.safetensors")
    write_visits(iter(visits[:60]), here / "demo" / "test.parquet")
    (here / "export").mkdir()
    lines = [json.dumps(resource) for resource in visit_resources()]
    (here / "export" / "resources.ndjson").write_text("\n".join(lines), encoding="utf-8")
    write_csv(here / "cdm")
    write_duckdb(here)
    return here


@cache
def small_hospital() -> list[Visit]:
    """A few visits of every condition."""
    kept, times = list[Visit](), Counter[str]()
    for visit in simulate(6000, 5, min_conditions=1):
        if any(times[name] < 60 for name in visit.truth or ()):
            kept.append(visit)
            times.update(visit.truth or ())
    return kept


def decide(here: Path, tagger: Tagger, visits: list[Visit]) -> None:
    """Somebody has confirmed or rejected the likeliest tag of some visits on the page."""
    store = Store(f"sqlite:///{here / 'whatelse.db'}")
    for v in visits:
        tag = tagger.suggest(v).tags[0]
        shown = {"rank": 1, "probability": tag.probability, "confirmed": [], "rejected": []}
        verdict = "confirmed" if tag.condition in (v.truth or ()) else "rejected"
        store.record(Decision(v.id, 0, "tag", tag.condition, verdict, "ann", "m", f"request-{v.id}", shown)).result()
    store.close()


def write_table(path: Path, visits: list[Visit]) -> None:
    """As a hospital exports it: no truth."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["id", "age", "sex", "chief_complaint", "triage_note", "md_comments", "dispensed", "time"])
        for v in visits:
            drugs = "|".join(code.name or code.code for code in v.dispensed or ())
            time = v.time.isoformat() if v.time else ""
            rows.writerow([v.id, v.age, v.sex, v.chief_complaint, v.triage_note, v.md_comments, drugs, time])


def read_charts(folder: Path) -> None:
    """Somebody writes 1 or 0 into the list of 'label-next'."""
    truth = {visit.id: visit.truth or () for visit in small_hospital()}
    with (folder / "labels.csv").open(newline="", encoding="utf-8-sig") as stream:
        rows = list(csv.DictReader(stream))
    names = set(build_cohort(simulate(1, 1)).conditions) & set(rows[0])
    for row in rows:
        row |= {name: str(int(name in truth[row["visit"]])) for name in names}
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


AFTER = {
    ("docs/noise-rates.md", "whatelse anchors label-next"): read_charts,
    ("docs/teaching.md", "whatelse build"): read_charts,
}
ENDS = {("docs/teaching.md", "# nightly"): (0, 1)}  # 1: the old model goes on serving, as the page says


# ---- the pages


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in PAGES if any(b.language in ("sh", "python") for b in blocks(page))])
def test_a_page_runs_as_it_stands(page: str, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in NEEDS.get(page, ()):
        copy = shutil.copytree if (shelf / name).is_dir() else shutil.copy
        copy(shelf / name, here / name)
    monkeypatch.chdir(here)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("WHATELSE_PORT", "0")
    if page in DATABASE:
        monkeypatch.setenv("WHATELSE_DATABASE", f"sqlite:///{here / 'whatelse.db'}")
    shell = Shell(here, tmp_path / "tools")
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.language == "python" and not cannot(block):
            exec(compile("\n" * block.line + block.text, page, "exec"), names)  # noqa: S102  # our own pages
        if block.language == "sh" and not cannot(block):
            with reachable(block, tmp_path, shell):
                ran = shell.run(block.text, said="y\n" * 100)
            expected = next((ends for key, ends in ENDS.items() if of(block, key)), (0,))
            assert ran.returncode in expected, f"{page}:{block.line}\n{block.text}\n{ran.stdout}\n{ran.stderr}"
            assert "Traceback" not in ran.stderr and "Warning" not in ran.stderr, f"{page}:{block.line}\n{ran.stderr}"
        for key, work in AFTER.items():
            if of(block, key):
                work(here)


@contextmanager
def reachable(block: Block, folder: Path, shell: Shell) -> Iterator[None]:
    """While a block asks a server at its usual address, one is there: `curl` goes to the port that was free."""
    if "http://127.0.0.1:8000" not in block.text:
        yield
        return
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl here")
    with service(folder) as opened, live(opened) as url:
        other = '"${@//http:\\/\\/127.0.0.1:8000/' + url + '}"'
        (folder / "tools" / "curl").write_text(f"#!/bin/bash\nexec {curl} --fail {other}\n", encoding="utf-8")
        (folder / "tools" / "curl").chmod(0o755)
        yield


def test_every_block_says_what_it_is() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{page}:{block.line}: ```{block.language}: needs one of {LANGUAGES}"
            if block.language == "text":
                commands = [
                    line for line in block.text.splitlines() if re.match(r"(whatelse (?!is )|python |make )", line)
                ]
                assert not commands, f"{page}:{block.line}: commands belong into ```sh"
            if block.language == "yaml":
                assert yaml.safe_load(block.text)


def test_the_lists_of_exceptions_are_about_blocks_that_are_there() -> None:
    everything = [block for page in PAGES for block in blocks(page)]
    for key in [*CANNOT, *AFTER, *ENDS]:
        assert any(of(block, key) for block in everything), f"{key}: no block begins so"
    assert set(NEEDS) <= set(PAGES) and len(CANNOT) < 0.25 * sum(b.language in ("sh", "python") for b in everything)
