"""Where records lie: a path, or the address of a server or database."""

from __future__ import annotations

import os
import re
from pathlib import Path

PathLike = str | os.PathLike[str]


def place(path: PathLike) -> Path | str:
    """A Path, or an address as text. Path("https://x") reads "https:/x": the missing slashes are put back."""
    text = os.fspath(path)
    found = re.match(r"^([a-z][a-z0-9+]+):(/+)", text)
    if found is None:
        return Path(text)
    scheme, rest = found[1], text[found.end() :]
    if len(found[2]) > 1:
        return text
    if scheme in ("duckdb", "sqlite"):  # a file: three slashes before a relative path, four before an absolute one
        return f"{scheme}:///{'/' if Path('/' + rest).exists() else ''}{rest}"
    return f"{scheme}://{rest}"


def hide_password(address: str) -> str:
    """An address that may be shown and stored: '***' for a password before the host or among the options."""
    address = re.sub(r"(://?[^:/]*):(?:[^/?#]*|[^@]*)@", r"\1:***@", address)
    return re.sub(r"([?&][a-z_]*(?:password|pwd)=)[^&]*", r"\1***", address, flags=re.IGNORECASE)
