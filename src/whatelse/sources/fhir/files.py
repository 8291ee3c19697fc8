"""Bundles and Bulk Data files -> visits: JSON and NDJSON, compressed or not, single files or folders of them.

A patient's resources may be spread over many files (Bulk Data has one per type), so they are first put by patient into
a temporary SQLite database; memory holds one patient, one Bundle and no more, whatever the number of visits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from whatelse.errors import InputError
from whatelse.io.files import scratch_folder
from whatelse.io.limits import check_line, limit
from whatelse.sources.codings import Codings
from whatelse.sources.fhir.models import MODELS, Encounter
from whatelse.sources.fhir.resources import WORDS, Broken, Resources, entries, local, patient_of
from whatelse.sources.fhir.visit import EMERGENCY, NO_VISIT, is_emergency, visit_of
from whatelse.sources.report import BadValue, Report
from whatelse.sources.textfile import COMPRESSION, damage, open_bytes
from whatelse.visits import Visit

NAMES = (".json", ".ndjson", ".jsonl")
SHARED = ("Binary", "Medication")  # of no patient
LARGEST = 1 << 30  # bytes of one Bundle, which has to be in memory as a whole


def read_files(path: Path, report: Report, codings: Codings) -> Iterator[tuple[int, Visit]]:
    """(number from 1, visit) of every emergency encounter, by patient. A broken resource is left out, and counted."""
    files = find_files(path)
    with scratch_folder() as scratch:
        spool = Spool(scratch / "resources.db")
        try:
            for file in files:
                _load(file, spool, report)
            yield from _visits(path, spool, report, codings)
        finally:
            spool.close()


def find_files(path: Path) -> list[Path]:
    """The FHIR files of a folder and the folders in it, or the one file."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.is_file() and _stem(file).endswith(NAMES))
    if not found:
        raise InputError(f"no FHIR files in this folder; they end in {', '.join(NAMES)}, compressed or not", file=path)
    return found


def _stem(file: Path) -> str:
    name = file.name.lower()
    return next((name.removesuffix(end) for end in COMPRESSION if name.endswith(end)), name)


class Spool:
    """Resources by patient, on disk."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("CREATE TABLE resource (patient TEXT, file TEXT, row INTEGER, body TEXT)")
        self._db.execute("CREATE TABLE shared (name TEXT PRIMARY KEY, body TEXT)")
        self._db.execute("CREATE TABLE emergency (patient TEXT PRIMARY KEY)")
        self._db.execute("BEGIN")
        self.types: set[str] = set()

    def close(self) -> None:
        self._db.close()

    def add(self, raw: Any, file: Path, row: int) -> None:
        """Keep a resource of a type that is read; Broken if it names no patient."""
        kind = raw.get("resourceType") if isinstance(raw, dict) else None
        if not isinstance(kind, str):
            raise Broken("entry is not a resource")
        if kind not in MODELS:
            return
        self.types.add(kind)
        body, number = json.dumps(raw), raw.get("id")
        if kind in SHARED:
            self._db.execute("INSERT OR REPLACE INTO shared VALUES (?, ?)", (f"{kind}/{number}", body))
            return
        whose = patient_of(raw)
        if whose is None:
            raise Broken(f"{kind} names no patient")
        self._db.execute("INSERT INTO resource VALUES (?, ?, ?, ?)", (whose, str(file), row, body))
        found = raw.get("class")
        if kind == "Encounter" and isinstance(found, dict) and str(found.get("code")).upper() in EMERGENCY:
            self._db.execute("INSERT OR IGNORE INTO emergency VALUES (?)", (whose,))

    def patients(self) -> Iterator[list[tuple[str, int, str]]]:
        """(file, row, JSON) of every resource of a patient, for patients with an emergency encounter."""
        self._db.execute("COMMIT")
        self._db.execute("CREATE INDEX by_patient ON resource (patient)")
        for (patient,) in self._db.execute("SELECT patient FROM emergency ORDER BY patient"):
            yield self._db.execute(
                "SELECT file, row, body FROM resource WHERE patient = ? ORDER BY rowid", (patient,)
            ).fetchall()

    def shared(self, name: str) -> Any:
        """A Binary or Medication by "Type/id"; None if it is not there."""
        row = self._db.execute("SELECT body FROM shared WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None


def _load(file: Path, spool: Spool, report: Report) -> None:
    with damage(file), open_bytes(file) as stream:
        lines = _stem(file).endswith((".ndjson", ".jsonl"))
        for row, raw in _lines(stream, file, report) if lines else _bundle(stream, file):
            try:
                spool.add(raw, file, row)
            except Broken as broken:
                report.leave_out_row(broken, file, row)


def _lines(stream: Any, file: Path, report: Report) -> Iterator[tuple[int, Any]]:
    most = limit("WHATELSE_MAX_LINE")
    for row, line in enumerate(iter(partial(stream.readline, most + 1), b""), start=1):
        check_line(file, len(line))
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError):
            report.leave_out_row(BadValue("line is not JSON"), file, row)
            continue
        yield row, raw


def _bundle(stream: Any, file: Path) -> Iterator[tuple[int, Any]]:
    text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise InputError(f"is larger than {LARGEST >> 30} GB: export it as NDJSON (Bulk Data)", file=file)
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("is not a JSON document; a file with one resource a line ends in .ndjson", file=file) from None
    del text
    if not isinstance(raw, dict) or not isinstance(raw.get("resourceType"), str):
        raise InputError("is no FHIR resource: expected a Bundle, or one resource", file=file)
    names = _full_urls(raw)
    for row, resource in enumerate(entries(raw), start=1):
        if names and isinstance(resource, dict) and resource.get("resourceType") in MODELS:
            _relink(resource, names)
        yield row, resource


def _full_urls(raw: dict[str, Any]) -> dict[str, str]:
    """urn:… of an entry -> "Type/id". References within a transaction Bundle name these."""
    names, found = {}, raw.get("entry")
    for entry in found if isinstance(found, list) else ():
        resource, url = (entry.get("resource"), entry.get("fullUrl")) if isinstance(entry, dict) else (None, None)
        if isinstance(resource, dict) and isinstance(url, str) and url.startswith("urn:"):
            names[url] = f"{resource.get('resourceType')}/{resource.get('id')}"
    return names


def _relink(value: Any, names: dict[str, str]) -> None:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key in ("reference", "url"):
                if isinstance(value.get(key), str) and value[key] in names:
                    value[key] = names[value[key]]
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _visits(path: Path, spool: Spool, report: Report, codings: Codings) -> Iterator[tuple[int, Visit]]:
    for kind, without in WORDS["without"].items():
        if kind not in spool.types:
            report.note(f"{path}: no {kind} in these files, so {without}")
    number = 0
    for rows in spool.patients():
        resources = Resources(asked=spool.types)
        for file, row, body in rows:
            raw = json.loads(body)
            try:
                resources.add(raw, strict=True)
            except Broken as broken:
                report.leave_out_row(broken, file, row)
                continue
            for name in _links(raw):
                if (shared := spool.shared(name)) is not None:
                    resources.add(shared)
        for kind, count in resources.broken.items():
            report.left_out[kind] += count
        for encounter in resources.all(Encounter):
            if is_emergency(encounter) and encounter.status not in NO_VISIT:
                number += 1
                yield number, visit_of(encounter, resources, codings).visit
    if not number:
        report.note(f"{path}: no emergency encounter (class EMER) in it, so no visits")


def _links(raw: dict[str, Any]) -> list[str]:
    """The Binaries and Medications that a resource refers to."""
    found: list[Any] = []
    if raw.get("resourceType") == "DocumentReference" and isinstance(raw.get("content"), list):
        attachments = [c.get("attachment") for c in raw["content"] if isinstance(c, dict)]
        found += [a.get("url") for a in attachments if isinstance(a, dict)]
    if isinstance(reference := raw.get("medicationReference"), dict):
        found.append(reference.get("reference"))
    names = [local(text) for text in found if isinstance(text, str)]
    return [name for name in names if name is not None and name.startswith(SHARED)]
