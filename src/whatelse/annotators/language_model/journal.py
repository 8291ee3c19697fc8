"""The votes that a language model has given so far, kept on disk so that a run can be killed and continued.

A run appends one line for each visit to OUT.part. At its end the lines become part of OUT, a Parquet file of votes in
the form that `read_votes` takes. Both files quote records: keep them as records are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whatelse.annotators.language_model.answers import Answer
from whatelse.errors import InputError
from whatelse.io.files import writing

SCHEMA = pa.schema(
    [
        ("visit", pa.string()),
        ("condition", pa.string()),
        ("value", pa.int8()),  # 1, 0, or nothing: an abstention
        ("annotator", pa.string()),
        ("weight", pa.float64()),
        ("second", pa.int8()),  # what a second pass said, to measure self-agreement
        ("words", pa.string()),
        ("status", pa.string()),
        ("prompt", pa.string()),
    ]
)


@dataclass
class Journal:
    """Votes of one annotator, asked with one prompt, that go into the file `out`.

    InputError if `out` holds votes of another annotator or prompt.
    """

    out: Path
    annotator: str
    prompt: str
    done: set[str] = field(default_factory=set)
    _stream: Any = None

    def __post_init__(self) -> None:
        self.part = self.out.with_name(self.out.name + ".part")
        if self.out.suffix.lower() not in (".parquet", ".pq"):
            raise InputError("votes are written as Parquet: give a name that ends with .parquet", file=self.out)
        self.done = set(self._kept().column("visit").to_pylist())
        self.done |= {line["visit"] for line in self._lines()}

    def __enter__(self) -> Journal:
        handle = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._stream = os.fdopen(handle, "a", encoding="utf-8")
        if not _locked(self._stream):
            self._stream.close()
            raise InputError("another run is writing these votes: wait for its end", file=self.out)
        if self.part.stat().st_size:
            self._stream.write("\n")  # a line that a kill cut off ends here
        return self

    def __exit__(self, *problem: object) -> None:
        self._stream.close()

    def add(self, visit: str, weight: float, first: Mapping[str, Answer], second: Mapping[str, Answer] | None) -> None:
        """Keep the answers about a visit. They survive the end of this process from now on."""
        again = None if second is None else {name: answer.value for name, answer in second.items()}
        line = {"visit": visit, "weight": weight, "prompt": self.prompt, "annotator": self.annotator}
        self._stream.write(json.dumps(line | {"first": first, "second": again}) + "\n")
        self._stream.flush()
        self.done.add(visit)

    def fold(self) -> pa.Table:
        """Write all votes so far to `out`, in one step, and forget the lines. Returns the votes."""
        kept = self._kept()
        old = set(kept.column("visit").to_pylist())  # not empty if a kill came between the two steps below
        rows = [row for line in self._lines() if line["visit"] not in old for row in _rows(line)]
        table = pa.concat_tables([kept, pa.Table.from_pylist(rows, SCHEMA)])
        with writing(self.out) as file:
            pq.write_table(table, file)
        self.out.chmod(0o600)
        self.part.unlink(missing_ok=True)
        return table

    def _kept(self) -> pa.Table:
        """The votes that `out` holds."""
        if not self.out.exists():
            return SCHEMA.empty_table()
        try:
            table = pq.read_table(self.out)
        except (OSError, pa.ArrowInvalid):
            raise InputError("is not a Parquet file, or is damaged: choose another --out", file=self.out) from None
        if table.schema != SCHEMA:
            raise InputError("is no file of votes that 'whatelse annotate' wrote: choose another --out", file=self.out)
        for column in ("annotator", "prompt"):
            self._check_own(column, set(table.column(column).to_pylist()))
        return table

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The lines of the part file; one that a kill cut off is passed over."""
        for text in self.part.read_text("utf-8").splitlines() if self.part.exists() else ():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            for column in ("annotator", "prompt"):
                self._check_own(column, {line[column]})
            yield line

    def _check_own(self, column: str, found: set[str]) -> None:
        """InputError if votes are of another annotator or prompt than those of this run."""
        if not (others := found - {getattr(self, column)}):
            return
        problem = f"holds votes of {column} {min(others)!r}, and this run is of {getattr(self, column)!r}"
        raise InputError(f"{problem}: choose another --out", file=self.out)


def _rows(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The votes of one line, as rows of SCHEMA."""
    again = line["second"] or {}
    for condition, (value, words, status) in line["first"].items():
        yield {
            **{name: line[name] for name in ("visit", "weight", "prompt", "annotator")},
            **{"condition": condition, "value": _number(value), "second": _number(again.get(condition))},
            **{"words": words, "status": status},
        }


def _number(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _locked(stream: Any) -> bool:
    """Lock a file until it is closed or the process ends; False if another process has it."""
    import fcntl  # POSIX only

    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
