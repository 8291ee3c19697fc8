"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: two test processes share two cores

import httpx._config
import numpy as np
import pytest

for _wait in ("connect", "read", "write", "pool"):  # five seconds are few on a busy machine
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _wait, 60.0)

os.environ["COLUMNS"] = "180"  # tests look for words in tables: no word is wrapped


# Files that last longest begin first: what begins last decides how long one of two workers has nothing to do.
LONGEST = (
    *("test_soak.py", "test_docs_snippets.py", "test_distribution.py", "test_spark.py", "test_pages.py"),
    *("test_learn.py", "test_own_table.py", "test_records.py", "test_shipped.py", "test_stream.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONGEST)))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20160823)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The public data sets: beside the checkout, or where WHATELSE_DATA says."""
    folder = Path(os.environ.get("WHATELSE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the public data sets are not here: set WHATELSE_DATA to their folder")
    return folder
