"""A small table as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class TextTable:
    """title over a table of text cells, the first column left-aligned and the others right-aligned, and lines below."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()

    def text(self) -> str:
        """For a terminal."""
        table = [self.header, *self.rows]
        widths = [max(len(row[k]) for row in table) for k in range(len(self.header))]
        lines = [_line(row, widths) for row in table]
        rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
        return "\n".join(line for line in (self.title, lines[0], rule, *lines[1:], *self.below) if line)

    def html(self) -> str:
        """For a notebook. Every cell is escaped: a finding can be any word of a record."""
        head = "".join(f"<th{_side(k)}>{escape(cell)}</th>" for k, cell in enumerate(self.header))
        body = "".join(
            "<tr>" + "".join(f"<td{_side(k)}>{escape(cell)}</td>" for k, cell in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        below = "".join(f"<p><small>{escape(line)}</small></p>" for line in self.below)
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


class Printed:
    """Base of objects that print as a table, made by `shown`, in a terminal and in a notebook."""

    __slots__ = ()

    def shown(self) -> TextTable:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.shown().text()

    def _repr_html_(self) -> str:
        return self.shown().html()


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def _side(column: int) -> str:
    return ' style="text-align: left"' if column == 0 else ' style="text-align: right"'
