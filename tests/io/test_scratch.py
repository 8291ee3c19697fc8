"""Temporary folders."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

from whatelse.io.files import scratch_folder


def test_a_scratch_folder_is_gone_after_its_block() -> None:
    with scratch_folder() as folder:
        (folder / "part").mkdir()
        assert folder.is_dir()
    assert not folder.exists()


def test_a_scratch_folder_in_garbage_is_removed_without_a_warning() -> None:
    def rows() -> Iterator[Path]:
        with scratch_folder() as folder:
            yield folder

    loop: dict[str, object] = {"rows": rows()}
    loop["self"] = loop
    folder = next(loop["rows"])  # type: ignore[call-overload]
    del loop
    gc.collect()
    assert not folder.exists()
