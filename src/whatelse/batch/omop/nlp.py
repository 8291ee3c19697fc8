"""Rows of NOTE_NLP: the words of each note that are findings of a model. Optional.

A visit's note may be several rows of NOTE; a finding's place is taken back to the row that it stands in. Rows wait in
the scratch database until all visits are read, so memory does not grow with their number. What whatelse wrote before
is replaced in the same transaction; rows of other systems stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import yaml

from whatelse.cohort.batches import Found
from whatelse.sources.codings import Codings
from whatelse.sources.omop.tables import BATCH
from whatelse.tagger import Tagger
from whatelse.visits import Visit

TABLES: dict[str, Any] = yaml.safe_load((files("whatelse.batch.omop") / "tables.yaml").read_text("utf-8"))
COLUMNS: dict[str, str] = TABLES["note_nlp"]
SYSTEM, ANCHOR = "whatelse", "anchor:"
FIRST = 1_000_000_000  # number of our first row: what other systems number from 1 is left alone
AROUND = 60  # characters of a snippet on each side
FIELDS = {"triage": "triage_note", "provider": "md_comments"}
NOTES = """
SELECT n.visit_occurrence_id, n.note_id, c.concept_code, c.concept_name, n.note_title, n.note_text
FROM note n LEFT JOIN concept c ON c.concept_id = n.note_class_concept_id
WHERE n.visit_occurrence_id IN (SELECT unnest(?::BIGINT[]))
ORDER BY n.visit_occurrence_id, coalesce(n.note_datetime, n.note_date), n.note_id
"""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row of NOTE in a visit's field: where its text begins there, and how many blanks were cut off before it."""

    note: int
    start: int
    cut: int
    text: str


class Mentions:
    """Rows of NOTE_NLP, gathered visit by visit in the scratch database of a CDM that is loaded."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, codings: Codings, tagger: Tagger, now: datetime) -> None:
        self._connection, self._codings, self._now = connection.cursor(), codings, now
        self._vocabulary, self._model, self._count = tagger.vocabulary_, tagger.digest_[:12], 0
        fields = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
        self._connection.execute(f"CREATE OR REPLACE TABLE mentions ({fields})")
        found = self._connection.execute("SELECT concept_code, concept_id FROM concept WHERE vocabulary_id = 'SNOMED'")
        self._concepts: dict[str, int] = dict(found.fetchall())

    def add(self, visits: Sequence[Visit]) -> None:
        """Add the findings in the notes of these visits."""
        pieces = self._pieces([int(visit.id) for visit in visits])
        rows = [
            row
            for visit in visits
            for found in self._vocabulary.find(visit)
            if (row := self._row(found, pieces.get((int(visit.id), found.field), ()))) is not None
        ]
        if rows:
            batch = pa.table({name: [row[k] for row in rows] for k, name in enumerate(COLUMNS)})
            self._connection.register("batch", batch)
            self._connection.execute("INSERT INTO mentions SELECT * FROM batch")
            self._connection.unregister("batch")

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """All rows, BATCH at a time."""
        found = self._connection.execute("SELECT * FROM mentions ORDER BY note_nlp_id")
        while batch := found.fetchmany(BATCH):
            yield batch

    def _pieces(self, visits: list[int]) -> dict[tuple[int, str], list[_Piece]]:
        """The rows of NOTE that each note of a visit was put together from, as `visits.py` does it."""
        pieces: dict[tuple[int, str], list[_Piece]] = {}
        for visit, note, code, name, title, text in self._connection.execute(NOTES, [visits]).fetchall():
            if code in self._codings.complaint or not text:
                continue
            if kind := self._codings.note([code] if code else [], " ".join(filter(None, (name, title)))):
                before = pieces.setdefault((visit, FIELDS[kind]), [])
                start = before[-1].start + len(before[-1].text) + 1 if before else 0
                before.append(_Piece(note, start, len(text) - len(text.lstrip()), text.strip()))
        return pieces

    def _row(self, found: Found, pieces: Iterable[_Piece]) -> tuple[Any, ...] | None:
        if found.start is None or found.end is None:
            return None
        for piece in pieces:
            start, end = found.start - piece.start, found.end - piece.start
            if 0 <= start < end <= len(piece.text):
                break
        else:
            return None  # a complaint, or words on both sides of where two notes meet
        self._count += 1
        snippet = piece.text[max(0, start - AROUND) : end + AROUND]
        name = self._vocabulary.names[found.finding]
        condition = name.removeprefix(ANCHOR) if name.startswith(ANCHOR) else None
        said = f"condition={condition}" if condition else f"finding={name}"
        codes = [c.code for c in self._codings.drafts.get(condition or "", ()) if c.system == "snomed"]
        concept = next((self._concepts[c] for c in codes if c in self._concepts), 0)  # 0: none that this CDM has
        return (
            FIRST + self._count, piece.note, 0, snippet[:250], str(start + piece.cut), piece.text[start:end][:250],
            concept, 0, SYSTEM, self._now.date(), self._now,
            "N" if found.negated else "Y", None, f"{said};model={self._model}"[:2000],
        )  # fmt: skip
