"""Results as one self-contained HTML page, and as JSON beside it."""

from whatelse.report.page import render, write_report

__all__ = ["render", "write_report"]
