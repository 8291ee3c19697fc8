"""`--engine spark [--master …]` of `build`, `fit`, `evaluate` and `tag`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import whatelse
from whatelse.cli.options import OnError
from whatelse.cli.tables import print_left_out, print_note, progress_bar
from whatelse.errors import InputError, OutputError, WhatelseError
from whatelse.sources.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from whatelse.cohort import Vocabulary

EVALUATED = 100_000  # visits of a cohort in Spark that `evaluate` looks at, at most


@contextmanager
def spark_session(master: str | None) -> Iterator[SparkSession]:
    """A session that ends with the command; a task's own error is said in one line."""
    from whatelse.spark.session import session

    running = session(master)
    try:
        yield running
    except WhatelseError:
        raise
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("pyspark", "py4j"):
            raise
        raise WhatelseError(f"Spark stopped: {reason(error)}") from None
    finally:
        running.stop()


def reason(error: BaseException) -> str:
    """What a task that failed said, where it was whatelse that said it; else the kind of error and nothing more."""
    for line in str(error).splitlines():
        module, _, text = line.strip().partition("Error: ")
        if module.startswith("whatelse.errors.") and text:
            return text
    return type(error).__name__


def build_on_spark(
    files: list[Path],
    master: str | None,
    out: Path | None,
    anchors: whatelse.AnchorSet,
    like: Vocabulary | None,
    columns: Path | None,
    on_error: OnError,
    choice: dict[str, Any],
) -> None:
    """`build`: Parquet files and folders to a cohort's dataset."""
    if out is None:
        raise InputError("--engine spark writes a dataset: give its folder with --out")
    with spark_session(master) as running, progress_bar() as progress:
        from whatelse.spark.building import build_cohort
        from whatelse.spark.reading import parquet_files, read_visits

        paths = parquet_files(files)
        df = running.read.parquet(*(Path(path).as_uri() for path in paths))
        as_before = like.source if like is not None else None
        visits = read_visits(df, columns, like=as_before, on_error=on_error, files=paths)
        left = Report()
        about = {"source": "table", "files": paths, "reading": dict(visits.how.given), "labels": None}
        cohort = build_cohort(visits, anchors, out=out, like=like, about=about, left=left, told=progress, **choice)
        for note in left.notes:
            print_note(note)
        print_left_out(left)
        names = cohort.vocabulary.names
        typer.echo(f"{len(cohort):,} visits, {len(names):,} findings ({len(cohort.conditions)} of them anchors)")
        typer.echo(f"saved as {out}")


def fit_on_spark(
    cohort: Path,
    master: str | None,
    learner: str,
    rates: whatelse.NoiseRates | None,
    seed: int,
    settings: dict[str, Any],
) -> tuple[whatelse.Tagger, int, float]:
    """`fit`: the tagger, how many visits it learned from and how long that took, start-up apart."""
    with spark_session(master) as running, progress_bar() as progress:
        from whatelse.spark.dataset import SparkCohort
        from whatelse.spark.fitting import fit

        opened = SparkCohort.open(cohort, running)
        began = time.perf_counter()
        tagger = fit(opened, learner, rates=rates, seed=seed, settings=settings, progress=progress)
        return tagger, len(opened), time.perf_counter() - began


def visits_to_test(cohort: Path, master: str | None, seed: int) -> whatelse.Cohort:
    """`evaluate`: the visits of a cohort in Spark, EVALUATED at most, at random."""
    import numpy as np

    with spark_session(master) as running:
        from whatelse.spark.dataset import SparkCohort

        opened = SparkCohort.open(cohort, running)
        if len(opened) > EVALUATED:
            print_note(f"{EVALUATED:,} of {len(opened):,} visits are looked at, at random")
        count = min(len(opened), EVALUATED)
        some = np.random.default_rng(seed).choice(len(opened), count, replace=False, shuffle=False)
        return opened.rows(np.sort(some))


def tag_on_spark(
    model: Path,
    visits: Path,
    out: Path | None,
    master: str | None,
    columns: Path | None,
    confirmed: list[str],
    rejected: list[str],
) -> None:
    """`tag`: Parquet files to a folder of Parquet files."""
    if out is None:
        raise InputError("--engine spark writes a folder of Parquet files: give it with --out")
    if out.exists():
        raise OutputError(f"{out} exists: choose another --out, or remove it first")
    with spark_session(master) as running:
        from whatelse.spark.reading import parquet_files, read_visits
        from whatelse.spark.tagging import tag

        tagger = whatelse.Tagger.load(model)
        paths = parquet_files([visits])
        df = running.read.parquet(*(Path(path).as_uri() for path in paths))
        records = read_visits(df, columns, like=tagger.vocabulary_.source)
        rows = tag(records, tagger, confirmed=confirmed, rejected=rejected)
        scratch = out.absolute().with_name(f".{out.name}.parts")
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            rows.write.parquet(scratch.as_uri())
            scratch.replace(out)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        typer.echo(f"wrote {running.read.parquet(out.absolute().as_uri()).count():,} visits to {out}")
