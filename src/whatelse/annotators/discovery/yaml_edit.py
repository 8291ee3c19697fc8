"""Edits of YAML files that people write: one entry is added, removed or changed; comments and order stay.

`ruamel.yaml` keeps comments, quotes and flow style. A comment line after an entry belongs to that entry there; here it
stays where it is when an entry is added or removed. Lists longer than a line are wrapped anew. The new text is read
again and must hold what was meant.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.scalarstring import SingleQuotedScalarString
from ruamel.yaml.tokens import CommentToken

from whatelse.errors import InputError
from whatelse.io.files import write_whole

WIDTH = 120  # columns of a line, unless the file has longer ones


def append(text: str, path: list[str | int], value: Any) -> str:
    """`text` with `value` added to the list at `path` (keys and positions). Lists and mappings on the way are made."""

    def change(data: Any) -> None:
        for at, key in enumerate(path):
            if isinstance(key, int) or data.get(key) is not None:
                parent, data = data, data[key]
                continue
            new: Any = [value]
            for inner in reversed(path[at + 1 :]):
                new = {inner: new}
            data[key] = _flow(new) if isinstance(data, CommentedMap) else new
            return
        if not isinstance(data, CommentedSeq):
            data.append(value)
            return
        comment = _take_comment(data, len(data) - 1)
        data.append(_quoted(value))
        if comment:
            _put_comment(data, parent, path[-1], len(data) - 1, comment)

    return _edited(text, change)


def replace(text: str, path: list[str | int], position: int, value: str | None) -> str:
    """`text` with entry `position` of the list at `path` replaced by `value`, or removed if that is None."""

    def change(data: Any) -> None:
        for key in path:
            parent, data = data, data[key]
        if value is not None:
            data[position] = _quoted(value) if isinstance(data, CommentedSeq) else value
            return
        comment = _take_comment(data, position) if isinstance(data, CommentedSeq) else ""
        del data[position]
        if comment:
            _put_comment(data, parent, path[-1], position - 1, comment)

    return _edited(text, change)


def _edited(text: str, change: Callable[[Any], None]) -> str:
    """`text` after `change`, which is applied to plain values as well: the new text must hold the same."""
    wanted = yaml.safe_load(text)
    wanted = {} if wanted is None else wanted
    lines = text.replace("\r\n", "\n")
    editor = YAML()
    editor.preserve_quotes = True
    editor.width = max(WIDTH, *map(len, lines.split("\n")))
    offset = _offset(lines)
    editor.indent(mapping=2, sequence=offset + 2, offset=offset)
    try:
        data = editor.load(lines)
        empty = data is None
        data = CommentedMap() if empty else data
        change(wanted)
        change(data)
        out = io.StringIO()
        editor.dump(data, out)
        changed = lines.rstrip() + "\n" * bool(lines.strip()) + out.getvalue() if empty else out.getvalue()
        changed = re.sub(r" +$", "", changed, flags=re.MULTILINE)  # left where a long list is wrapped
        foot = re.search(r"(^ *#.*\n)*\Z", lines, re.MULTILINE)
        if foot is not None and not changed.endswith(foot[0]):  # lost after a mapping in braces
            changed = changed.rstrip() + "\n" + foot[0]
        lost = set(_comments(lines)) - set(_comments(changed))
        if lost or yaml.safe_load(changed) != wanted:
            raise ValueError("the new text does not hold what was meant")
    except (YAMLError, yaml.YAMLError, ValueError, TypeError, AttributeError):
        raise InputError("cannot be edited as it is written: edit it by hand") from None
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def _comments(text: str) -> list[str]:
    """The lines that are comments, without their indentation."""
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def _offset(text: str) -> int:
    """Columns between a key and the dash of its block list, as the text has them first; 2 if it has none."""
    found = re.search(r"^( *)((?:- )*)[^\s#-][^\n]*:[ ]*(?:#.*)?\n(?:[ ]*(?:#.*)?\n)*( *)- ", text, re.MULTILINE)
    return 2 if found is None else max(0, len(found[3]) - len(found[1]) - len(found[2]))


def _flow(value: Any) -> Any:
    """A value on one line."""
    if isinstance(value, str):
        return _quoted(value)
    new: Any = CommentedSeq(map(_flow, value))
    if isinstance(value, dict):
        new = CommentedMap((_quoted(key), _flow(inner)) for key, inner in value.items())
    new.fa.set_flow_style()
    return new


def _quoted(value: Any) -> Any:
    """Text in quotes where it needs them in YAML 1.1, which reads `yes` and `1:30` as no text; a mapping as block."""
    if isinstance(value, dict):
        return CommentedMap((_quoted(key), _flow(inner)) for key, inner in value.items())
    try:
        plain = yaml.safe_load(value) == value and yaml.safe_load(f"[{value}]") == [value]
    except yaml.YAMLError:
        plain = False
    return value if plain else SingleQuotedScalarString(value)


def _take_comment(entries: CommentedSeq, at: int) -> str:
    """Remove and return the lines after entry `at`; a comment on the line of the entry stays with it."""
    token = (entries.ca.items.get(at) or [None])[0]
    if token is None:
        return ""
    own, _, after = token.value.partition("\n")
    if own:
        token.value = own + "\n"
    else:
        del entries.ca.items[at]
    return str(after)


def _put_comment(entries: CommentedSeq, parent: CommentedMap, key: str | int, at: int, lines: str) -> None:
    """Put comment lines after entry `at`; for -1 before the first entry, or after an empty list."""
    if at >= 0:
        tokens = entries.ca.items.setdefault(at, [None, None, None, None])
        if tokens[0] is not None:
            tokens[0].value += lines
        else:
            tokens[0] = CommentToken("\n" + lines, CommentMark(0), None)
    elif entries:
        before = CommentToken(lines.lstrip(" "), CommentMark(len(lines) - len(lines.lstrip(" "))), None)
        parent.ca.items.setdefault(key, [None, None, None, None])[3] = [before]
    else:
        entries.fa.set_flow_style()
        parent.ca.items[key] = [None, None, CommentToken("\n" + lines, CommentMark(0), None), None]


def read_text(path: Path) -> str:
    """The text of a file, line ends as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("is not text in UTF-8", file=path) from None


def write_text(path: Path, text: str) -> None:
    """Replace a file whole or not at all; the target of a link, not the link."""
    write_whole(path.resolve(), text.encode("utf-8"))
