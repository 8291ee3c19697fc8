"""Tags of any number of visits into a file: constant memory, all cores, resumable.

One process reads visits in batches; one process a core computes posteriors. Answers are saved in the order of the
visits, KEPT at a time, in a folder beside the output file. When all visits are answered, the parts become the file in
one step. A stopped call leaves the folder; the same call again resumes after the last part.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from whatelse.batch.answers import AT_ONCE, Asked, answers, schema_of
from whatelse.cohort.batches import BatchReader
from whatelse.errors import InputError, OutputError, WhatelseError
from whatelse.io.files import write_whole, writing
from whatelse.tagger import Tagger
from whatelse.visits import Visit

KEPT = 10_000  # answers in a part: a stop loses fewer
AHEAD = 3  # batches handed out for each worker
FORMATS = (".parquet", ".csv", ".jsonl")
DIGITS = 6  # of a probability in text; the certified error is a thousandth
Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Done:
    """visits: answered in all; before: of these, by calls that were stopped; uncertified: beyond the tolerance."""

    visits: int
    before: int
    uncertified: int


def tag_file(
    model: str | Path,
    visits: Iterable[Visit],
    out: str | Path,
    *,
    confirmed: Sequence[str] = (),
    rejected: Sequence[str] = (),
    about: Any = None,
    workers: int | None = None,
    told: Told | None = None,
) -> Done:
    """Write the tags of visits to `out` (.parquet, .csv or .jsonl), a row each; see `answers.schema_of`.

    visits   in the same order each time, if a stopped call is to go on
    about    what the visits are, as JSON values: a folder of answers to other visits, or by another model, is not used
    workers  processes; None: one a core
    """
    target = Path(out)
    if target.suffix.lower() not in FORMATS:
        raise OutputError(f"{target}: tags are written as {', '.join(FORMATS)}: give the file such a name")
    if not target.parent.is_dir():
        raise OutputError(f"{target}: its folder does not exist; make it first")
    start = (str(model), tuple(confirmed), tuple(rejected))
    _start(*start)
    tagger = _held["tagger"]
    plan = {"model": tagger.digest_, "confirmed": list(confirmed), "rejected": list(rejected), "visits": about}
    parts = _Parts(target.parent / f".{target.name}.parts", plan, schema_of(tagger))
    tell = told or (lambda what, done, whole: None)
    before = parts.rows
    remaining = iter(visits)
    if sum(1 for _ in islice(remaining, before)) < before:
        raise InputError(f"there are fewer visits than were answered before: remove {parts.folder} to start again")
    try:
        for batch in _answered(remaining, start, workers or os.cpu_count() or 1):
            parts.add(batch)
            tell("tagging visits", parts.rows, 0)
    finally:
        _held.clear()
    parts.flush()
    uncertified = _write_rows(parts.batches(), schema_of(tagger), target)
    shutil.rmtree(parts.folder, ignore_errors=True)
    return Done(parts.rows, before, uncertified)


def _answered(visits: Iterator[Visit], start: tuple[Any, ...], workers: int) -> Iterator[pa.RecordBatch]:
    """Answers in the order of visits, AHEAD batches a worker under way at most.

    Workers are forked, with the model that is loaded here, before the first visit is read. Beside other threads they
    are started anew and load the model themselves: a fork would take the threads' locks along.
    """
    if sys.platform == "linux" and threading.active_count() == 1:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("fork"))
    else:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start, initargs=start)
    waiting: deque[Future[pa.RecordBatch]] = deque()
    try:
        pool.submit(int)  # starts them
        while True:
            while len(waiting) < AHEAD * workers and (some := list(islice(visits, AT_ONCE))):
                waiting.append(pool.submit(_answer, some))
            if not waiting:
                return
            yield waiting.popleft().result()
    except BrokenProcessPool:
        problem = "a process that computed tags was ended from outside (out of memory?)"
        raise WhatelseError(f"{problem}; answers are kept: run the same command again to go on") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_held: dict[str, Any] = {}  # what `_start` made, for `_answer`


def _start(model: str, confirmed: tuple[str, ...], rejected: tuple[str, ...]) -> None:
    tagger = Tagger.load(model)
    _held["tagger"], _held["asked"] = tagger, Asked.of(tagger, confirmed, rejected)
    _held["reader"] = BatchReader(tagger.vocabulary_)
    _answer([])  # loads the compiled code, or compiles it, before workers are forked


def _answer(visits: list[Visit]) -> pa.RecordBatch:
    return answers(_held["tagger"], _held["reader"], visits, _held["asked"])


class _Parts:
    """Parts: a folder of files of KEPT answers, in order. `plan.json` identifies model, visits and question."""

    def __init__(self, folder: Path, plan: dict[str, Any], schema: pa.Schema) -> None:
        """The parts in the folder if the plan is the same, else an empty folder."""
        self.folder, self.schema, self._waiting = folder, schema, list[pa.RecordBatch]()
        text = json.dumps(plan, sort_keys=True)
        file = folder / "plan.json"
        if not file.is_file() or file.read_text("utf-8") != text:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_whole(file, text.encode())
        self.files = len(list(folder.glob("*.arrow")))
        self.rows = sum(batch.num_rows for batch in self.batches())

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self.rows += batch.num_rows
        if sum(b.num_rows for b in self._waiting) >= KEPT:
            self.flush()

    def flush(self) -> None:
        """Write the waiting answers as a part, atomically."""
        if not self._waiting:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self.schema) as writer:
            for batch in self._waiting:
                writer.write_batch(batch)
        write_whole(self.folder / f"{self.files:06}.arrow", sink.getvalue())
        self.files += 1
        self._waiting.clear()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for k in range(self.files):
            with pa.memory_map(str(self.folder / f"{k:06}.arrow")) as source:
                file = pa.ipc.open_file(source)
                for i in range(file.num_record_batches):
                    yield file.get_batch(i)


# ---- the file


def _write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> int:
    """Write the file; returns how many rows are not certified."""
    counts = [0]

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts[0] += batch.num_rows - (pc.sum(batch.column("certified")).as_py() or 0)
            yield batch

    with writing(path) as stream:
        kind = path.suffix.lower()
        if kind == ".parquet":
            with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
                for batch in counted():
                    writer.write_batch(batch)
        elif kind == ".csv":
            with pacsv.CSVWriter(stream, schema) as writer:
                for batch in counted():
                    writer.write_batch(_rounded(batch))
        else:
            dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
            for batch in counted():
                stream.write("".join([dump(row) + "\n" for row in _rounded(batch).to_pylist()]).encode())
    return counts[0]


def _rounded(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pc.round(c, DIGITS) if pa.types.is_floating(c.type) else c for c in batch.columns]
    return pa.record_batch(columns, schema=batch.schema)
