"""Files that are small until they are opened, endless, or too deep: refused within limits that the error names."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whatelse.annotators import AnchorSet
from whatelse.annotators.discovery.edit import read_conditions, read_refused
from whatelse.errors import InputError, WhatelseError
from whatelse.io import limits
from whatelse.io.limits import read_yaml
from whatelse.server.settings import load_settings
from whatelse.sources import read_visits
from whatelse.sources.codings import load_codings
from whatelse.text import load_rules
from whatelse.text.lexicon import load_lexicon


@contextmanager
def refused(says: str, seconds: float = 30.0) -> Iterator[None]:
    """Within so many seconds of this process: others on the machine do not count."""
    start = time.process_time()
    with pytest.raises(WhatelseError, match=says):
        yield
    assert time.process_time() - start < seconds


def packed(path: Path, piece: bytes, times: int) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"id,triage_note\n")
        for _ in range(times):
            file.write(piece)
    return path


def test_one_line_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "v.csv.gz", b"a" * (1 << 20), 100)
    with refused("WHATELSE_MAX_LINE"):
        list(read_visits(path))
    monkeypatch.setenv("WHATELSE_MAX_LINE", str(1 << 30))
    with refused("row has fewer|field|never closed"):
        list(read_visits(path))


def test_a_line_of_ndjson_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "fhir"
    folder.mkdir()
    (folder / "Encounter.ndjson").write_bytes(b'{"resourceType": "Encounter", "id": "' + b"a" * 5_000 + b'"}\n')
    monkeypatch.setenv("WHATELSE_MAX_LINE", "1000")
    with refused("WHATELSE_MAX_LINE"):
        list(read_visits(folder, source="fhir"))


def test_rows_without_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALL", 32 << 20)
    path = packed(tmp_path / "v.csv.gz", b"\n" * (1 << 20), 60)
    assert path.stat().st_size < 500_000
    with refused("unpacks to more than 200 times .* WHATELSE_MAX_EXPANSION", 5):
        list(read_visits(path))


def test_a_dictionary_of_one_long_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALL", 64 << 20)
    rows, long = 3_000, "a" * 1_000_000
    note = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([long]))
    table = pa.table(
        {"id": [str(k) for k in range(rows)], "triage_note": note.cast(pa.dictionary(pa.int32(), pa.string()))}
    )
    path = tmp_path / "v.parquet"
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 200_000
    with refused("WHATELSE_MAX_EXPANSION"):
        list(read_visits(path))
    few = tmp_path / "few.parquet"
    pq.write_table(table.slice(0, 20), few, compression="zstd")
    visits = list(read_visits(few))
    assert len(visits) == 20 and visits[0].triage_note == long
    assert visits[1].triage_note is visits[0].triage_note  # kept once


@pytest.mark.parametrize("name", ["v.csv", "v.jsonl", "v.parquet", "v"])
def test_a_link_to_a_device(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    with refused("is a device", 5):
        list(read_visits(tmp_path / name))


@pytest.mark.parametrize("load", [AnchorSet.load, load_rules, lambda p: load_settings(p, model="x"), load_codings,
                                  lambda p: list(read_visits("x.csv", columns=p))])  # fmt: skip
def test_documents_that_are_too_deep_too_long_or_endless(tmp_path: Path, load: object) -> None:
    deep, long, endless = (tmp_path / f"{name}.yaml" for name in ("deep", "long", "endless"))
    deep.write_text("[" * 200_000)
    long.write_text("# " + "a" * (5 << 20))
    endless.symlink_to("/dev/zero")
    for path, says in ((deep, "WHATELSE_MAX_DEPTH"), (long, "WHATELSE_MAX_DOCUMENT"), (endless, "is a device")):
        with refused(says):
            load(path)  # type: ignore[operator]


LINES = range(1, 12)
ALIASES = "a0: &a0 [x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in LINES)
MERGED = "a0: &a0 {x: y}\n" + "".join(f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}\n" for k in LINES)


@pytest.mark.parametrize(("text", "says"), [
    (ALIASES, "WHATELSE_MAX_VALUES"),
    (MERGED, "WHATELSE_MAX_VALUES"),
    ("a: &a [*a]", "WHATELSE_MAX_VALUES"),
    ("a: [" + "1, " * 600_000 + "]", "WHATELSE_MAX_VALUES"),
    ("a: 1" + ":59" * 300_000, "number of more than 1,000"),
    ("a: " + "1" * 5_000, "number of more than 1,000"),
])  # fmt: skip
def test_documents_that_grow(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with refused(says, 30):
        read_yaml(path)


def test_what_a_curator_edits_has_the_same_limits(tmp_path: Path) -> None:
    for name, load in (
        ("refused.yaml", read_refused),
        ("conditions.yaml", read_conditions),
        ("words.yaml", load_lexicon),
    ):
        path = tmp_path / name
        path.write_text(ALIASES)
        with refused("WHATELSE_MAX_VALUES"):
            load(path)


def test_values_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for text in ("conditions: 2020-99-99", "a: !!python/object/apply:os.system [x]", "? [a]\n: b", "\0"):
        path.write_text(text)
        with pytest.raises(WhatelseError):
            AnchorSet.load(path)


def test_what_is_within_limits_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: {b: [1, {c: d}]}\n")
    assert read_yaml(path) == {"a": {"b": [1, {"c": "d"}]}}
    path.write_text("a: &a [1, 2]\nb: *a\nc: {<<: &m {x: 1}, y: " + "z" * 2_000 + "}\nd: {<<: *m}\n")
    assert read_yaml(path) == {"a": [1, 2], "b": [1, 2], "c": {"x": 1, "y": "z" * 2_000}, "d": {"x": 1}}


def test_an_id_that_no_database_keeps(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text('{"id": "a\\u0000b"}\n{"id": "c"}\n' + '{"id": "' + "x" * 2000 + '"}\n')
    reader = read_visits(path, on_error="skip")
    assert [visit.id for visit in reader] == ["c"] and sum(reader.left_out.values()) == 2
    with pytest.raises(InputError, match="NUL"):
        list(read_visits(path))
