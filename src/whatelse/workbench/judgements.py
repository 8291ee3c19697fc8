"""judged.csv: visits looked at to judge a phrase, one line each: condition, phrase, key, system, visit, label.

They are drawn among the visits that have a phrase, so they tell the phrase's precision and nothing about other visits.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from whatelse.errors import InputError
from whatelse.io.files import write_whole

COLUMNS = ("condition", "phrase", "key", "system", "visit", "label")
Subject = tuple[str, str, str, str]  # condition, phrase, key, system or ""


def read_judged(path: Path) -> dict[Subject, dict[str, bool]]:
    """By condition and phrase, the visits judged."""
    out: dict[Subject, dict[str, bool]] = {}
    if not path.exists():
        return out
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))
    except UnicodeDecodeError:
        raise InputError("is not text in UTF-8", file=path) from None
    for number, row in enumerate(rows, start=1):
        if set(row) != set(COLUMNS) or row["label"] not in ("0", "1"):
            raise InputError(f"needs columns {', '.join(COLUMNS)}, and 1 or 0 as label", file=path, row=number)
        subject = row["condition"], row["phrase"], row["key"], row["system"]
        out.setdefault(subject, {})[row["visit"]] = row["label"] == "1"
    return out


def write_judged(path: Path, judged: Mapping[Subject, Mapping[str, bool]]) -> None:
    """Replace the file."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for subject, visits in judged.items():
        table.writerows([*subject, visit, int(label)] for visit, label in visits.items())
    write_whole(path, out.getvalue().encode())


def judge_visit(path: Path, subject: Subject, visit: str, label: bool | None) -> dict[str, bool]:
    """Note what a person said of one visit with a phrase; None takes it back. Returns all that is judged of it."""
    judged = read_judged(path)
    mine = judged.setdefault(subject, {})
    mine.pop(visit, None)
    if label is not None:
        mine[visit] = label
    write_judged(path, {s: visits for s, visits in judged.items() if visits})
    return mine
