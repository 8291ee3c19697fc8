"""Commands and options of version 0.2 still work, and print one line with the new name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from whatelse.cli import aliases, app


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


def words(form: str) -> list[str]:
    """The command of a form: its words that are neither options nor arguments."""
    return [word for word in form.split() if not word.isupper() and not word.startswith("-")]


def test_at_most_36_commands_are_visible() -> None:
    assert len([path for path, _ in commands(get_command(app))]) <= 36


def test_every_command_has_an_example_that_names_it() -> None:
    for path, command in commands(get_command(app)):
        assert f"Example: whatelse {' '.join(path)} " in f"{command.help} ".replace("\n", " "), path


def test_an_option_has_one_meaning() -> None:
    """The options that many commands have are those of the shared table, but for three commands."""
    helps: dict[str, set[str]] = {}
    for path, command in commands(get_command(app)):
        for parameter in command.params:
            if path not in {("serve",), ("simulate",), ("anchors", "label-next")}:
                helps.setdefault(parameter.opts[0], set()).add(str(getattr(parameter, "help", "")))
    for option in ("--labels", "--decisions", "--source", "--map", "--option", "--draws", "--engine", "--seed"):
        assert len(helps[option]) == 1, option


@pytest.mark.parametrize("old, new", aliases.COMMANDS.items())
def test_old_command_is_the_new_one(old: str, new: str) -> None:
    ran = run(*words(old), "--help")
    assert ran.exit_code == 0 and f"'{' '.join(words(old))}' is now called '{new}'" in ran.stderr
    visible = {path for path, _ in commands(get_command(app))}
    assert tuple(words(old)) not in visible
    assert any(tuple(words(new)[: len(path)]) == path for path in visible)


@pytest.mark.parametrize(
    "old, new",
    [
        ("compare a b c --json --seed 2", "evaluate b c --against a --json --seed 2"),
        ("compare --seed 2 a b c", "evaluate b c --against a --seed 2"),
        ("omop m cdm --out=x --note-nlp", "tag m cdm --source omop --omop x --note-nlp"),
        ("anchors accept --key coded f c p --system rfv", "anchors edit f c --add p --key coded --system rfv"),
        ("anchors change f c p n", "anchors edit f c --change p n"),
        ("anchors learn b --model m --json", "refit m --workbench b --json"),
        ("audit verify", "store verify"),
        ("audit prune --days 9 --database d", "store audit --prune 9 --database d"),
        ("decisions export --out x.csv", "store decisions --out x.csv"),
        ("cards evaluate m v.json --out r.html", "cards report m v.json --out r.html"),
        ("conditions find lung clot", "conditions list lung clot"),
        ("audit verify --expect 3:ab", "store verify --expect-audit 3:ab"),
        ("anchors accept f", "anchors edit f"),
        ("anchors check c", "anchors check c"),
    ],
)
def test_arguments_move_to_their_new_places(old: str, new: str) -> None:
    assert aliases._new_command(old.split()) == new.split()


@pytest.mark.parametrize(
    "old, new",
    [
        ("--delimiter ;", "--option delimiter=;"),
        ("--encoding=latin-1", "--option encoding=latin-1"),
        ("--labels folder", "--option labels=folder"),
        ("--like cohort", "--vocabulary-from cohort"),
        ("--epochs 5", "--epochs 5"),
    ],
)
def test_old_options_of_build(old: str, new: str) -> None:
    assert aliases._new_options(old.split(), {"--option", "--vocabulary-from"}) == new.split()


@pytest.mark.parametrize("written", [["--like", "none"], ["--like=none"]])
def test_old_option_is_read_as_the_new_one(written: list[str], tmp_path: Path) -> None:
    ran = run("build", tmp_path / "v.csv", "--conditions", "c.yaml", *written)
    assert ran.exit_code == 2 and "'--like' is now called '--vocabulary-from'" in ran.stderr
    assert "--vocabulary-from brings its own conditions" in ran.stderr


@pytest.mark.parametrize("command", ["fit", "refit"])
def test_old_error_option_is_checked_as_the_new_one(command: str) -> None:
    ran = run(command, "a", "b", "--error", "0.9")
    assert ran.exit_code == 2 and "'--error' is now called '--annotator-error'" in ran.stderr


def test_source_as_first_argument_of_build_still_works(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("id,triage_note\n1,fever\n2,cough\n", encoding="utf-8")
    ran = run("build", "table", tmp_path / "v.csv", "--max-share", 1)
    assert ran.exit_code == 0 and "'build FILES --source table'" in ran.stderr


def test_old_commands_do_the_work_of_the_new_ones(tmp_path: Path) -> None:
    file, refused = tmp_path / "c.yaml", tmp_path / "refused.yaml"
    for args in (
        ("new", file, "headache", "headache"),
        ("accept", file, "headache", "h/a"),
        ("change", file, "headache", "h/a", "head pain"),
        ("remove", file, "headache", "headache"),
        ("refuse", refused, "headache", "cough"),
    ):
        assert run("anchors", *args).exit_code == 0, args
    assert yaml.safe_load(file.read_text())["conditions"][0]["anchors"] == {"notes": ["head pain"]}
    assert yaml.safe_load(refused.read_text()) == {"headache": ["cough"]}


def test_an_option_that_nobody_had_is_still_refused() -> None:
    ran = run("show", "cohort", "--like", "other")
    assert ran.exit_code == 2 and "is now called" not in ran.stderr
