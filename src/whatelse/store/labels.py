"""Decisions as labels: what stands decided about each tag, for estimating noise rates or training."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from whatelse.io.spreadsheet import escape_formula
from whatelse.store.history import Entry
from whatelse.store.store import Store

SCHEMA = pa.schema(
    [
        ("visit", pa.string()),
        ("condition", pa.string()),
        ("label", pa.int8()),  # 1 confirmed, 0 rejected
        ("actor", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("model", pa.string()),
        ("probability", pa.float64()),  # shown when it was decided, as was the rank
        ("rank", pa.int32()),
        ("before", pa.int32()),  # tags of the visit that were decided before: the list had moved up by so many
        ("changes", pa.int32()),  # how often the tag was decided on
    ]
)
BATCH = 10_000


def labels(store: Store) -> Iterator[dict[str, Any]]:
    """One row per visit and tag that stands confirmed or rejected; streams, ordered by visit."""
    for visit, lines in groupby(store.tag_lines(), key=lambda line: line.visit):
        changes, last = Counter[str](), dict[str, Entry]()
        for line in lines:
            changes[line.subject] += 1
            last[line.subject] = line
        for condition, line in sorted(last.items()):
            if line.verdict != "open":
                shown, label = line.shown, int(line.verdict == "confirmed")
                before = len(shown.get("confirmed", ())) + len(shown.get("rejected", ()))
                row = (visit, condition, label, line.actor, line.at, line.model, shown.get("probability"))
                yield dict(zip(SCHEMA.names, (*row, shown.get("rank"), before, changes[condition]), strict=True))


def to_csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """CSV with a header, line by line. Text that a spreadsheet would run as a formula gets a quote in front."""
    yield ",".join(SCHEMA.names) + "\n"
    for row in rows:
        line = io.StringIO()
        inert = {name: escape_formula(row[name]) for name in ("visit", "condition", "actor", "model")}
        shown = {**row, **inert, "at": row["at"].isoformat()}
        # outside quotes a control character begins a row in some readers, and a semicolon a cell in others
        plain = all(text.isprintable() and ";" not in text for text in inert.values())
        writer = csv.writer(line, lineterminator="\n", quoting=csv.QUOTE_MINIMAL if plain else csv.QUOTE_ALL)
        writer.writerow(shown[name] for name in SCHEMA.names)
        yield line.getvalue()


def to_parquet(rows: Iterable[dict[str, Any]], stream: IO[bytes]) -> int:
    """Parquet with SCHEMA; returns how many rows."""
    source, count = iter(rows), 0
    with pq.ParquetWriter(stream, SCHEMA) as writer:
        while batch := list(islice(source, BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=SCHEMA))
            count += len(batch)
    return count
