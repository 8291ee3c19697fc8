"""`whatelse read`, and `ask` where nothing is read."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from whatelse.cli import app


def read(*arguments: str, given: str | None = None) -> str:
    result = CliRunner().invoke(app, ["read", *arguments], input=given)
    assert result.exit_code == 0, result.output
    return result.output


def test_note_file_and_standard_input_are_read_alike(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("no fever, cough", "utf-8")
    shown = read("no fever, cough")
    assert "neg:fever" in shown and shown == read(str(file)) == read("-", given="no fever, cough")


def test_json() -> None:
    found = json.loads(read("temp 39.5", "--json"))
    assert found["mentions"][0]["concept"] == "fever"


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_bytes(b"\xff\xfe\x00")
    result = CliRunner().invoke(app, ["read", str(file)])
    assert result.exit_code != 0 and "UTF-8" in result.output


def test_ask_says_that_nothing_stands_out() -> None:
    result = CliRunner().invoke(app, ["ask", "hello"])
    assert result.exit_code == 0 and "nothing stands out; 'whatelse read' shows" in result.output
