"""build_cohort on Spark. Vocabulary and findings are equal to those of `whatelse.build_cohort`.

1. The notes are read once, in the workers, into chunks (`chunks.py`), which Spark keeps on disk.
2. Pairs of words and values of numbers are counted by a shuffle; the driver sees those that are common enough.
3. With these joined, findings are counted the same way; the driver takes them most common first until it has enough.
4. Chunks become rows of the cohort's dataset (`dataset.py`), each with its number in the order of files and rows.
All counts are whole numbers, so they are the same however the visits are partitioned.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from whatelse.annotators import AnchorSet
from whatelse.cohort import Cohort, Vocabulary
from whatelse.cohort.bands import Bands, cuts_of_counts
from whatelse.cohort.build import Choice, choose
from whatelse.cohort.counting import Collector, Labels
from whatelse.cohort.findings import Finder
from whatelse.cohort.folder import columns_of
from whatelse.errors import CohortError, InputError
from whatelse.sources.report import SEEN_BEFORE, Report, unread_cells
from whatelse.spark.chunks import ARRAYS, SCHEMA, Place, collect, thaw
from whatelse.spark.dataset import COLUMNS, PARQUET, SparkCohort, save
from whatelse.spark.mapping import mapped
from whatelse.spark.reading import ROWS, SparkVisits, Stream, read_visits
from whatelse.spark.session import rows_at_once
from whatelse.text import Bigram, BigramCounts, Rules
from whatelse.text.bigrams import MIN_COUNT
from whatelse.text.lexicon import Lexicon, load_lexicon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TWICE = 1_000_000  # ids that come more than once, at most
CHUNKS = 8  # that go to a worker at a time
COUNTED = pa.schema([("name", pa.string()), ("fact", pa.bool_()), ("count", pa.int64())])
TOLD = ("file", "first", "last", "rising", "visits", "other", "named", "n_words", "report", "problem")
ORDERED = (*COLUMNS, "file", "at")
Told = Callable[[str, int, int], None]


def build_cohort(
    visits: SparkVisits | DataFrame,
    anchors: AnchorSet | None = None,
    *,
    out: str | Path,
    rules: str | Rules = "default",
    like: Cohort | SparkCohort | Vocabulary | None = None,
    about: Mapping[str, Any] | None = None,
    columns: str | Path | Mapping[str, Any] | None = None,
    left: Report | None = None,
    told: Told | None = None,
    lexicon: str | Path | Lexicon = "default",
    **choice: Any,
) -> SparkCohort:
    """Make a cohort of the visits of a DataFrame and write it to the folder `out`; see `whatelse.build_cohort`.

    visits   a DataFrame, or what `whatelse.spark.read_visits` made of one
    out      a folder that driver and workers see under the same path
    left     is told what was left out, and what the files lack
    choice   which findings there are: see `cohort.build.Choice`
    """
    chosen = Choice(**choice)
    known = like.vocabulary if isinstance(like, Cohort | SparkCohort) else like
    if not isinstance(visits, SparkVisits):
        visits = read_visits(visits, columns, like=known.source if known is not None else None)
    tell = told or (lambda what, done, total: None)
    finder = Finder(anchors or AnchorSet.shipped(), rules, load_lexicon(lexicon)) if known is None else known._finder
    with _Work(visits, finder, left or Report(), tell) as work:
        if known is None:
            known = work.vocabulary(chosen)
        return work.save(known, Path(out), about)


class _Work:
    """The chunks of one build, in Spark's storage until the block ends."""

    def __init__(self, visits: SparkVisits, finder: Finder, left: Report, tell: Told) -> None:
        self.visits, self.finder, self.left, self.tell = visits, finder, left, tell
        self.spark = visits.df.sparkSession

    def __enter__(self) -> _Work:
        self.tell("reading visits", 0, 4)
        self.chunks = self._collected({})
        self._read()
        if twice := self._twice():
            self.chunks.unpersist()
            self.left.left_out["duplicate id"] = 0
            self.chunks = self._collected(twice)
            self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self.chunks.unpersist()

    def _collected(self, first_of: Mapping[str, Place]) -> DataFrame:
        """The chunks, not yet made."""
        from pyspark import StorageLevel
        from pyspark.sql.pandas.types import from_arrow_schema

        given = self.spark.sparkContext.broadcast((self.visits.how, self.visits.on_error, self.finder, first_of))

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            how, on_error, finder, first = given.value
            yield from collect(Stream(how, on_error), batches, finder, first)

        schema = from_arrow_schema(SCHEMA)
        return mapped(self.visits.df, work, schema).persist(StorageLevel.DISK_ONLY)

    def _read(self) -> None:
        """Make the chunks; raise for the first row that cannot be used, note what was left out, number the visits."""
        with rows_at_once(self.spark, ROWS):
            found = self.chunks.select(*TOLD).collect()
        key = self._place
        problems = [json.loads(row.problem) for row in found if row.problem]
        if problems:
            first = min(problems, key=lambda p: (*key(p["file"]), p["row"]))
            error = InputError if first["kind"] == "InputError" else CohortError
            raise error(first["text"])
        self.left.left_out.clear()
        unread: Counter[str] = Counter()
        for row in found:
            said = json.loads(row.report)
            self.left.left_out.update(said["left_out"])
            unread.update(said["unread"])
        notes = [unread_cells(name, count) for name, count in unread.items()]
        self.left.notes += [note for note in notes if note not in self.left.notes]
        self.words = sum(row.n_words for row in found)
        labels = Labels(self.finder.anchors)
        labels.other, labels.named = sum(row.other for row in found), sum(row.named for row in found)
        labels.arrays()  # which refuses truth that names no condition
        chunks = sorted((key(row.file), row.first, row.last, row.visits, row.rising) for row in found if row.visits)
        self.count = sum(size for *_, size, _ in chunks)
        if not self.count:
            raise CohortError("there are no visits to make a cohort of")
        # Where each chunk's rows come after those of the chunk before, chunks in order are the visits in order.
        apart = all(a[0] < b[0] or a[2] < b[1] for a, b in pairwise(chunks))
        self.in_order = self.visits.located and apart and all(rising for *_, rising in chunks)
        self.number: dict[Place, int] = {}  # of the first visit of each chunk
        at = 0
        for (_, file), first_row, _, size, _ in chunks if self.in_order else ():
            self.number[file, first_row] = at
            at += size
        self.rank = {file: k for k, (_, file) in enumerate(sorted({key(row.file) for row in found}))}

    def _place(self, file: str) -> tuple[int, str]:
        """What files are sorted by: those of `SparkVisits.files` in their order, then others by name."""
        files = self.visits.files
        return files.index(file) if file in files else len(files), file

    def _twice(self) -> dict[str, Place]:
        """Ids that several visits have -> the first of these; InputError unless such rows are skipped."""
        from pyspark.sql import functions as F

        each = self.chunks.select("file", F.explode(F.arrays_zip("ids", "rows")).alias("v"))
        each = each.select("file", F.col("v.ids").alias("id"), F.col("v.rows").alias("row"))
        many = each.groupBy("id").agg(F.count("*").alias("n")).where("n > 1").select("id")
        where = each.join(many, "id").limit(TWICE + 1).collect() if not many.isEmpty() else []
        if len(where) > TWICE:
            raise InputError(f"more than {TWICE:,} rows have an id that another row has: take them out first")
        where.sort(key=lambda r: (self._place(r.file), r.row))
        first: dict[str, Place] = {}
        for row in where:
            if row.id in first and self.visits.on_error == "raise":
                raise InputError(SEEN_BEFORE, file=row.file, row=row.row, column="id")
            first.setdefault(row.id, (row.file, row.row))
        return first

    # ---- counting

    def vocabulary(self, choice: Choice) -> Vocabulary:
        """The findings, as `cohort_of` chooses them."""
        from pyspark.sql import functions as F

        self.tell("counting pairs of words", 1, 4)
        joined = self._bigrams() if choice.bigrams else frozenset()
        bands = self._bands(choice.bands)
        self.tell("counting findings", 2, 4)
        counted = self._counted(joined, bands).persist()
        anchors = [f"anchor:{name}" for name in self.finder.anchors.names]
        left = {row.name for row in self.chunks.select(F.explode("left").alias("name")).distinct().collect()}
        some = counted.where(f"count >= {max(choice.min_visits, 1)} and count <= {choice.max_share * self.count!r}")
        chosen, most = list[tuple[str, int]](), 4 * (choice.max_terms or 2**28)
        while True:  # far more are common than stay only where anchors are made of most words
            seen = [(r.name, r.fact, r["count"]) for r in some.orderBy(F.desc("count"), "name").limit(most).collect()]
            found = choose(((name, fact, j) for j, (name, fact, _) in enumerate(seen)), self.finder, left, choice)
            chosen = [(seen[j][0], seen[j][2]) for j in found]
            if len(seen) < most or len(chosen) + len(anchors) >= (choice.max_terms or 0):
                break
            most *= 4
        fires = {row.name: row["count"] for row in counted.where("fact and name like 'anchor:%'").collect()}
        counted.unpersist()
        return Vocabulary(
            (*(name for name, _ in chosen), *anchors),
            np.array([*(count for _, count in chosen), *(fires.get(name, 0) for name in anchors)], dtype=np.int64),
            self.count,
            self.finder.anchors,
            self.finder.rules,
            joined,
            bands=bands,
            source=dict(self.visits.how.given),
            lexicon=self.finder.lexicon,
        )

    def _bigrams(self) -> frozenset[Bigram]:
        """`BigramCounts.learn` of all notes, from the pairs that are common enough and their words."""
        from pyspark.sql import functions as F

        words = self.chunks.select(F.explode("texts").alias("w")).selectExpr("w.text a", "null b", "w.count count")
        pairs = self.chunks.select(F.explode("pairs").alias("p")).select("p.a", "p.b", "p.count")
        total = words.union(pairs).groupBy("a", "b").agg(F.sum("count").alias("count"))
        counts = BigramCounts(max_pairs=2**62)
        for row in total.where(f"count >= {MIN_COUNT}").collect():  # the words of a common pair are common too
            if row.b is None:
                counts.words[row.a] = row["count"]
            else:
                counts.pairs[row.a, row.b] = row["count"]
        counts.n_words = self.words
        return counts.learn()

    def _bands(self, count: int) -> Bands:
        from pyspark.sql import functions as F

        each = self.chunks.select(F.explode("measured").alias("v")).select("v.name", "v.value", "v.count")
        found: dict[str, list[tuple[float, int]]] = {}
        for row in each.groupBy("name", "value").agg(F.sum("count").alias("count")).collect():
            found.setdefault(row.name, []).append((row.value, row["count"]))
        cuts = {}
        for name, values in sorted(found.items()):
            values.sort()
            cuts[name] = cuts_of_counts(np.array([v for v, _ in values]), np.array([n for _, n in values]), count)
        return cuts

    def _counted(self, joined: frozenset[Bigram], bands: Bands) -> DataFrame:
        """(name, whether a fact, visits that have it)."""
        from pyspark.sql import functions as F

        given = self.spark.sparkContext.broadcast((self.finder, joined, bands))

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            finder, pairs, cuts = given.value
            counts: Counter[tuple[str, bool]] = Counter()
            for part in _parts(batches):
                collector = thaw(finder, part)
                names, _, numbers = collector.findings(pairs, cuts)
                times, facts = np.bincount(numbers, minlength=len(names)), len(collector.facts)
                for j in np.flatnonzero(times).tolist():
                    counts[names[j], j < facts] += int(times[j])
                if len(counts) > 500_000:
                    yield _counts(counts)
                    counts.clear()
            if counts:
                yield _counts(counts)

        with rows_at_once(self.spark, CHUNKS):
            parts = self.chunks.where("visits > 0").select(*ARRAYS)
            counted = mapped(parts, work, "name string, fact boolean, count bigint")
            total = counted.groupBy("name", "fact").agg(F.sum("count").alias("count"))
            total.persist().count()
        return total

    # ---- the cohort

    def save(self, vocabulary: Vocabulary, out: Path, about: Mapping[str, Any] | None) -> SparkCohort:
        """Rows of the dataset, and its header."""
        self.tell("writing the cohort", 3, 4)
        given = self.spark.sparkContext.broadcast((vocabulary, self.finder, self.number, self.rank))

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            vocabulary, finder, number, rank = given.value
            for part in _parts(batches):
                rows = _rows(thaw(finder, part), vocabulary, number.get((part["file"], part["first"]), 0))
                file = pa.array(np.full(rows.num_rows, rank[part["file"]]), pa.int64())
                yield pa.record_batch([*rows.columns, file, pa.array(part["rows"], pa.int64())], names=ORDERED)

        parts = self.chunks.where("visits > 0").select("file", "first", "rows", *ARRAYS)
        rows = mapped(parts, work, f"{PARQUET}, file bigint, at bigint")
        by = None if self.in_order else ("file", "at") if self.visits.located else ("id",)
        with rows_at_once(self.spark, CHUNKS):
            return save(rows, vocabulary, self.count, out, about or {}, order=by)


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The rows of batches of chunks, one by one."""
    for batch in batches:
        for k in range(batch.num_rows):
            yield batch.slice(k, 1).to_pylist()[0]


def _counts(counts: Counter[tuple[str, bool]]) -> pa.RecordBatch:
    names, facts = [name for name, _ in counts], [fact for _, fact in counts]
    return pa.record_batch([pa.array(names), pa.array(facts), pa.array(list(counts.values()))], schema=COUNTED)


def _rows(collector: Collector, vocabulary: Vocabulary, at: int) -> pa.RecordBatch:
    """The visits of one chunk as rows of the dataset, numbered from `at`."""
    names, ends, numbers = collector.findings(vocabulary.bigrams, vocabulary.bands)
    column = np.array([vocabulary.index.get(name, -1) for name in names], dtype=np.int32)
    if names:
        numbers = column[numbers]
    kept = numbers >= 0
    ends, numbers = np.concatenate([[0], np.cumsum(kept)])[ends], numbers[kept]
    row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    numbers = numbers[np.lexsort((numbers, row))]  # findings in order within each visit
    fields = collector.fields.done().of_names(sorted(vocabulary.fields))
    columns = columns_of(collector.labels.ids, ends, numbers, *collector.labels.matrices(), fields)
    return pa.record_batch([pa.array(np.arange(at, at + len(ends) - 1), pa.int64()), *columns.columns], names=COLUMNS)
