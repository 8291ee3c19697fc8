"""Cells that a spreadsheet shows instead of running them as formulas."""

from __future__ import annotations

_SIGNS = "=+-@＝＋－＠"  # also in their full width, which some spreadsheets read as the plain sign


def _runs(text: str) -> bool:
    """Whether a spreadsheet may run a text, now or after it drops quotes, blanks and control characters in front."""
    bare = text.lstrip(" '")
    first = next((c for c in bare if c.isprintable() and c != " "), " ")
    return first in _SIGNS or not bare[:1].isprintable()


def escape_formula(text: str) -> str:
    """The text, with a quote in front if a spreadsheet may run it. A number with its sign stays as it is."""
    signed = text[:1] in ("+", "-") and text[1:].isascii() and text[1:].isdigit()
    return f"'{text}" if _runs(text) and not signed else text


def unescape_formula(text: str) -> str:
    """The text before `escape_formula`."""
    return text[1:] if text.startswith("'") and _runs(text[1:]) else text
