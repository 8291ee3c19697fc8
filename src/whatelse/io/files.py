"""Atomic writes of files and folders. A failed write leaves the old file or folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from whatelse.errors import OutputError


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file in one step. If writing fails, the old content stays."""
    with _said(Path(path)), writing(path) as file:
        file.write(data)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream of bytes that becomes the file `path` when the block ends without an exception.

    The stream is a temporary file in the same folder, synced and renamed; it gets the permissions of the file that it
    replaces. Whatever stops the block leaves the old file. OutputError says why a file cannot be written; exceptions of
    the block itself pass unchanged.
    """
    target = Path(path)
    with _said(target):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            with _said(target):
                file.flush()
                os.fsync(file.fileno())
        with _said(target):
            temporary.chmod(_permissions(target))
            temporary.replace(target)
            sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder that is removed when the block ends.

    `tempfile.TemporaryDirectory` warns where a generator that holds one is collected with an exception's traceback.
    """
    folder = Path(tempfile.mkdtemp(prefix="whatelse-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_folder(path: str | os.PathLike[str], fill: Callable[[Path], None]) -> None:
    """Write a folder in one step: `fill` is given an empty folder, which then takes the place of `path`.

    Two renames replace a folder that is there. If the second fails the old folder is put back; if even that fails it
    is left beside, and OutputError says where.
    """
    target = Path(path).absolute()
    with _said(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    new, old = scratch / "new", scratch / "old"
    try:
        new.mkdir()
        fill(new)
        with _said(target):
            for made in (*new.rglob("*"), new):  # else the new name could outlive a power cut and the content not
                sync(made)
            if target.exists():
                os.replace(target, old)
            try:
                os.replace(new, target)
            except BaseException:
                if old.exists():
                    _put_back(old, target)
                raise
            sync(target.parent)
    finally:
        if target.exists() or not old.exists():
            shutil.rmtree(scratch, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk, where the system can tell."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _permissions(target: Path) -> int:
    """Those of the file that is there, else the usual ones: mkstemp makes private files."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _put_back(old: Path, target: Path) -> None:
    try:
        os.replace(old, target)
    except OSError as error:
        raise OutputError(
            f"{target}: cannot be written, and what was there could not be put back ({error.strerror}): it is {old}, "
            "move it back by hand"
        ) from None


@contextmanager
def _said(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); check the folder and its space") from None


def stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
