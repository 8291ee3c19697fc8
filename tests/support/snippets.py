"""The fenced blocks of a page, and a shell in which its commands run as a reader would run them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
# A command that serves is ended once it says where: whoever reads the page would press Ctrl-C.
COMMAND = """
import re, subprocess, sys
START = "from whatelse.cli import app; app()"
words = sys.argv[1:]
if words[:1] == ["serve"] and not {"--check", "--settings", "--help"} & set(words):
    server = subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True)
    answered = any(print(line, end="") or re.search("http://", line) for line in server.stdout)
    server.terminate()
    server.communicate(timeout=60)
    sys.exit(0 if answered else server.returncode or 1)
from whatelse.cli import app
app()
"""


class Block(NamedTuple):
    """page as README.md or docs/anchors.md, the line its fence stands on, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        return self.text.splitlines()[0]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text.count("\n", 0, match.start()) + 1, match[1].strip(), match[2]) for match in found]


def simple(text: str) -> list[list[str]]:
    """The words of each line, if every line is a plain `whatelse …` command; else nothing."""
    try:
        lines = [shlex.split(os.path.expandvars(line), comments=True) for line in text.splitlines()]
    except ValueError:  # a line that goes on
        return []
    lines = [line for line in lines if line]
    special = set("|<>;&$`\\…")
    plain = all(line[0] == "whatelse" and not special & set("".join(line)) for line in lines)
    return lines if plain else []


class Shell:
    """bash in a folder, with `python` and `whatelse` those of this checkout."""

    def __init__(self, folder: Path, tools: Path, **env: str) -> None:
        self.folder = folder
        tools.mkdir(exist_ok=True)
        (tools / "command.py").write_text(COMMAND, encoding="utf-8")
        for name, line in (("python", f'"{sys.executable}"'), ("whatelse", f'"{sys.executable}" {tools}/command.py')):
            (tools / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n', encoding="utf-8")
            (tools / name).chmod(0o755)
        paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
        self.env = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths} | env

    def run(self, text: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run commands as they stand; `said` is what a person types.

        A block of nothing but `whatelse …` lines runs in this process, which takes a third of the time.
        """
        lines = simple(text)
        return self._here(text, lines, said) if lines else self._bash(text, said)

    def _bash(self, text: str, said: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euo", "pipefail", "-c", text]
        return subprocess.run(
            command, cwd=self.folder, env=self.env, input=said, capture_output=True, text=True, check=False
        )

    def _here(self, text: str, lines: list[list[str]], said: str) -> subprocess.CompletedProcess[str]:
        from whatelse.cli import app

        out = err = ""
        for line in lines:
            if line[1] == "serve":
                served = self._bash(shlex.join(line), said)
                out, err = out + served.stdout, err + served.stderr
                if served.returncode:
                    return served
                continue
            ran = CliRunner(env=self.env).invoke(app, line[1:], input=said)
            out, err = out + ran.stdout, err + ran.stderr
            if ran.exception is not None and not isinstance(ran.exception, SystemExit):
                err += f"Traceback: {ran.exception!r}"
            if ran.exit_code:
                return subprocess.CompletedProcess(text, ran.exit_code, out, err)
        return subprocess.CompletedProcess(text, 0, out, err)
