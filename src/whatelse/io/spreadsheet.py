"""Cells that a spreadsheet shows instead of running them as formulas."""

from __future__ import annotations

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def escape_formula(text: str) -> str:
    """The text, with a quote in front if a spreadsheet would run it. A number with its sign stays as it is."""
    signed = text[:1] in ("+", "-") and text[1:].isascii() and text[1:].isdigit()
    return f"'{text}" if text.startswith(_FORMULA) and not signed else text


def unescape_formula(text: str) -> str:
    """The text before `escape_formula`."""
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text
