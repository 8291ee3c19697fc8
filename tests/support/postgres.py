"""A PostgreSQL server of one's own, for as long as a test module runs; or a visible skip where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl: on the PATH, or where Debian puts the newest."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent  # a link alone would not find its libraries
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return folders[-1].parent if folders else None


class Cluster:
    """A PostgreSQL server that can be stopped and started again."""

    def __init__(self, programs: Path, before: list[str], folder: Path) -> None:
        self._programs, self._before, self._folder = programs, before, folder
        self.url = f"postgresql://test@/postgres?host={folder}"
        self.run("initdb", "-U", "test", "-A", "trust", "-N", "--no-instructions")

    def run(self, program: str, *options: str) -> None:
        """Run one of PostgreSQL's programs on the cluster's folder."""
        command = [*self._before, str(self._programs / program), "-D", str(self._folder / "data"), *options]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Listen on a socket in the folder, and nowhere else."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c max_connections=60"
        self.run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """End it as a crash would."""
        self.run("pg_ctl", "-m", "immediate", "stop")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A new cluster that runs."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    root = os.geteuid() == 0
    if root and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no runuser to run it as somebody else")
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        folder = Path(name)
        if root:
            shutil.chown(folder, "postgres")
        folder.chmod(0o755)
        made = Cluster(programs, ["runuser", "-u", "postgres", "--"] if root else [], folder)
        made.start()
        try:
            yield made
        finally:
            with suppress(AssertionError):  # a test may have stopped it
                made.stop()


@contextmanager
def server() -> Iterator[str]:
    """The URL of a new cluster."""
    with cluster() as made:
        yield made.url


def empty(url: str) -> None:
    """Remove everything from a database."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
