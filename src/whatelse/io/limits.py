"""Limits of file sizes and YAML documents. Each can be raised by an environment variable, which the error names.

They guard against hostile files: megabytes that unpack to gigabytes, devices that never end, deep nesting.
"""

from __future__ import annotations

import os
import stat
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from whatelse.errors import InputError

LIMITS = {
    "WHATELSE_MAX_LINE": 64 << 20,  # bytes of a line
    "WHATELSE_MAX_EXPANSION": 200,  # times that a compressed file may grow
    "WHATELSE_MAX_DOCUMENT": 4 << 20,  # bytes of a YAML file
    "WHATELSE_MAX_DEPTH": 50,  # levels that a YAML file may be nested
    "WHATELSE_MAX_VALUES": 500_000,  # values in a YAML file, aliases written out
    "WHATELSE_MAX_MODEL_BYTES": 2 << 30,  # bytes of a model's arrays; 23 conditions and 1,000 findings take under 1 MB
}
LONGEST = 1_000  # characters of a number in a YAML file: turning digits into one takes the square of their number
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SMALL = 256 << 20  # bytes that any file may grow to


def limit(name: str) -> int:
    """A limit by its name: the environment variable, else the default."""
    given = os.environ.get(name, "")
    return int(given) if given.isascii() and given.isdigit() else LIMITS[name]


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
        raise _exceeded(path, f"unpacks to more than {times} times its {size:,} bytes", "WHATELSE_MAX_EXPANSION")


def check_line(path: Path, length: int) -> None:
    """InputError if a line is longer than it may be."""
    if length > (most := limit("WHATELSE_MAX_LINE")):
        raise _exceeded(path, f"has a line of more than {most:,} bytes", "WHATELSE_MAX_LINE")


def _exceeded(path: Path | str, what: str, name: str) -> InputError:
    return InputError(f"{what}; if that is right, set {name} higher", file=path)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file within limits; OSError, UnicodeDecodeError and yaml.YAMLError as they come."""
    regular(path)
    with path.open("rb") as file:
        data = file.read(limit("WHATELSE_MAX_DOCUMENT") + 1)
    _check_length(path, len(data))
    return parse_yaml(data.decode("utf-8"), path)


def shipped_yaml(package: str, name: str) -> Any:
    """The content of a YAML file that comes with the package."""
    return yaml.load((files(package) / name).read_text("utf-8"), Loader=LOADER)


def yaml_problem(problem: Exception) -> str:
    """Why `read_yaml` failed, for a message."""
    if isinstance(problem, FileNotFoundError):
        return "no such file; check the path"
    if isinstance(problem, IsADirectoryError):
        return "is a folder; give one file"
    if isinstance(problem, UnicodeDecodeError):
        return "is not YAML: it is no text in UTF-8"
    mark = getattr(problem, "problem_mark", None)
    start = "cannot start any token" in str(problem)  # a tab, @ or `
    hint = "; indent with blanks, not tabs, and quote text that begins with @ or `" if start else ""
    return f"cannot be read as YAML: see line {mark.line + 1}{hint}" if mark else "cannot be read as YAML"


def parse_yaml(text: str, path: Path | str) -> Any:
    """The content of a YAML text within limits; path: where it is from."""
    _check_length(path, len(text))
    _check_shape(path, text)
    try:
        return yaml.load(text, Loader=LOADER)
    except ValueError as error:  # a date in the 13th month, a number of thousands of digits
        raise yaml.YAMLError(str(error)) from None


def _check_length(path: Path | str, length: int) -> None:
    if length > (most := limit("WHATELSE_MAX_DOCUMENT")):
        raise _exceeded(path, f"has more than {most:,} bytes", "WHATELSE_MAX_DOCUMENT")


def _check_shape(path: Path | str, text: str) -> None:
    """InputError if the objects would be too deep or too many, by the events alone, which cost no more than the text.

    An alias counts as all that it stands for: ten lines of ten aliases each are ten thousand million values, and
    merging them ('<<') goes through every one.
    """
    deepest, most = limit("WHATELSE_MAX_DEPTH"), limit("WHATELSE_MAX_VALUES")
    sizes: dict[str | None, int] = {}  # values that an anchor stands for
    within: list[tuple[str | None, int]] = [(None, 0)]  # the collections around: name, values up to its beginning
    count = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.NodeEvent):
            own = 1 if not isinstance(event, yaml.AliasEvent) else sizes.get(event.anchor, most + 1)  # or of itself
            count += own
            if isinstance(event, yaml.ScalarEvent):
                if event.anchor:
                    sizes[event.anchor] = 1
                if not event.style and len(event.value) > LONGEST and event.value[0] in "+-.0123456789":
                    raise InputError(
                        f"has a number of more than {LONGEST:,} characters; is it text? quote it", file=path
                    )
            if isinstance(event, yaml.CollectionStartEvent):
                within.append((event.anchor, count - 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = within.pop()
            if anchor:
                sizes[anchor] = count - before
        if len(within) > deepest + 1:
            raise _exceeded(path, f"is nested more than {deepest} levels deep", "WHATELSE_MAX_DEPTH")
        if count > most:
            raise _exceeded(path, f"holds more than {most:,} values, aliases written out", "WHATELSE_MAX_VALUES")
