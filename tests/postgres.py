"""A PostgreSQL server of one's own, for as long as a test module runs; or a visible skip where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl: on the PATH, or where Debian puts the newest."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent  # a link alone would not find its libraries
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return folders[-1].parent if folders else None


@contextmanager
def server() -> Iterator[str]:
    """The URL of a new cluster that listens on a socket in a temporary folder only."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    root = os.geteuid() == 0
    if root and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no runuser to run it as somebody else")
    before = ["runuser", "-u", "postgres", "--"] if root else []

    def run(*command: str) -> None:
        done = subprocess.run([*before, *command], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr

    with tempfile.TemporaryDirectory(prefix="pg") as name:
        folder = Path(name)
        if root:
            shutil.chown(folder, "postgres")
        folder.chmod(0o755)
        data = str(folder / "data")
        run(str(programs / "initdb"), "-D", data, "-U", "test", "-A", "trust", "-N", "--no-instructions")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
        run(str(programs / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://test@/postgres?host={folder}"
        finally:
            run(str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "stop")


def empty(url: str) -> None:
    """Remove everything from a database."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
