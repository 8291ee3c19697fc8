"""Formulas in cells: escaped once, and back."""

from __future__ import annotations

import pytest

from whatelse.io.spreadsheet import escape_formula, unescape_formula

ODD = [" =x", "\x0b=x", "\u200b@x", "＝x", "'=x"]


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@sum", "\tx", "\rx", "\nx", "-", *ODD])
def test_formula_gets_a_quote_and_loses_it_again(text: str) -> None:
    assert escape_formula(text) == "'" + text and unescape_formula(escape_formula(text)) == text


@pytest.mark.parametrize("text", ["", "x", "-5", "+12", "'quoted'", "a=b"])
def test_other_text_stays(text: str) -> None:
    assert escape_formula(text) == text and unescape_formula(text) == text
