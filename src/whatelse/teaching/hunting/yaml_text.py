"""Editing a YAML file as a person would: one entry goes in, out or is changed, and every other character stays.

PyYAML says where each node begins and ends; a new entry is put after the last one of its list or mapping, in the
style that the list or mapping has. What comes out is read again and must be what was meant, or nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from whatelse.errors import InputError
from whatelse.files import write_whole


def append(text: str, path: Sequence[str | int], value: Any) -> str:
    """`text` with `value` added to the list at `path` (keys and positions); lists and mappings on the way are made.

    InputError if the text is written in a way that this cannot edit (an alias, a list with its own anchor).
    """
    wanted = _appended(yaml.safe_load(text), path, value)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    try:
        changed = (_flow(_nest(path, value)) + "\n") if root is None else _edit(text, root, path, value)
        if yaml.safe_load(changed) != wanted:
            raise ValueError("not what was meant")
    except (yaml.YAMLError, ValueError, TypeError):
        raise InputError(
            "is written in a way that cannot be edited without rewriting it: add the entry by hand"
        ) from None
    return changed


def change(text: str, path: Sequence[str | int], position: int, value: str | None) -> str:
    """`text` with entry `position` of the list of scalars at `path` changed to `value`, or taken out if that is None.

    A list that becomes empty stays as `[]`. InputError as for `append`.
    """
    wanted = yaml.safe_load(text)
    inner = wanted
    for key in path:
        inner = inner[key]
    inner[position : position + 1] = [] if value is None else [value]
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        for key in path:
            node = _child(node, key)
        if not isinstance(node, yaml.SequenceNode):
            raise TypeError("not a list")
        changed = _without(text, node, position) if value is None else _with(text, node.value[position], value)
        if yaml.safe_load(changed) != wanted:
            raise ValueError("not what was meant")
    except (yaml.YAMLError, ValueError, TypeError):
        raise InputError("is written in a way that cannot be edited without rewriting it: change it by hand") from None
    return changed


def _with(text: str, entry: yaml.Node, value: str) -> str:
    return text[: entry.start_mark.index] + _flow(value) + text[entry.end_mark.index :]


def _without(text: str, node: yaml.SequenceNode, position: int) -> str:
    """Without one entry: in a flow list with its comma, in a block list with its line."""
    entries = node.value
    start, end = entries[position].start_mark.index, entries[position].end_mark.index
    if len(entries) == 1:
        if node.flow_style:
            return text[:start] + text[end:]
        return text[: node.start_mark.index] + "  []" + text[end:]  # must stand to the right of its key
    if not node.flow_style:
        start = text.rfind("\n", 0, start) + 1
        line = text.find("\n", end)
        return text[:start] + (text[line + 1 :] if line >= 0 else "")
    if position + 1 < len(entries):
        return text[:start] + text[entries[position + 1].start_mark.index :]
    return text[: entries[position - 1].end_mark.index] + text[end:]


def _appended(data: Any, path: Sequence[str | int], value: Any) -> Any:
    """What the file must hold afterwards, as values."""
    data = deepcopy(data)
    if data is None:
        return _nest(path, value)
    here = data
    for depth, key in enumerate(path):
        known = key < len(here) if isinstance(key, int) else (here or {}).get(key) is not None
        if not known:
            here[key] = _nest(path[depth + 1 :], value)
            return data
        here = here[key]
    here.append(value)
    return data


def _nest(path: Sequence[str | int], value: Any) -> Any:
    out: Any = [value]
    for key in reversed(path):
        out = {key: out}
    return out


def _edit(text: str, node: yaml.Node, path: Sequence[str | int], value: Any) -> str:
    for depth, key in enumerate(path):
        child = _child(node, key)
        if child is None:
            return _add(text, node, f"{_flow(key)}: {_flow(_nest(path[depth + 1 :], value))}")
        if isinstance(child, yaml.ScalarNode):  # "anchors:" with nothing after it
            place = child.start_mark.index
            gap = "" if text[place - 1 : place] in (" ", "") else " "
            return text[:place] + gap + _flow(_nest(path[depth + 1 :], value)) + text[child.end_mark.index :]
        node = child
    if not isinstance(node, yaml.SequenceNode):
        raise TypeError("not a list")
    return _add(text, node, _flow(value) if node.flow_style else block(value, node.start_mark.column + 2), "- ")


def _child(node: yaml.Node, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
        return node.value[key]  # type: ignore[no-any-return]
    if isinstance(node, yaml.MappingNode):
        return next((v for k, v in node.value if k.value == key), None)
    raise TypeError("a path that the file does not have")


def _add(text: str, node: yaml.Node, entry: str, dash: str = "") -> str:
    """Put an entry after the last one of a list or mapping."""
    if node.flow_style:  # type: ignore[attr-defined]
        place = _end(node.value[-1]) if node.value else node.start_mark.index + 1
        return text[:place] + (", " if node.value else "") + entry + text[place:]
    end = text.find("\n", _end(node.value[-1]))
    newline = "\r\n" if "\r\n" in text else "\n"
    line = " " * node.start_mark.column + dash * isinstance(node, yaml.SequenceNode) + entry
    if end < 0:
        return text + newline + line + newline
    if text[end - 1 : end] == "\r":
        end -= 1
    return text[:end] + newline + line.replace("\n", newline) + text[end:]


def _end(node: Any) -> int:
    """Where the last character of an entry is, without the blank lines and comments after a block."""
    if isinstance(node, tuple):
        return _end(node[1])
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        return _end(node.value[-1])
    return int(node.end_mark.index)


def _flow(value: Any) -> str:
    """A value on one line, quoted where it must be."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return yaml.safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True).strip()[1:-1]


def block(value: Any, indent: int) -> str:
    """An entry of a block list: a mapping has a line for each key."""
    if not isinstance(value, dict):
        return _flow(value)
    return ("\n" + " " * indent).join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items())


def read_text(path: Path) -> str:
    """The text of a file, line ends as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("is not text in UTF-8", file=path) from None


def write_text(path: Path, text: str) -> None:
    """Replace a file whole or not at all; what a link points to, not the link."""
    write_whole(path.resolve(), text.encode("utf-8"))
