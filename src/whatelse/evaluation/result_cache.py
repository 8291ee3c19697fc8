"""Cache of finished rows of the results table, a file each: a stopped `reproduce` continues with the next row.

A file is used again only if everything that its row depends on is the same: both cohorts, the plan, and this program.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import whatelse
from whatelse.cohort import Cohort
from whatelse.io.files import write_whole
from whatelse.noisyor.heldout_metrics import METRICS, Interval, Recovery


@dataclass(frozen=True, eq=False)
class Measured:
    """A row: how often it found hidden tags, what it learned, and in how many seconds.

    terms and trust (how far answers come true) are None where there is no joint model; courses are those of NVIL.
    """

    recovery: Recovery
    seconds: float
    terms: list[dict[str, Any]] | None
    trust: dict[str, Any] | None
    courses: list[dict[str, Any]]


@dataclass(frozen=True)
class ResultCache:
    """Rows in a folder (None: nothing is kept). about: digest of what all rows depend on."""

    folder: Path | None
    about: str

    def get(self, name: str, depends: Any) -> Measured | None:
        """The row `name` as it was kept, if it was, under the same `depends` (JSON values)."""
        if self.folder is None:
            return None
        try:
            kept = json.loads(self._file(name).read_text("utf-8"))
        except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError):
            return None
        return _measured(kept["row"]) if kept["fingerprint"] == self._fingerprint(depends) else None

    def put(self, name: str, depends: Any, row: Measured) -> None:
        """Keep a row. The file appears whole or not at all."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            kept = {"fingerprint": self._fingerprint(depends), "model": name, "row": _json(row)}
            write_whole(self._file(name), json.dumps(kept, allow_nan=False).encode())

    def _file(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name.replace(' ', '-')}.json"

    def _fingerprint(self, depends: Any) -> str:
        return hashlib.sha256(f"{self.about}{json.dumps(depends, sort_keys=True)}".encode()).hexdigest()


def digest(*cohorts: Cohort) -> str:
    """SHA-256 of the visits and names of cohorts and of the program's own source. O(nnz(X))."""
    hashed = hashlib.sha256()
    for cohort in cohorts:
        hashed.update(json.dumps([list(cohort.conditions), list(cohort.vocabulary.names)]).encode())
        for array in (cohort.X.indptr, cohort.X.indices, cohort.anchor_columns, cohort.Y):
            hashed.update(np.ascontiguousarray(np.asarray(array)).tobytes())
    for file in sorted(Path(whatelse.__file__).parent.rglob("*.py")):
        hashed.update(file.read_bytes())
    return hashed.hexdigest()


def _json(row: Measured) -> dict[str, Any]:
    by_visit = {metric: values.tolist() for metric, values in row.recovery.by_visit.items()}
    return vars(row) | {"recovery": row.recovery.to_json() | {"by_visit": by_visit}}


def _measured(row: dict[str, Any]) -> Measured:
    found = row["recovery"]
    hidden = found["by_condition"]
    recovery = Recovery(
        **{metric: Interval(found[metric], *found[f"{metric}_interval"]) for metric in METRICS},
        visits=found["visits"],
        draws=found["draws"],
        by_visit={metric: np.array(found["by_visit"][metric]) for metric in METRICS},
        by_condition={metric: np.array([entry[metric] for entry in hidden], float) for metric in METRICS},
        times_hidden=np.array([entry["times_hidden"] for entry in hidden]),
    )
    return Measured(**row | {"recovery": recovery})
