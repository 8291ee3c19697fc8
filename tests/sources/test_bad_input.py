"""Tables that are not what they should be: each error names file, row and column and never the content."""

from __future__ import annotations

import ast
import gzip
import os
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whatelse
from whatelse.errors import InputError
from whatelse.sources import VisitReader, read_visits
from whatelse.visits import Visit

GOOD = "9,50,F,fine\n"
HEADER = "id,age,sex,triage_note\n"


def reader(tmp_path: Path, content: str | bytes, name: str = "visits.csv", **options: Any) -> VisitReader:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_visits(file, **options)


# what is wrong with row 2, the column to name, what to say, and how it is counted
ROWS = [
    (b"1,240,F,x\n", "age", "age is above 130"),
    (b"1,-3,F,x\n", "age", "age is below 0"),
    (b"1,elderly,F,x\n", "age", "age is not a number of years"),
    (b"1,nan,F,x\n", "age", "age is not a number of years"),
    (b"1,inf,F,x\n", "age", "age is above 130"),
    (b"1,40,Q,x\n", "sex", "sex is none of F, M, female, male, U, unknown; map other codes with 'values'"),
    (b"1,40,1,x\n", "sex", "sex is none of F, M, female, male, U, unknown; map other codes with 'values'"),
    (b" ,40,F,x\n", "id", "id is missing"),
    (b"1,40,F\n", None, "row has fewer columns than the header"),
    (b"1,40,F,x,y\n", None, "row has more columns than the header"),
    (b"1,40,F,a\0b\n", "triage_note", "holds a NUL byte"),
    (
        b"1,40,F,caf\xc3\xa9 \xff\xfe\n",
        "triage_note",
        "holds bytes that are not valid in the file's encoding; give the encoding, or repair the file",
    ),
    (b'1,40,F,"x" y\n', None, "quotes do not match"),
]


@pytest.mark.parametrize(("row", "column", "problem"), ROWS)
def test_bad_rows(tmp_path: Path, row: bytes, column: str | None, problem: str) -> None:
    content = HEADER.encode() + b"8,50,F,fine\n" + row + GOOD.encode()
    visits = reader(tmp_path, content)
    assert next(visits).id == "8"
    with pytest.raises(InputError) as caught:
        next(visits)
    error = caught.value
    assert (error.file, error.row, error.column) == (tmp_path / "visits.csv", 2, column)
    assert problem in str(error) and "(line 3 of the file)" in str(error)
    for quoted in ("240", "-3", "elderly", "nan", "Q", "caf", "x,y"):
        assert quoted not in error.problem
    skipping = reader(tmp_path, content, on_error="skip")
    assert [visit.id for visit in skipping] == ["8", "9"]
    assert skipping.left_out == {problem.split(";")[0]: 1}


def test_duplicate_ids(tmp_path: Path) -> None:
    content = HEADER + GOOD + "1,2,F,x\n" + GOOD
    with pytest.raises(InputError, match=r"visits\.csv, row 3, column 'id': this id was seen before"):
        list(reader(tmp_path, content))
    skipping = reader(tmp_path, content, on_error="skip")
    assert [visit.id for visit in skipping] == ["9", "1"] and skipping.left_out == {"duplicate id": 1}


@pytest.mark.parametrize("sex", ["U", "unknown", "", "X", "Other"])
def test_unknown_sex_is_none(tmp_path: Path, sex: str) -> None:
    assert next(reader(tmp_path, f"id,sex\n1,{sex}\n")) == Visit("1")


@pytest.mark.parametrize("content", ["", "\n\n", "  \n", gzip.compress(b"", mtime=0)])
def test_empty(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(InputError, match=r"visits\.csv: is empty"):
        list(reader(tmp_path, content, on_error="skip"))


def test_header_only(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has a header but no rows"):
        list(reader(tmp_path, HEADER))
    pq.write_table(pa.table({"id": pa.array([], pa.string()), "age": pa.array([], pa.int64())}), tmp_path / "v.parquet")
    with pytest.raises(InputError, match="has no rows"):
        list(read_visits(tmp_path / "v.parquet"))


def test_missing_columns_name_near_misses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column 'id' among its 2 columns; did you mean 'vid'\?"):
        list(reader(tmp_path, "vid,age\n1,2\n"))
    with pytest.raises(InputError, match=r"no column 'triage_notes'.*did you mean 'triage_note'"):
        list(reader(tmp_path, HEADER + GOOD, columns={"triage_note": "triage_notes"}))
    with pytest.raises(InputError, match="no column for any field but id"):
        list(reader(tmp_path, "id,foo\n1,2\n"))
    with pytest.raises(InputError, match="no column 'id'"):
        list(reader(tmp_path, '{"visit": 1}\n', "v.jsonl"))


def test_the_same_column_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column 'age': this column is there more than once"):
        list(reader(tmp_path, "id,age,Age\n1,2,3\n"))
    assert list(reader(tmp_path, "id,age,x,x\n1,2,3,4\n")) == [Visit("1", age=2)]  # not a column we read


@pytest.mark.parametrize("cut", [1, 8, 200])
@pytest.mark.parametrize("name", ["visits.csv.gz", "visits.jsonl.gz"])
def test_truncated_gzip_is_known_before_the_first_visit(tmp_path: Path, cut: int, name: str) -> None:
    content = HEADER + "".join(f"{i},50,F,note {i * 7919 % 9973}\n" for i in range(2000))
    with pytest.raises(InputError, match="damaged or cut short"):
        next(reader(tmp_path, gzip.compress(content.encode())[:-cut], name, on_error="skip"))


def test_damaged_gzip(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(os.urandom(20_000)))
    packed[5000:5100] = bytes(100)
    with pytest.raises(InputError, match="damaged or cut short"):
        next(reader(tmp_path, bytes(packed), "visits.csv.gz"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (bytes(range(256)) * 40, "is a binary file"),
        (b"PK\x03\x04" + bytes(100), "zip or spreadsheet"),
        (b"%PDF-1.7\n%", "PDF"),
        (b"SQLite format 3\0" + bytes(80), "SQLite"),
        (bytes(5000), "is a binary file"),
        (gzip.compress(bytes(range(256)) * 40, mtime=0), "is a binary file"),
    ],
)
def test_binary_named_csv(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        next(reader(tmp_path, content, on_error="skip"))


def test_parquet_named_csv_and_the_reverse(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["1"], "age": [2]}), tmp_path / "visits.csv")
    with pytest.raises(InputError, match=r"name it \.parquet"):
        next(read_visits(tmp_path / "visits.csv"))
    with pytest.raises(InputError, match="cannot be read as a Parquet file"):
        next(reader(tmp_path, HEADER + GOOD, "visits.parquet"))


def test_truncated_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [str(i) for i in range(1000)], "age": [2] * 1000}), tmp_path / "v.parquet")
    content = (tmp_path / "v.parquet").read_bytes()
    for cut in (3, 400):
        (tmp_path / "v.parquet").write_bytes(content[:-cut])
        with pytest.raises(InputError, match="cannot be read as a Parquet file"):
            next(read_visits(tmp_path / "v.parquet"))


def test_mixed_line_endings_and_blank_lines(tmp_path: Path) -> None:
    content = 'id,age,sex,triage_note\r\n1,2,F,a\n\n2,3,M,"b\r\nc"\r3,4,F,d\r\n\r\n4,5,F,e'
    assert [visit.triage_note for visit in reader(tmp_path, content)] == ["a", "b\r\nc", "d", "e"]


def test_long_notes(tmp_path: Path) -> None:
    note = "pain " * 210_000  # 1 MB
    for content in (f'{HEADER}1,2,F,"{note}"\n', f"{HEADER}1,2,F,{note}\n"):
        assert next(reader(tmp_path, content)).triage_note == note


def test_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    content = HEADER + GOOD + '1,2,F,"oops\n' + "".join(f"a{i},2,F,x\n" for i in range(50))
    with pytest.raises(InputError, match=r"row 2: a quote opened in this row is never closed \(line 3 of the file\)"):
        list(reader(tmp_path, content, on_error="skip"))


def test_line_numbers_after_quoted_line_breaks(tmp_path: Path) -> None:
    content = "\n" + HEADER + '1,2,F,"two\nlines"\n2,999,F,x\n'
    with pytest.raises(InputError, match=r"row 2, column 'age': age is above 130 \(line 5 of the file\)"):
        list(reader(tmp_path, content))


def test_utf8_with_one_spoiled_row_is_not_taken_for_latin1(tmp_path: Path) -> None:
    content = HEADER.encode() + "1,2,F,fièvre\n".encode() + b"2,3,F,bad \xe8 byte\n"
    with pytest.raises(InputError, match="row 2, column 'triage_note': holds bytes that are not valid"):
        list(reader(tmp_path, content))
    with pytest.raises(InputError, match="row 1"):  # the user says UTF-8, so it is
        list(reader(tmp_path, HEADER.encode() + b"1,2,F,fi\xe8vre\n", encoding="utf-8"))


def test_unknown_encoding_and_bad_delimiter(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown encoding 'utf-9'"):
        next(reader(tmp_path, HEADER + GOOD, encoding="utf-9"))
    with pytest.raises(InputError, match="one character"):
        next(reader(tmp_path, HEADER + GOOD, delimiter="::"))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"id": "1", "age": 240}', "age is above 130"),
        (b'{"id": "1", "age": true}', "age is not a number"),
        (b'{"id": "1", "age": [1]}', "age is not a number"),
        (b'{"id": "1", "age": ' + b"9" * 400 + b"}", "age is not a number"),
        (b'{"id": "1", "sex": 1}', "sex is none of"),
        (b'{"id": "1", "time": "soon"}', "a column map can give its 'format'"),
        (b'{"id": "1", "triage_note": {}}', "is not text"),
        (b'{"id": "1", "billing": [{"system": "icd10"}]}', "without 'system' and 'code'"),
        (b'{"id": "1", "billing": [{"system": "icd10", "code": ["N390"]}]}', "without 'system' and 'code'"),
        (b'{"id": "1", "billing": [[]]}', "is not a list of codes"),
        (b'{"id": "1", "truth": [1]}', "is not a list of condition names"),
        (b'{"id": null}', "id is missing"),
        (b'{"id": "1"', "line is not JSON"),
        (b'["id", "1"]', "line is not a JSON object"),
        (b'{"id": "\\ud800"}', "half a surrogate pair"),
        (b'{"id": "1", "triage_note": "\xff\xfe \xc3\xa9"}', "not valid in the file's encoding"),
        (b'{"id": "1", "triage_note": "a\0b"}', "line holds a NUL byte"),
        (b"[" * 100_000, "line is not JSON"),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: bytes, problem: str) -> None:
    content = b'{"id": "8"}\n' + line + b'\n{"id": "9"}\n'
    with pytest.raises(InputError, match=r"visits\.jsonl, row 2.*" + problem):
        list(reader(tmp_path, content, "visits.jsonl"))
    skipping = reader(tmp_path, content, "visits.jsonl", on_error="skip")
    assert [visit.id for visit in skipping] == ["8", "9"] and skipping.left_out.total() == 1


def test_a_json_array_is_not_json_lines(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one object on each line"):
        list(reader(tmp_path, '[{"id": "1"},\n{"id": "2"}]\n', "visits.json"))


def test_a_key_of_the_map_that_no_record_has(tmp_path: Path) -> None:
    visits = reader(tmp_path, '{"id": "1"}\n', "visits.jsonl", columns={"triage_note": "note"})
    assert list(visits) == [Visit("1")] and "note" in visits.notes[0]


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        next(read_visits(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="is a folder"):
        next(read_visits(tmp_path))
    with pytest.raises(InputError, match="unknown source 'exel'; known: table, mimic-ed, nhamcs"):
        read_visits(tmp_path, source="exel")
    with pytest.raises(InputError, match="no files"):
        read_visits([])
    with pytest.raises(InputError, match="'raise' or 'skip'"):
        read_visits(tmp_path, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="encoding is for the source table; the source 'nhamcs' has its own"):
        read_visits(tmp_path, source="nhamcs", encoding="utf-8")
    with pytest.raises(InputError, match="labels is for the source nhamcs"):
        read_visits(tmp_path, labels=tmp_path)


pieces = st.sampled_from(
    [b"id,age,sex\n", b'{"id": "1"}', b"\n", b"\r", b'"', b",", b";", b"1", b"\xef\xbb\xbf", b"\xff\xfe", b"\0"]
)


@settings(max_examples=100, deadline=None)
@given(
    content=st.lists(pieces | st.binary(max_size=6), max_size=12).map(b"".join),
    name=st.sampled_from(["v.csv", "v.tsv", "v.jsonl", "v.parquet", "v"]),
    packed=st.booleans(),
)
def test_whatever_the_bytes_the_error_is_ours(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str, packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    try:
        list(reader(folder, gzip.compress(content) if packed else content, name, on_error="skip"))
    except InputError as error:
        assert name in str(error)


def test_a_frame_of_mixed_types_is_refused_and_not_quoted() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["1", "2"], "age": [3, "chest pain"]})
    with pytest.raises(InputError, match="several types") as refused:
        list(read_visits(frame))
    assert "chest pain" not in "".join(traceback.format_exception(refused.value))


def test_no_error_of_a_source_brings_along_one_that_may_quote_a_record() -> None:
    for file in (Path(whatelse.__file__).parent / "sources").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and node.cause is not None:
                assert isinstance(node.cause, ast.Constant), f"{file.name}:{node.lineno}: raise … from None"
