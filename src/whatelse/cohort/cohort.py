"""Cohort: many visits as arrays, how it is built from a stream, and its folder form.

A cohort folder holds two files:
- `visits.arrow`, one Arrow record batch that is opened by memory map: `id`, `findings` (a list of finding numbers for
  each visit: its offsets and values are the CSR matrix itself) and `conditions` (a list of condition numbers, or null
  where nobody knows);
- `cohort.json`: the vocabulary, where the visits came from, and what `visits.arrow` must be like.
No text of a record is in it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from whatelse.anchors import AnchorSet
from whatelse.cohort.counting import Collector
from whatelse.cohort.findings import Finder
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError
from whatelse.visits import Visit

VERSION = 1
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Cohort:
    """N visits, n findings, m conditions.

    X           (N, n) CSR of uint8 ones, anchors included as columns; indices sorted and distinct in each row
    vocabulary  the n findings
    ids         (N,) the visits' ids
    Y           (N, m) bool, or None where no visit has labels
    labelled    (N,) bool: rows of Y that are known; the others are False throughout
    about       where it came from: JSON values
    """

    X: csr_matrix
    vocabulary: Vocabulary
    ids: NDArray[np.object_]
    Y: Bools | None = None
    labelled: Bools = field(default=None)  # type: ignore[arg-type]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        N, n = self.X.shape
        if n != len(self.vocabulary.names):
            raise CohortError(f"X has {n} columns but the vocabulary has {len(self.vocabulary.names)} findings")
        if len(self.ids) != N:
            raise CohortError(f"X has {N} rows but there are {len(self.ids)} ids")
        if self.Y is not None and self.Y.shape != (N, len(self.conditions)):
            raise CohortError(f"Y has shape {self.Y.shape}, needs {(N, len(self.conditions))}")
        if self.labelled is None:
            object.__setattr__(self, "labelled", np.full(N, self.Y is not None))

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def conditions(self) -> tuple[str, ...]:
        """The m conditions' names."""
        return self.vocabulary.conditions

    @property
    def anchor_columns(self) -> NDArray[np.intp]:
        """(m,) the columns of X that are anchors."""
        return self.vocabulary.anchor_columns

    @cached_property
    def A(self) -> Bools:
        """(N, m) the anchors."""
        anchors: Bools = self.X[:, self.anchor_columns].toarray().astype(bool)
        return anchors

    def rows(self, which: ArrayLike) -> Cohort:
        """The visits of a boolean mask or of row numbers, in that order."""
        rows = np.asarray(which)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.intp)
        Y = None if self.Y is None else self.Y[rows]
        return Cohort(self.X[rows], self.vocabulary, self.ids[rows], Y, self.labelled[rows], self.about)

    def multi(self, at_least: int = 2) -> Cohort:
        """The visits with at least so many true conditions: the paper's cohort. Needs labels."""
        if self.Y is None:
            raise CohortError("which visits have several conditions is not known: this cohort has no labels")
        return self.rows(self.Y.sum(axis=1) >= at_least)

    # ---- folder

    def save(self, folder: str | Path) -> Path:
        """Write the folder; it appears whole or not at all. A cohort already there is replaced, nothing else is."""
        target = Path(folder)
        if target.exists() and not (target / "cohort.json").is_file() and (target.is_file() or any(target.iterdir())):
            raise CohortError(f"{target} exists and is not a cohort: choose another place, or remove it first")
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent))
        try:
            new, old = scratch / "new", scratch / "old"
            new.mkdir()
            self._write(new)
            if target.exists():
                os.replace(target, old)
            os.replace(new, target)
        finally:
            shutil.rmtree(scratch)
        return target

    def _write(self, folder: Path) -> None:
        X = self.X
        findings = pa.ListArray.from_arrays(X.indptr.astype(np.int32), X.indices.astype(np.int32))
        Y = np.zeros((len(self), 0), dtype=bool) if self.Y is None else self.Y
        true = np.concatenate([[0], np.cumsum(Y.sum(axis=1))]).astype(np.int32)
        truth = pa.ListArray.from_arrays(true, np.nonzero(Y)[1].astype(np.int32), mask=pa.array(~self.labelled))
        columns = {
            "id": pa.array(self.ids.tolist(), pa.string()),
            "findings": findings,
            "conditions": truth,
        }
        batch = pa.record_batch(columns)
        path = folder / "visits.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        header = {
            "format": "whatelse cohort",
            "version": VERSION,
            "visits": len(self),
            "crc32": _crc32(path),
            "about": dict(self.about),
            "vocabulary": self.vocabulary.to_json(),
        }
        (folder / "cohort.json").write_text(json.dumps(header, indent=1, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def open(cls, folder: str | Path) -> Cohort:
        """Open a folder that `save` wrote. Findings stay on disk until they are used."""
        folder = Path(folder)
        header = _header(folder)
        path = folder / "visits.arrow"
        try:
            if _crc32(path) != header["crc32"]:
                raise CohortError(f"{path} is damaged: its checksum is wrong; build the cohort again")
            with pa.memory_map(str(path)) as source:
                batch = pa.ipc.open_file(source).get_batch(0)
        except (OSError, pa.ArrowInvalid, KeyError) as problem:
            raise CohortError(f"{path} cannot be opened ({type(problem).__name__}); build the cohort again") from None
        vocabulary = Vocabulary.from_json(header["vocabulary"])
        lists, truth = batch.column("findings"), batch.column("conditions")
        indptr, indices = lists.offsets.to_numpy(), lists.values.to_numpy()
        N, n, m = len(batch), len(vocabulary.names), len(vocabulary.conditions)
        if indices.size and not (indices.min() >= 0 and indices.max() < n):
            raise CohortError(f"{path} is damaged: it has findings that the vocabulary does not have")
        X = csr_matrix((np.ones(indices.size, dtype=np.uint8), indices, indptr), shape=(N, n), copy=False)
        labelled = truth.is_valid().to_numpy(zero_copy_only=False)
        Y = None
        if labelled.any():
            Y = np.zeros((N, m), dtype=bool)
            Y[np.repeat(np.arange(N), np.diff(truth.offsets.to_numpy())), truth.values.to_numpy()] = True
        ids = batch.column("id").to_numpy(zero_copy_only=False)
        return cls(X, vocabulary, ids, Y, labelled, header.get("about", {}))


def _header(folder: Path) -> dict[str, Any]:
    """The content of cohort.json, or a CohortError that says why this is not a cohort."""
    path = folder / "cohort.json"
    if not path.is_file():
        raise CohortError(f"{folder} is not a cohort: it has no cohort.json; make one with 'whatelse build'")
    try:
        header = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise CohortError(f"{path} is damaged: it is not JSON; build the cohort again") from None
    if not isinstance(header, dict) or header.get("format") != "whatelse cohort":
        raise CohortError(f"{path} is not the header of a cohort")
    if header.get("version") != VERSION:
        raise CohortError(f"{path} is of version {header.get('version')}, needs {VERSION}; build the cohort again")
    if missing := {"crc32", "vocabulary"} - set(header):
        raise CohortError(f"{path} is damaged: it has no {sorted(missing)[0]!r}; build the cohort again")
    return header


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def build_cohort(
    visits: Iterable[Visit],
    anchors: AnchorSet | None = None,
    *,
    max_share: float = 0.5,
    max_terms: int | None = 1000,
    min_visits: int = 1,
    rules: str = "default",
    bigrams: bool = True,
    like: Cohort | Vocabulary | None = None,
    about: Mapping[str, Any] | None = None,
) -> Cohort:
    """Make a cohort of visits, which are read once.

    anchors     the conditions (the 23 shipped ones if None); with `like`, those of `like` whatever is given here
    max_share   findings in more than this share of visits go: they are the stop words
    max_terms   of the rest, the most common so many stay (None: all); anchors that fell out are added back
    min_visits  findings in fewer visits than this go
    rules       negation rules; `bigrams` says whether common pairs of words are joined
    like        use the vocabulary of this cohort as it is (for test data); the options above then do nothing

    Memory: 4 bytes for each word of the notes, and about as much again while findings are chosen.
    """
    if not 0 < max_share <= 1:
        raise CohortError(f"max_share is {max_share}, must be above 0 and at most 1")
    if (max_terms is not None and max_terms < 0) or min_visits < 0:
        raise CohortError("max_terms and min_visits must not be negative")
    known = like.vocabulary if isinstance(like, Cohort) else like
    labels = _Labels(known.anchors if known else anchors or AnchorSet.shipped())
    if known is None:
        collector = Collector(Finder(labels.anchors, rules))
        for visit in labels.watch(visits):
            collector.add(visit)
        joined = collector.bigrams.learn() if bigrams else frozenset()
        names, ends, numbers = collector.findings(joined)
        N = len(collector)
        counts = np.bincount(numbers, minlength=len(names))
        chosen = _choose(names, counts, N, collector, max_share, max_terms, min_visits)
        del collector
        column = np.full(len(names), -1, dtype=np.int32)
        column[chosen] = np.arange(len(chosen), dtype=np.int32)
        known = Vocabulary(tuple(names[j] for j in chosen), counts[chosen], N, labels.anchors, rules, joined)
        numbers = column[numbers]
        kept = numbers >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])[ends]
        numbers = numbers[kept]
    else:
        present = [known.present(visit) for visit in labels.watch(visits)]
        ends = np.concatenate([[0], np.cumsum([p.size for p in present], dtype=np.int64)])
        numbers = np.concatenate([np.empty(0, np.int32), *present])
    if not labels.ids:
        raise CohortError("there are no visits to make a cohort of")
    X = csr_matrix(
        (np.ones(numbers.size, dtype=np.uint8), numbers, ends.astype(np.int32)),
        shape=(len(labels.ids), len(known.names)),
    )
    X.sort_indices()
    ids = np.array(labels.ids, dtype=object)
    return Cohort(X, known, ids, labels.Y(), np.array(labels.labelled, dtype=bool), about or {})


def _choose(
    names: list[str],
    counts: NDArray[np.int64],
    N: int,
    collector: Collector,
    max_share: float,
    max_terms: int | None,
    min_visits: int,
) -> list[int]:
    """Which of the names stay: ordinary findings, most common first, then all anchors in their order."""
    m, facts = len(collector.finder.anchors.names), len(collector.facts)
    leaves, left = collector.finder.leaves, collector.left

    def stays(j: int) -> bool:
        return j < m or not (names[j] in left if j < facts else leaves(names[j]))

    common = np.flatnonzero((counts >= max(min_visits, 1)) & (counts <= max_share * N))
    order = sorted((j for j in common.tolist() if stays(j)), key=lambda j: (-counts[j], names[j]))
    return [j for j in order[:max_terms] if j >= m] + list(range(m))


class _Labels:
    """Ids and labels, gathered while the visits go by."""

    def __init__(self, anchors: AnchorSet) -> None:
        self.anchors = anchors
        self.ids: list[str] = []
        self.labelled = bytearray()
        self._true = bytearray()

    def watch(self, visits: Iterable[Visit]) -> Iterator[Visit]:
        unknown = (False,) * len(self.anchors.names)
        for visit in visits:
            labels = self.anchors.labels(visit)
            self.ids.append(visit.id)
            self.labelled.append(labels is not None)
            self._true.extend(labels or unknown)
            yield visit

    def Y(self) -> Bools | None:
        if not any(self.labelled):
            return None
        return np.frombuffer(self._true, dtype=bool).reshape(len(self.ids), -1).copy()
