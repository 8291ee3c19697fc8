"""Memory and time of building a cohort from OMOP tables: `python -m benchmarks.omop [--visits 100000]`.

Repeats the visits of a small CDM (`synthea-omop` in WHATELSE_DATA, or ../shared/data), every copy with persons and
visits of its own, and gives each emergency visit two simulated notes. Then `whatelse build` runs on the tables in a
process of its own, whose peak resident memory is read, all libraries included. The bound is 2 GB.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

import duckdb
import pyarrow as pa

from whatelse.simulate import simulate
from whatelse.sources.omop.tables import CHOSEN

LIMIT_GB = 2.0
COPIED = ("visit_occurrence", "person", "drug_exposure", "condition_occurrence", "observation_period")
FAR = 1_000_000_000  # between the ids of two copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=100_000)
    options = parser.parse_args()
    data = Path(os.environ.get("WHATELSE_DATA", Path(__file__).parents[2] / "shared" / "data")) / "synthea-omop"
    with tempfile.TemporaryDirectory() as name:
        cdm = Path(name) / "cdm"
        visits, rows = multiply(data, cdm, options.visits)
        command = [
            Path(sys.executable).with_name("whatelse"),
            "build",
            "--source",
            "omop",
            str(cdm),
            "--out",
            f"{name}/cohort",
        ]
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stderr)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1024 if sys.platform != "darwin" else 1) / 1e9
    print(f"{visits:,} emergency visits, {rows:,} rows: built in {seconds:.0f} s, peak {peak:.2f} GB of {LIMIT_GB} GB")
    sys.exit(0 if peak <= LIMIT_GB else 1)


def multiply(data: Path, out: Path, wanted: int) -> tuple[int, int]:
    """Tables with `wanted` emergency visits or a few more, as Parquet; how many visits and rows they have."""
    out.mkdir()
    connection = duckdb.connect(config={"memory_limit": "1GB"})
    files = {f.name.split(".")[0].lower(): f for f in data.iterdir()}

    def table(name: str) -> str:
        return f"read_csv('{files[name]}', all_varchar = true)"

    emergency = f"visit_concept_id::BIGINT IN ({CHOSEN['visit_concept_id']})"
    one = connection.execute(f"SELECT count(*) FROM {table('visit_occurrence')} WHERE {emergency}").fetchone()
    assert one is not None
    copies, rows = -(-wanted // one[0]), 0
    for name in COPIED:
        columns = {c[0] for c in connection.execute(f"SELECT * FROM {table(name)} LIMIT 0").description or ()}
        moved = [f"{c}::BIGINT + k * {FAR} AS {c}" for c in ("person_id", "visit_occurrence_id") if c in columns]
        query = f"SELECT * REPLACE ({', '.join(moved)}) FROM {table(name)}, (SELECT range AS k FROM range({copies}))"
        connection.execute(f"COPY (SELECT * EXCLUDE (k) FROM ({query})) TO '{out / name}.parquet' (FORMAT parquet)")
        rows += connection.execute(f"SELECT count(*) FROM '{out / name}.parquet'").fetchall()[0][0]
    for name in ("concept", "concept_ancestor"):
        connection.execute(f"COPY (SELECT * FROM {table(name)}) TO '{out / name}.parquet' (FORMAT parquet)")
    return copies * one[0], rows + _notes(connection, out, emergency)


def _notes(connection: duckdb.DuckDBPyConnection, out: Path, emergency: str) -> int:
    """Two notes for each emergency visit, out of a thousand simulated ones."""
    columns, visits = "visit_occurrence_id, person_id, visit_start_date", f"'{out}/visit_occurrence.parquet'"
    found = connection.execute(f"SELECT {columns} FROM {visits} WHERE {emergency}").fetchall()
    said = list(islice(cycle([(v.triage_note, v.md_comments) for v in simulate(1_000, 3)]), len(found)))
    for k, title in enumerate(("ED Triage note", "ED Provider note")):
        connection.register(f"notes{k}", pa.table({
            "note_id": [2 * i + k for i in range(len(found))], "visit_occurrence_id": [r[0] for r in found],
            "person_id": [r[1] for r in found], "note_date": [r[2] for r in found], "note_title": [title] * len(found),
            "note_text": [texts[k] for texts in said], "note_datetime": pa.nulls(len(found), pa.string()),
            "note_class_concept_id": [0] * len(found),
        }))  # fmt: skip
    connection.execute(
        f"COPY (SELECT * FROM notes0 UNION ALL SELECT * FROM notes1) TO '{out}/note.parquet' (FORMAT parquet)"
    )
    return 2 * len(found)


if __name__ == "__main__":
    main()
