"""Results as one self-contained HTML page, and as JSON beside it."""

from whatelse.evaluation.report.page import render, write_report

__all__ = ["render", "write_report"]
