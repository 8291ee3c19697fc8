"""Tables and write_visits: formats, column maps, and the way back."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whatelse.annotators.record_text import record_cells
from whatelse.cohort.build import build_cohort
from whatelse.errors import InputError
from whatelse.sources import read_visits, write_visits
from whatelse.sources.convert import make_code
from whatelse.visits import Code, Visit

HEADER = "id,age,sex,chief_complaint,triage_note,md_comments,medication_history,dispensed,billing,time,truth"
ROW = 'v1,45,F,"chest pain, sob","said ""no fever""\nsecond line",,aspirin|Metoprolol,,R079|4139,2018-03-01 14:05,falls'
VISIT = Visit(
    id="v1",
    age=45.0,
    sex="F",
    chief_complaint="chest pain, sob",
    triage_note='said "no fever"\nsecond line',
    md_comments="",
    medication_history=(Code("name", "aspirin", "aspirin"), Code("name", "metoprolol", "Metoprolol")),
    dispensed=(),
    billing=(Code("icd10", "R079"), Code("icd9", "4139")),
    time=datetime(2018, 3, 1, 14, 5),
    truth=("falls",),
)


def zstd(data: bytes) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, "zstd") as out:
        out.write(data)
    packed: bytes = stream.getvalue().to_pybytes()
    return packed


def read(tmp_path: Path, text: str | bytes, name: str = "visits.csv", **options: Any) -> list[Visit]:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_visits(file, **options))


def test_default_column_names_need_no_map(tmp_path: Path) -> None:
    assert read(tmp_path, f"{HEADER}\n{ROW}\n") == [VISIT]


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zstd)],
)
def test_compressed_by_content(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(f"{HEADER}\n{ROW}\n".encode())
    assert read(tmp_path, packed, "visits.csv" + suffix) == [VISIT]
    assert read(tmp_path, packed, "other.csv") == [VISIT]  # whatever its name


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters(tmp_path: Path, delimiter: str) -> None:
    lines = ["id,age,sex,triage_note", "1,50,M,x", "2,60,F,y"]
    (first, second) = read(tmp_path, "\n".join(lines).replace(",", delimiter), "visits.txt")
    assert first == Visit("1", age=50, sex="M", triage_note="x") and second.id == "2"


def test_header_with_commas_in_names(tmp_path: Path) -> None:
    assert read(tmp_path, '"id";"age";"note, long, by, nurse"\n1;50;a\n') == [Visit("1", age=50)]


def test_delimiter_given(tmp_path: Path) -> None:
    assert read(tmp_path, "id~age\n1~50\n", delimiter="~") == [Visit("1", age=50)]


def test_semicolons_and_latin1(tmp_path: Path) -> None:
    text = "id;age;sex;triage_note\n1;45,5;m;Übelkeit, Völlegefühl, 38,5°\n"
    visit = Visit("1", age=45.5, sex="M", triage_note="Übelkeit, Völlegefühl, 38,5°")
    assert read(tmp_path, text.encode("latin-1")) == [visit]
    assert read(tmp_path, text.encode("latin-1"), encoding="latin-1", delimiter=";") == [visit]
    assert read(tmp_path, text.encode("utf-8")) == [visit]
    assert read(tmp_path, text.encode("utf-8-sig")) == [visit]
    assert read(tmp_path, text.encode("utf-16")) == [visit]
    assert read(tmp_path, gzip.compress(text.encode("cp1252")), "visits.csv.gz") == [visit]


def test_latin1_far_into_the_file(tmp_path: Path) -> None:
    lines = [f"{i},{'x' * 500}" for i in range(6000)] + ["last,fièvre"]
    visits = read(tmp_path, "\n".join(["id,triage_note", *lines]).encode("latin-1"))
    assert visits[-1].triage_note == "fièvre"


def test_column_map(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(
        """
        id: Visit No
        sex: {column: gender, values: {1: F, 2: M, 9: null}}
        triage_note: [nurse, addendum]
        dispensed: {column: drugs, separator: ";", system: gsn}
        billing: {column: [dx1, dx2], system: icd10}
        coded: {column: acuity, system: triage}
        time: {column: arrived, format: "%d.%m.%Y %H:%M"}
        missing: [NA]
        """
    )
    header = "visit no,gender,nurse,addendum,drugs,dx1,dx2,acuity,arrived,age"
    lines = ["7,1,hurt,worse,4380;004490,n39.0,,2,31.12.2018 23:59,NA", "8,9,NA,NA,NA,NA,R55,NA,NA,3"]
    first, second = read(tmp_path, "\n".join([header, *lines]), columns=tmp_path / "map.yaml")
    assert first == Visit(
        "7",
        sex="F",
        triage_note="hurt\nworse",
        dispensed=(Code("gsn", "004380"), Code("gsn", "004490")),
        billing=(Code("icd10", "N39.0"),),
        coded=(Code("triage", "2"),),
        time=datetime(2018, 12, 31, 23, 59),
    )
    assert second == Visit("8", age=3, billing=(Code("icd10", "R55"),))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"sexx": "gender"}, "'sexx', which is not a field; did you mean 'sex'"),
        ({"sex": {"column": "gender", "separator": ","}}, "option 'separator'; it takes values"),
        ({"sex": {"column": "g", "values": {1: "W"}}}, "to F, M or null"),
        ({"age": ["a", "b"]}, "2 columns for 'age'"),
        ({"triage_note": []}, "a column name"),
        ({"time": {"column": "t", "format": 3}}, "must be text"),
        ({"missing": "NA"}, "must be a list"),
    ],
)
def test_wrong_maps(tmp_path: Path, columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(tmp_path, "id,age\n1,2\n", columns=columns)


def test_map_files_that_are_not_maps(tmp_path: Path) -> None:
    for text in ("- a\n- b\n", "a: [\n", "!!python/object/apply:os.getcwd []"):
        (tmp_path / "map.yaml").write_text(text)
        with pytest.raises(InputError, match=r"map\.yaml"):
            read(tmp_path, "id,age\n1,2\n", columns=tmp_path / "map.yaml")
    with pytest.raises(InputError, match="no such column map"):
        read(tmp_path, "id,age\n1,2\n", columns=tmp_path / "none.yaml")


def test_make_code() -> None:
    assert make_code("icd", "n390") == Code("icd10", "N390") and make_code("icd", "5990") == Code("icd9", "5990")
    assert make_code("icd9", "e885.9") == Code("icd9", "E885.9")
    assert make_code("gsn", "4380") == Code("gsn", "004380")
    assert make_code("name", "Aspirin 81mg") == Code("name", "aspirin 81mg", "Aspirin 81mg")


def test_jsonl(tmp_path: Path) -> None:
    lines = [
        {"id": 1, "age": 30, "dispensed": [{"system": "gsn", "code": "004380", "name": "aspirin"}], "other": {}},
        {"ID": "2", "Triage Note": "a\u2028b", "dispensed": ["Morphine"], "billing": "N390|R55", "sex": None},
        {"id": "3", "dispensed": [], "truth": ["falls", "uti"]},
    ]
    first, second, third = read(tmp_path, "\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "v.jsonl")
    assert first == Visit("1", age=30, dispensed=(Code("gsn", "004380", "aspirin"),))
    assert second.triage_note == "a\u2028b" and second.dispensed == (Code("name", "morphine", "Morphine"),)
    assert second.billing == (Code("icd10", "N390"), Code("icd10", "R55"))
    assert third.dispensed == () and third.billing is None and third.truth == ("falls", "uti")


def test_parquet_of_other_makers(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ID": pa.array([1.0, 2.0]),
            "Age": pa.array([44, None], pa.int8()),
            "sex": pa.array(["F", "M"]).dictionary_encode(),
            "time": pa.array([1_500_000_000_123_456_789, None], pa.timestamp("ns")),
            "billing": pa.array([["N390"], None]),
            "unused": pa.array([b"\xff", b""]),
        }
    )
    pq.write_table(table, tmp_path / "v.parquet")
    first, second = read_visits(tmp_path / "v.parquet")
    assert first.id == "1" and first.age == 44 and first.billing == (Code("icd10", "N390"),)
    assert first.time == datetime(2017, 7, 14, 2, 40, 0, 123456)
    assert second == Visit("2", sex="M")


def test_format_by_content_where_the_name_does_not_say(tmp_path: Path) -> None:
    assert read(tmp_path, '{"id": "a", "age": 3}\n', "visits") == [Visit("a", age=3)]
    assert read(tmp_path, "id,age\na,3\n", "visits.txt") == [Visit("a", age=3)]


def test_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,age\n1,2\n")
    (tmp_path / "b.jsonl").write_text('{"id": "2"}\n')
    assert [visit.id for visit in read_visits([tmp_path / "a.csv", tmp_path / "b.jsonl"])] == ["1", "2"]


# --- write_visits ---------------------------------------------------------------------------------------------------

text = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.text("abc xyz-é", min_size=1, max_size=8).map(str.strip).filter(bool)
codes = st.none() | st.lists(st.builds(Code, names, names, st.none() | text), max_size=3, unique=True).map(tuple)
visits = st.builds(
    Visit,
    id=names,
    age=st.none() | st.floats(0, 130),
    sex=st.sampled_from(["F", "M", None]),
    chief_complaint=st.none() | text,
    triage_note=st.none() | text,
    md_comments=st.none() | text,
    medication_history=codes,
    dispensed=codes,
    billing=codes,
    coded=codes,
    time=st.none() | st.datetimes(),
    truth=st.none() | st.lists(names, max_size=3).map(tuple),
)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
@settings(max_examples=40, deadline=None)
@given(some=st.lists(visits, min_size=1, max_size=5, unique_by=lambda visit: visit.id))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, suffix: str, some: list[Visit]) -> None:
    file = tmp_path_factory.mktemp("write") / f"visits{suffix}"
    assert write_visits(some, file) == len(some)
    assert list(read_visits(file)) == some
    before = file.read_bytes()
    write_visits(iter(some), file)
    assert file.read_bytes() == before  # the same visits, the same bytes


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield Visit("1")
        raise RuntimeError("stop")

    file = tmp_path / "visits.jsonl"
    write_visits([Visit("old")], file)
    with pytest.raises(RuntimeError):
        write_visits(failing(), file)
    assert [path.name for path in tmp_path.iterdir()] == ["visits.jsonl"]
    assert next(read_visits(file)).id == "old"


def test_write_refuses_other_formats_and_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.jsonl, \.jsonl\.gz or \.parquet"):
        write_visits([], tmp_path / "visits.csv")
    with pytest.raises(InputError, match="folder does not exist"):
        write_visits([], tmp_path / "none" / "visits.jsonl")


def test_columns_shown_to_labellers_and_vital_signs_of_rules_are_never_findings(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "id,triage_note,disposition,temp\nA,cough,admitted,38.5\nB,fever,,36.5\n", encoding="utf-8"
    )
    columns = {"shown": ["disposition"], "numbers": {"temp": [">= 38 -> vital:fever"]}}
    first, second = read_visits(tmp_path / "t.csv", columns=columns)
    assert first.shown == (("disposition", "admitted"), ("temp", "38.5")) and second.shown == (("temp", "36.5"),)
    assert record_cells(first)["also shown"] == "disposition admitted; temp 38.5"
    found = build_cohort([first, second], max_share=1).vocabulary.names
    assert "vital:fever" in found and not any("admitted" in name or "disposition" in name for name in found)
    (tmp_path / "new.jsonl").write_text('{"id": "C", "triage_note": "cough", "temp": 37}\n', encoding="utf-8")
    (new,) = read_visits(tmp_path / "new.jsonl", columns=columns)  # a file of new visits may lack shown columns
    assert new.shown == (("temp", "37"),)
    (tmp_path / "new.csv").write_text("id,triage_note,temp\nC,cough,37\n", encoding="utf-8")
    assert [visit.shown for visit in read_visits(tmp_path / "new.csv", columns=columns)] == [(("temp", "37"),)]
    with pytest.raises(InputError, match="'shown' in the column map must be a list"):
        read_visits(tmp_path / "t.csv", columns={"shown": "disposition"})
