"""Commands and options of version 0.2 under their old names (`aliases.yaml`). Hidden; they work and print a line."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import typer
import yaml
from typer.core import TyperGroup

from whatelse.io.limits import LOADER

_TABLES = yaml.load((files("whatelse.cli") / "aliases.yaml").read_text("utf-8"), Loader=LOADER)
COMMANDS: dict[str, str] = _TABLES["commands"]


class AliasGroup(TyperGroup):
    """The commands, which also answer to their old names and to the old names of their options."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of `args`, with old names replaced by new ones."""
        args = _new_command(args)
        command: Any = self
        depth = 0
        while isinstance(command, TyperGroup) and depth < len(args) and args[depth] in command.commands:
            command, depth = command.commands[args[depth]], depth + 1
        has = {option for parameter in command.params for option in parameter.opts}
        return super().resolve_command(ctx, args[:depth] + _new_options(args[depth:], has))


def _new_command(args: list[str]) -> list[str]:
    """The new form of a command line whose first words are an old command."""
    for old, new in COMMANDS.items():
        words = [word for word in old.split() if word.islower() and not word.startswith("-")]
        if args[: len(words)] == words:
            _say(" ".join(words), new)
            return _rearranged(old.split()[len(words) :], new.split(), args[len(words) :])
    return args


def _rearranged(old: list[str], new: list[str], given: list[str]) -> list[str]:
    """`given` in the order of the new form; what the old form does not name follows as it is.

    If an argument is missing, the words of the new command are followed by `given`: the new command says what it needs.
    """
    values: dict[str, str] = {}
    rest: list[str] = []
    named = {word: old[at + 1] for at, word in enumerate(old) if word.startswith("--")}
    names = [word for word in old if word.isupper() and word not in named.values()]
    left = iter(names)
    words = iter(given)
    for word in words:
        option, equals, value = word.partition("=")
        if option in named:
            values[named[option]] = value if equals else next(words, "")
        elif word.startswith("-"):
            rest.append(word)
            if not equals and word not in _TABLES["flags"]:
                rest += [following for following in [next(words, None)] if following is not None]
        elif (name := next(left, None)) is not None:
            values[name] = word
        else:
            rest.append(word)
    optional = set() if names else set(named.values())  # `audit verify` may come without its only option
    if any(word.isupper() and word not in values and word not in optional for word in new):
        return [word for word in new if not word.isupper() and not word.startswith("-")] + given
    out: list[str] = []
    for word in new:
        if not word.isupper():
            out.append(word)
        elif word in values:
            out.append(values[word])
        else:
            out.pop()  # an option that was not given
    return out + rest


def _new_options(args: list[str], has: set[str]) -> list[str]:
    """Arguments with the new names of options, where the command has the new option and not the old one."""
    out: list[str] = []
    words = iter(args)
    for word in words:
        old, equals, value = word.partition("=")
        new = next((new for name, new in _TABLES["options"] if name == old and new.split()[0] in has), "")
        if not new or old in has:
            out.append(word)
            continue
        _say(old, new)
        if new.endswith("="):
            option, name = new.split()
            out += [option, name + (value if equals else next(words, ""))]
        else:
            out += new.split() if " " in new else [new + equals + value]
    return out


def _say(old: str, new: str) -> None:
    typer.echo(f"whatelse: {old!r} is now called {new!r}", err=True)
