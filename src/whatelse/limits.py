"""What a file may cost to read. Every limit can be raised by an environment variable, which the error names.

A file may come from elsewhere: a few megabytes that unpack to gigabytes, a link to a device that never ends, a
document nested deeper than any reader's stack.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from whatelse.errors import InputError

# name -> (default, what it limits)
LIMITS = {
    "WHATELSE_MAX_LINE": (64 << 20, "bytes of a line"),
    "WHATELSE_MAX_EXPANSION": (200, "times that a compressed file may grow"),
    "WHATELSE_MAX_DOCUMENT": (4 << 20, "bytes of a YAML file"),
    "WHATELSE_MAX_DEPTH": (50, "levels that a YAML file may be nested"),
}
SMALL = 256 << 20  # bytes that any file may grow to


def limit(name: str) -> int:
    """A limit by its name: what the environment says, else its default."""
    given = os.environ.get(name, "")
    return int(given) if given.isascii() and given.isdigit() else LIMITS[name][0]


def regular(path: Path) -> int:
    """The size of a regular file; InputError for a device, a pipe or a socket, which may never end."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
        raise InputError("is a device, a pipe or a socket and not a file; copy its content to one", file=path)
    return about.st_size


def check_growth(path: Path, size: int, grown: int) -> None:
    """InputError if a file of `size` bytes has grown to more than it may."""
    times = limit("WHATELSE_MAX_EXPANSION")
    if grown > max(SMALL, times * size):
        raise InputError(
            f"unpacks to more than {times} times its {size:,} bytes; if that is right, unpack it first or set "
            "WHATELSE_MAX_EXPANSION higher",
            file=path,
        )


def check_line(path: Path, length: int) -> None:
    """InputError if a line is longer than it may be."""
    if length > (most := limit("WHATELSE_MAX_LINE")):
        raise InputError(
            f"has a line of more than {most:,} bytes; if that is right, set WHATELSE_MAX_LINE higher", file=path
        )


def read_yaml(path: Path) -> Any:
    """The content of a YAML file within limits; OSError, UnicodeDecodeError and yaml.YAMLError as they come."""
    most, deepest = limit("WHATELSE_MAX_DOCUMENT"), limit("WHATELSE_MAX_DEPTH")
    regular(path)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"has more than {most:,} bytes; if that is right, set WHATELSE_MAX_DOCUMENT higher", file=path)
    text, depth = data.decode("utf-8"), 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):  # building the objects recurses, reading the events does not
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > deepest:
            raise InputError(
                f"is nested more than {deepest} levels deep; if that is right, set WHATELSE_MAX_DEPTH higher", file=path
            )
    return yaml.safe_load(text)
