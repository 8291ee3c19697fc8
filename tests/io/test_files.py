"""Files and folders appear whole, on disk before they have their name, with the permissions that were there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from whatelse.errors import OutputError
from whatelse.io.files import write_folder, write_whole


def test_a_file_keeps_the_permissions_of_the_one_it_replaces(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", b"1")
    finally:
        os.umask(umask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    (tmp_path / "new").chmod(0o600)
    write_whole(tmp_path / "new", b"2")
    assert (tmp_path / "new").read_bytes() == b"2" and (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_what_a_folder_holds_is_on_disk_before_the_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []

    def fsync(handle: int, really: Any = os.fsync) -> None:
        steps.append(os.fstat(handle).st_ino)
        really(handle)

    def replace(a: Any, b: Any, really: Any = os.replace) -> None:
        steps.append("renamed")
        really(a, b)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)

    def fill(folder: Path) -> None:
        (folder / "within").mkdir()
        (folder / "within" / "a").write_text("1")
        (folder / ".b").write_text("2")

    write_folder(tmp_path / "made", fill)
    made = tmp_path / "made"
    before = steps[: steps.index("renamed")]
    assert {p.stat().st_ino for p in (made, made / "within", made / "within" / "a", made / ".b")} == set(before)
    assert steps[-1] == tmp_path.stat().st_ino  # and last, the new name


def test_a_folder_that_cannot_be_filled_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    write_folder(tmp_path / "made", lambda folder: (folder / "a").touch())

    def fill(folder: Path) -> None:
        (folder / "b").touch()
        raise OutputError("no space")

    with pytest.raises(OutputError, match="no space"):
        write_folder(tmp_path / "made", fill)
    assert [p.name for p in tmp_path.iterdir()] == ["made"] and (tmp_path / "made" / "a").exists()
