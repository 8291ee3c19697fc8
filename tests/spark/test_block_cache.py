"""What Spark's workers keep of a fit, without Spark: blocks of a dataset, in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from whatelse.cohort.folder import columns_of
from whatelse.errors import CohortError
from whatelse.spark.block_cache import Visits, forget, kept

N, n, m, SIZE, SPAN = 100, 9, 3, 8, 32


@pytest.fixture
def visits() -> tuple[sp.csr_matrix, Any, Any]:
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random((N, n)) < 0.3).astype(np.uint8))
    known = rng.random((N, m)) < 0.8
    return X, (rng.random((N, m)) < 0.4) & known, known


def dataset(folder: Path, visits: tuple[sp.csr_matrix, Any, Any], rows: list[Any]) -> Path:
    """Files of these rows each, in small row groups."""
    X, Y, known = visits
    folder.mkdir()
    for k, some in enumerate(rows):
        part = X[some]
        columns = columns_of([f"v{i}" for i in some], part.indptr, part.indices, Y[some], known[some])
        table = pa.table([pa.array(some, pa.int64()), *columns.columns], names=["row", *columns.schema.names])
        pq.write_table(table, folder / f"part-{k}.parquet", row_group_size=7)
    return folder


def test_blocks_of_a_dataset_in_any_order(
    tmp_path: Path, visits: tuple[sp.csr_matrix, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y, known = visits
    order = np.random.default_rng(1).permutation(np.arange(40, N))
    where = Visits.of(dataset(tmp_path / "d", visits, [order, np.arange(40)]), N, SIZE, SPAN, m)
    assert len(where.groups) == 4
    assert list(where.groups[0]) == [str(tmp_path / "d" / "part-1.parquet")]  # the other one begins at 40
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    for _ in range(2):  # made, and found again
        blocks = [block for run in range(4) for block in kept("of-visits", where, run)]
        assert [int(block["first"]) for block in blocks] == list(range(0, N, SIZE))
        for block in blocks:
            first, count = int(block["first"]), block["indptr"].size - 1
            some = slice(first, first + count)
            np.testing.assert_array_equal(block["indices"], X[some].indices)
            np.testing.assert_array_equal(block["indptr"], X[some].indptr)
            np.testing.assert_array_equal(block["Y"], Y[some])
            np.testing.assert_array_equal(block["known"], known[some])
            block["indices"][:] = 0  # stays here
        monkeypatch.delattr(Visits, "arrays", raising=False)  # nothing to make them of
    place = tmp_path / "whatelse-of-visits"
    assert place.stat().st_mode & 0o777 == 0o700 and len(list(place.iterdir())) == 4
    forget("of-visits")
    assert not place.exists()


@pytest.mark.parametrize("rows", [[np.arange(1, N)], [np.arange(N), np.arange(5, 6)]])
def test_a_dataset_with_a_visit_missing_or_twice_is_refused(
    tmp_path: Path, visits: tuple[sp.csr_matrix, Any, Any], rows: list[Any]
) -> None:
    where = Visits.of(dataset(tmp_path / "d", visits, rows), N, SIZE, SPAN, m)
    with pytest.raises(CohortError, match="missing or twice"):
        where.arrays(0)
    assert where.arrays(1)["indptr"].size - 1 == SPAN
