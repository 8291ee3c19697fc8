"""The same cohorts and tags on Spark, however the visits are partitioned."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import small_department
from whatelse.annotators import NoiseRates
from whatelse.annotators.data_checks import sketch
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import CohortError, InputError
from whatelse.sources import read_visits, write_visits
from whatelse.tagger import Tagger

pytest.importorskip("pyspark", reason="needs the extra 'spark'")
from whatelse import spark as on_spark
from whatelse.sources.report import Report
from whatelse.spark.session import java

if not java():
    pytest.skip("Spark needs Java, which is not installed", allow_module_level=True)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
N = 2_000


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    made = on_spark.session("local[2,3]", {"spark.sql.shuffle.partitions": "2"})
    yield made
    made.stop()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Visits in three files, the second with few."""
    folder = tmp_path_factory.mktemp("visits")
    visits = iter(small_department.visits()[:N])
    made = []
    for k, size in enumerate((1200, 50, 750)):
        write_visits(itertools.islice(visits, size), folder / f"part{k}.parquet")
        made.append(str(folder / f"part{k}.parquet"))
    return made


@pytest.fixture(scope="module")
def local(files: list[str]) -> Cohort:
    return build_cohort(read_visits(files), max_terms=300)


def assert_same(folder: Path, local: Cohort) -> None:
    opened = Cohort.open(folder)
    assert opened.vocabulary.to_json() == local.vocabulary.to_json()
    assert opened.ids.tolist() == local.ids.tolist()
    assert (opened.X != local.X).nnz == 0
    assert local.Y is not None and opened.Y is not None
    np.testing.assert_array_equal(opened.Y, local.Y)
    np.testing.assert_array_equal(opened.known, local.known)


@pytest.fixture(scope="module")
def datasets(spark: Any, files: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[int, on_spark.SparkCohort]:
    """The same visits, partitioned in three ways: as Spark reads the files, and shuffled."""
    folder, made = tmp_path_factory.mktemp("datasets"), {}
    for partitions in (1, 3, 8):
        df = spark.read.parquet(*files)
        df = df if partitions == 3 else df.repartition(partitions)
        made[partitions] = on_spark.build_cohort(df, out=folder / str(partitions), max_terms=300)
    return made


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_a_cohort_is_the_local_one(datasets: dict[int, on_spark.SparkCohort], local: Cohort, partitions: int) -> None:
    cohort = datasets[partitions]
    assert len(cohort) == N
    assert_same(cohort.folder, local)
    rows = [3, 4, 1999]
    assert (local.X[rows] != cohort.rows(rows).X).nnz == 0


def test_a_frame_without_files_is_in_the_order_of_ids(spark: Any, files: list[str], tmp_path: Path) -> None:
    table = pa.concat_tables([pq.read_table(file) for file in files]).select(["id", "age", "triage_note", "coded"])
    df = spark.createDataFrame(table.slice(0, 400)).repartition(3)
    on_spark.build_cohort(df, out=tmp_path / "cohort", max_terms=50)
    in_order = table.slice(0, 400).sort_by("id")
    wanted = build_cohort(read_visits(in_order), max_terms=50)
    opened = Cohort.open(tmp_path / "cohort")
    assert opened.ids.tolist() == wanted.ids.tolist() and (opened.X != wanted.X).nnz == 0


def test_like_another_cohort(spark: Any, files: list[str], local: Cohort, tmp_path: Path) -> None:
    like = local.vocabulary
    on_spark.build_cohort(spark.read.parquet(files[2]), out=tmp_path / "cohort", like=like)
    wanted = build_cohort(read_visits(files[2]), like=like)
    assert (Cohort.open(tmp_path / "cohort").X != wanted.X).nnz == 0


def spoiled(files: list[str], folder: Path) -> list[str]:
    """The first two files, with an age of 900 in row 7 of the first and an id twice in the second."""
    one, two = (pq.read_table(file) for file in files[:2])
    ages = one.column("age").to_pylist()
    ages[6] = 900.0
    one = one.set_column(one.schema.get_field_index("age"), "age", pa.array(ages, pa.float64()))
    ids = two.column("id").to_pylist()
    ids[9] = ids[3]
    two = two.set_column(two.schema.get_field_index("id"), "id", pa.array(ids))
    made = [str(folder / "one.parquet"), str(folder / "two.parquet")]
    for table, file in zip((one, two), made, strict=True):
        pq.write_table(table, file)
    return made


def test_rows_that_cannot_be_used(spark: Any, files: list[str], tmp_path: Path) -> None:
    made = spoiled(files, tmp_path)
    for some, row in ((made, 7), (made[1:], 10)):
        with pytest.raises(InputError, match=f"row {row}") as here:
            on_spark.build_cohort(spark.read.parquet(*some), out=tmp_path / "cohort")
        with pytest.raises(InputError) as there:
            build_cohort(read_visits(some))
        assert str(here.value) == str(there.value)
    left, reader = Report(), read_visits(made, on_error="skip")
    wanted = build_cohort(reader, max_terms=300)
    visits = on_spark.read_visits(spark.read.parquet(*made), on_error="skip")
    on_spark.build_cohort(visits, out=tmp_path / "cohort", max_terms=300, left=left)
    assert left.left_out == reader.left_out and left.left_out["duplicate id"] == 1
    assert_same(tmp_path / "cohort", wanted)


def test_a_damaged_dataset_is_refused(spark: Any, files: list[str], local: Cohort, tmp_path: Path) -> None:
    folder = tmp_path / "cohort"
    on_spark.build_cohort(spark.read.parquet(files[1]), out=folder, like=local)
    header = json.loads((folder / "cohort.json").read_text())
    (folder / "cohort.json").write_text(json.dumps(header | {"visits": 49}))
    with pytest.raises(CohortError, match="not the 49 visits"):
        Cohort.open(folder)
    local.save(tmp_path / "own")
    with pytest.raises(CohortError, match="local engine"):
        on_spark.SparkCohort.open(tmp_path / "own", spark)


def test_tags_are_the_local_ones(spark: Any, files: list[str], local: Cohort, tmp_path: Path) -> None:
    tagger = Tagger("naive").fit(local)
    tagger.save(tmp_path / "model")
    rows = on_spark.tag(spark.read.parquet(*files), tmp_path / "model", rejected=["uti"]).toArrow()
    assert rows.num_rows == N
    order = {name: k for k, name in enumerate(local.ids)}
    rows = rows.take(pa.array(np.argsort([order[name] for name in rows.column("id").to_pylist()])))
    rejected = np.zeros(local.A.shape, bool)
    rejected[:, local.conditions.index("uti")] = True
    wanted = tagger.predict_proba(local, rejected=rejected)
    found = np.stack([rows.column(name).to_numpy() for name in local.conditions], 1)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert all(rows.column("certified").to_pylist())


# ---- learning


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning that is cut short, and in small blocks: each step is a job of its own, whose start takes longest."""
    from whatelse.learning import joint
    from whatelse.noisyor import blocks as sums
    from whatelse.spark import blocks

    monkeypatch.setattr(joint, "STEPS", 3)
    for module in (sums, blocks):
        monkeypatch.setattr(module, "BLOCK", 256)


def assert_same_model(a: Tagger, b: Tagger) -> None:
    for part in ("prior", "fail", "leak", "weight", "coupling"):
        np.testing.assert_array_equal(getattr(a.model_.noisyor, part), getattr(b.model_.noisyor, part))
    for part in ("weight", "centre", "excuse", "bias"):
        np.testing.assert_array_equal(getattr(a.model_.evidence, part), getattr(b.model_.evidence, part))
    assert a.conditions_ == b.conditions_ and a.rates_.to_json() == b.rates_.to_json()


@pytest.mark.parametrize("learner", ["naive", "moments", "oracle"])
def test_simple_learners_give_the_local_model(
    datasets: dict[int, on_spark.SparkCohort], local: Cohort, learner: str
) -> None:
    assert_same_model(on_spark.fit(datasets[3], learner), Tagger(learner).fit(local))


@pytest.mark.filterwarnings("ignore:.*stopped before it converged")
@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_the_default_learner_gives_the_local_model_to_the_last_bit(
    datasets: dict[int, on_spark.SparkCohort], local: Cohort, few_steps: None, partitions: int
) -> None:
    rates = NoiseRates.from_labels(local)
    found = on_spark.fit(datasets[partitions], rates=rates, seed=1)
    assert_same_model(found, Tagger(seed=1).fit(local, rates=rates))
    assert found.notes_["learned_from"] == sketch(local)


@pytest.mark.filterwarnings("ignore:.*stopped before it converged")
def test_a_worker_killed_in_the_middle_of_a_fit_changes_nothing(
    datasets: dict[int, on_spark.SparkCohort],
    local: Cohort,
    few_steps: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is killed in the middle of a sum, and what it kept on disk is lost too; nothing is left there in the end."""
    import os
    import shutil
    import signal

    from whatelse.spark.blocks import SparkBlocks

    mark, sums, total = tmp_path / "killed", [0], SparkBlocks.total

    def kept_folders() -> list[Path]:
        return list(Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]).glob("whatelse-*"))

    def killed(self: SparkBlocks, of: Any, *merge: Any) -> Any:
        def once(block: dict[str, Any]) -> Any:
            if int(block.get("first", 2000)) >= 1024 and not mark.exists():
                mark.touch()
                assert all(folder.stat().st_mode & 0o077 == 0 for folder in kept_folders())
                for folder in kept_folders():
                    shutil.rmtree(folder, ignore_errors=True)
                os.kill(os.getpid(), signal.SIGKILL)
            return of(block)

        sums[0] += 1
        return total(self, once if sums[0] == 3 else of, *merge)

    monkeypatch.setattr(SparkBlocks, "total", killed)
    rates = NoiseRates.from_labels(local)
    found = on_spark.fit(datasets[3], rates=rates, seed=1)
    assert mark.exists() and sums[0] > 3
    assert_same_model(found, Tagger(seed=1).fit(local, rates=rates))
    context = datasets[3].df.sparkSession.sparkContext
    assert context.parallelize([0], 1).map(lambda _: len(kept_folders())).collect() == [0]


def test_what_spark_logs_quotes_no_record(files: list[str], tmp_path: Path) -> None:
    """The event log, the log at level INFO and the message of a task that fails, all in a process of its own."""
    import subprocess
    import sys

    table = pq.read_table(files[1])
    notes = [f"zebrafish {note}" for note in table.column("triage_note").to_pylist()]
    place = table.schema.get_field_index("triage_note")
    pq.write_table(table.set_column(place, "triage_note", pa.array(notes)), tmp_path / "v.parquet")
    code = """
import sys
from whatelse import spark
from whatelse.spark.mapping import mapped
out = sys.argv[1]
log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{out}", "spark.log.level": "INFO"}
log["spark.eventLog.compress"] = "false"
s = spark.session("local[1]", log | {"spark.sql.shuffle.partitions": "2"})
df = s.read.parquet(f"{out}/v.parquet")
c = spark.build_cohort(df, out=f"{out}/cohort")
spark.fit(c, "naive").save(f"{out}/model")
spark.tag(df, f"{out}/model").write.parquet(f"{out}/tags")
def fails(batches):
    for batch in batches:
        raise ValueError(batch.column("triage_note")[0].as_py())
        yield batch
try:
    mapped(df.select("triage_note"), fails, "triage_note string").count()
except Exception as error:
    assert sys.argv[2] not in str(error) and "ValueError" in str(error), "the message"
else:
    raise SystemExit("did not fail")
s.stop()
"""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path), "zebrafish"],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    events = [path for path in tmp_path.rglob("*") if path.is_file() and "local-" in str(path)]
    assert events and sum(path.stat().st_size for path in events) > 10_000
    written = "".join(path.read_text(errors="replace") for path in events) + run.stdout + run.stderr
    assert "zebrafish" not in written and "mapInArrow" in written.replace("MapInArrow", "mapInArrow")
