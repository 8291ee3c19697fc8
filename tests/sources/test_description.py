"""One description of a source: read by build, tag and serve alike, kept with the cohort, and numbers as findings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatelse.annotators import AnchorSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort.bands import band_names, bands_of, learn_cuts
from whatelse.errors import CohortError, InputError
from whatelse.sources import SOURCES, read_visits, write_visits
from whatelse.sources.description import describe
from whatelse.sources.numbers import parse_number
from whatelse.sources.report import BadValue
from whatelse.visits import Code, Visit

TABLE = """Fall Nr;Alter;Geschlecht;Klage;Notiz;ESI;Ankunft;Temp;Puls;RR;Freitext\r
1;44;w;Sturz;Kopfplatzwunde, kein Schwindel;3;RTW;36,8;88;120/80;x\r
2;71;m;Dyspnoe;Übelkeit und Fieber;2;zu Fuß;38,0;121;85/50;x\r
3;8;w;Fieber;;9;RTW;39,4 °C;n/a;;x\r
"""
MAP: dict[str, Any] = {
    "delimiter": ";",
    "encoding": "latin-1",
    "id": "Fall Nr",
    "age": "Alter",
    "sex": {"column": "Geschlecht", "values": {"w": "F", "m": "M"}},
    "chief_complaint": "Klage",
    "triage_note": "Notiz",
    "coded": [
        {"column": "ESI", "system": "triage", "values": {9: None}},
        {"column": "Ankunft", "system": "arrival", "values": {"RTW": "ambulance"}},
    ],
    "numbers": {
        "Temp": [">= 38 -> vital:fever", ">= 39 -> vital:high fever"],
        "Puls": {"name": "pulse", "rules": ["> 100 -> vital:fast"], "bands": True},
        "RR": {"name": "systolic", "part": 1, "bands": True},
    },
    "missing": ["n/a"],
}
PHRASES = {"fall": "sturz", "fever": "fieber"}
ANCHORS = AnchorSet.from_json({"conditions": [{"name": n, "anchors": {"notes": [p]}} for n, p in PHRASES.items()]})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "visits.csv").write_bytes(TABLE.encode("latin-1"))
    return tmp_path / "visits.csv"


def test_everything_that_a_map_can_say(table: Path) -> None:
    first, second, third = read_visits(table, columns=MAP)
    assert (first.id, first.age, first.sex, first.chief_complaint) == ("1", 44, "F", "Sturz")
    assert second.triage_note == "Übelkeit und Fieber"
    assert first.coded == (Code("triage", "3"), Code("arrival", "ambulance"))
    assert second.coded == (
        *(Code("triage", "2"), Code("arrival", "zu Fuß")),
        *(Code("vital", "fever"), Code("vital", "fast")),
    )
    assert third.coded == (Code("arrival", "ambulance"), Code("vital", "fever"), Code("vital", "high fever"))
    assert first.numbers == (("pulse", 88), ("systolic", 120)) and third.numbers == ()


def test_the_row_number_as_id(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("age,sex\n3,F\n4,M\n", encoding="utf-8")
    visits = read_visits([tmp_path / "a.csv", tmp_path / "b.csv"], columns={"id": {"row_number": True}})
    assert [visit.id for visit in visits] == ["a-1", "a-2", "b-1", "b-2"]
    with pytest.raises(InputError, match=r"no column 'id' .*row_number: true.*whatelse inspect"):
        next(read_visits(tmp_path / "a.csv"))


def test_columns_that_are_not_mapped_never_stop_a_build(tmp_path: Path) -> None:
    """Bytes that are not of the encoding, NUL bytes, two columns of one name: only where a field is read from."""
    rows = [f"{i},{i % 90},caf\N{LATIN SMALL LETTER E WITH ACUTE} {i}," for i in range(1200)]
    data = b"id,age,chief complaint,junk,junk\n" + b"".join(
        row.encode() + (b"\xff\xfe\xff,\x00" if i % 40 == 7 else b"\xfe,y") + b"\n" for i, row in enumerate(rows)
    )
    (tmp_path / "t.csv").write_bytes(data)
    reader = read_visits(tmp_path / "t.csv", on_error="skip")
    assert len(list(reader)) == 1200 and not reader.left_out
    assert next(read_visits(tmp_path / "t.csv")).chief_complaint == "café 0"


def test_cells_that_are_no_numbers_are_unknown_and_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,temp\n1,warm\n2,38.5\n3,\n4,cold\n", encoding="utf-8")
    reader = read_visits(tmp_path / "t.csv", columns={"numbers": {"temp": ">= 38 -> vital:fever"}})
    assert [visit.coded for visit in reader] == [(), (Code("vital", "fever"),), (), ()]
    assert reader.notes == ["2 cells of column 'temp' are not numbers and count as unknown"]


@pytest.mark.parametrize(
    ("cell", "part", "value"),
    [
        *[("38,5", 0, 38.5), (" 38.5 °C", 0, 38.5), ("98%", 0, 98), ("> 200", 0, 200), ("-3", 0, -3), (7, 0, 7)],
        *[("120/80", 1, 120), ("120/80 mmHg", 2, 80), ("", 0, None), (None, 0, None), (float("nan"), 0, None)],
        *[("120", 2, "bad"), ("120/80", 0, "bad"), ("1.2.3", 0, "bad"), (True, 0, 1.0), ("38 .", 0, 38.0)],
    ],
)
def test_numbers_as_people_write_them(cell: Any, part: int, value: Any) -> None:
    if value == "bad":
        with pytest.raises(BadValue, match="is not a number"):
            parse_number(cell, part)
    else:
        assert parse_number(cell, part) == value


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"numbers": ["temp"]}, "'numbers' in the column map must be a mapping"),
        ({"numbers": {"temp": "38 -> fever"}}, "a rule is written"),
        ({"numbers": {"temp": []}}, "needs a list of 'rules' or 'bands: true'"),
        ({"numbers": {"temp": {"bands": True, "part": 3}}}, "'part' is 1 or 2"),
        ({"numbers": {"temp": {"bands": True, "name": "a:b"}}}, "a word without a colon"),
        ({"numbers": {"temp": {"band": True}}}, "needs 'bands', a list of rules"),
        ({"id": {"row_number": True, "column": "x"}}, "not both"),
        ({"sex": [{"column": "a"}, {"column": "b"}]}, "several descriptions; it takes one"),
        ({"coded": {"column": "a", "values": ["x"]}}, "'values' of coded must map"),
        ({"source": 3}, "'source' in the description must be text"),
        ({"delimitr": ";"}, "not a field"),
        ({"source": "exel"}, "unknown source 'exel'"),
        ({"source": "mimic-ed", "age": "x"}, "columns is for the source table"),
    ],
)
def test_descriptions_that_cannot_be_used(given: dict[str, Any], problem: str, table: Path) -> None:
    with pytest.raises(InputError, match=problem):
        read_visits(table, columns=given)


def test_a_description_is_the_same_from_json(table: Path) -> None:
    how = describe(MAP)
    again = describe(None, saved=json.loads(json.dumps(how.given)))
    assert again.given == how.given and (again.delimiter, again.encoding, again.source) == (";", "latin-1", "table")
    assert list(read_visits(table, like=how.given)) == list(read_visits(table, columns=MAP))


def test_the_cohort_keeps_how_it_was_read(table: Path, tmp_path: Path) -> None:
    cohort = build_cohort(read_visits(table, columns=MAP), ANCHORS, max_share=1)
    opened = Cohort.open(cohort.save(tmp_path / "c"))
    assert opened.vocabulary.source == describe(MAP).given
    again = build_cohort(read_visits(table, like=opened.vocabulary.source), like=opened)
    assert (again.X != cohort.X).nnz == 0 and again.vocabulary.names == cohort.vocabulary.names
    (tmp_path / "other.csv").write_text("id,age\n1,3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"the map that came with the .* --map FILE, or --source table"):
        next(read_visits(tmp_path / "other.csv", like=opened.vocabulary.source))
    assert next(read_visits(tmp_path / "other.csv", "table", like=opened.vocabulary.source)).age == 3


def test_a_saved_description_names_no_path(tmp_path: Path) -> None:
    how = describe(None, source="nhamcs", labels=tmp_path)
    assert how.given == {"source": "nhamcs", "labels": True} and how.labels == tmp_path
    with pytest.raises(InputError, match="give their folder with --labels"):
        describe(None, saved=how.given)
    assert describe(None, saved=how.given, labels=tmp_path).labels == tmp_path
    (tmp_path / "m.yaml").write_text("source: nhamcs\nlabels: /etc\n", encoding="utf-8")
    with pytest.raises(InputError, match="names no path"):
        describe(tmp_path / "m.yaml")


def test_every_source_says_what_it_reads() -> None:
    assert {"table", "mimic-ed", "nhamcs"} <= set(SOURCES)
    for name, source in SOURCES.items():
        assert source.name == name and source.reads and callable(source.read)


def test_the_map_of_the_documentation_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "map.yaml").write_text(block, encoding="utf-8")
    header = "Visit No;age;gender;nurse_note;nurse_addendum;drugs;dx1;dx2;dx3;acuity;came by;temp;lactate;bp;arrived"
    cells = "7;44;2;fell;no loc;004380;W18;;N39.0;2;AMB;38,5;2.1;85/60;01.03.2018 14:05"
    (tmp_path / "v.csv").write_text(f"{header}\n{cells}\n".replace(";004380;", ';"004380;27546";'), encoding="latin-1")
    (visit,) = read_visits(tmp_path / "v.csv", columns=tmp_path / "map.yaml")
    assert visit.sex == "M" and visit.triage_note == "fell\nno loc" and visit.dispensed is not None
    assert visit.dispensed == (Code("gsn", "004380"), Code("gsn", "027546")) and visit.time is not None
    assert {f"{c.system}:{c.code}" for c in visit.coded or ()} == {
        *("triage:2", "arrival:ambulance", "vital:fever", "vital:shock")
    }
    assert visit.numbers == (("lactate", 2.1), ("systolic", 85.0))


# ---- bands


def test_bands_part_values_evenly_and_keep_ties_together(rng: np.random.Generator) -> None:
    values = rng.normal(80, 15, 1000).round()
    cuts = learn_cuts(values, 5)
    where = bands_of(cuts, values)
    assert len(cuts) == 4 and np.bincount(where).min() > 130
    for value, k in zip(values[:200], where, strict=False):  # the slow, obvious version
        low = -np.inf if k == 0 else cuts[k - 1]
        high = np.inf if k == len(cuts) else cuts[k]
        assert low <= value < high and bands_of(cuts, value) == k
    assert learn_cuts([3, 3, 3], 5) == () and learn_cuts([], 5) == ()
    assert learn_cuts([0] * 90 + [1] * 10, 4) == ()  # all quantiles are the lowest value: nothing to tell apart
    assert learn_cuts([0] * 60 + [1] * 40, 4) == (1.0,)
    assert band_names("pulse", (60.0, 72.5)) == ["pulse:<60", "pulse:60-72.5", "pulse:>=72.5"]
    assert band_names("pulse", ()) == []


def test_bands_are_learned_kept_and_found_again(tmp_path: Path, rng: np.random.Generator) -> None:
    pulses = rng.normal(85, 15, 300).round()
    visits = [
        Visit(str(i), chief_complaint="sturz", numbers=None if i % 10 == 0 else {"pulse": float(p)})
        for i, p in enumerate(pulses)
    ]
    cohort = build_cohort(visits, ANCHORS, bands=4, lexicon="none")
    vocabulary = Cohort.open(cohort.save(tmp_path / "c")).vocabulary
    cuts = vocabulary.bands["pulse"]
    assert cuts == cohort.vocabulary.bands["pulse"] and len(cuts) == 3
    for i, visit in enumerate(visits):
        np.testing.assert_array_equal(cohort.X[i].indices, vocabulary.present(visit))
    low = f"pulse:<{cuts[0]:g}"
    present = {vocabulary.names[j] for j in vocabulary.present(Visit("x", numbers={"pulse": cuts[0] - 1}))}
    assert present == {low}
    unmeasured = {vocabulary.names[j] for j in vocabulary.unobserved(Visit("x", numbers={"temp": 3.0}))}
    assert low in unmeasured
    measured = vocabulary.unobserved(Visit("x", numbers={"pulse": 80.0}))
    assert not {vocabulary.names[j] for j in measured} & set(band_names("pulse", cuts))
    for wrong in ({"pulse": [3, 2]}, {"pulse": "x"}, {"pulse": [float("nan")]}, 3):
        with pytest.raises(CohortError, match="damaged"):
            type(vocabulary).from_json(vocabulary.to_json() | {"bands": wrong})
    with pytest.raises(CohortError, match="bands is 1"):
        build_cohort(visits, ANCHORS, bands=1)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_numbers_are_written_and_read_back(tmp_path: Path, suffix: str) -> None:
    visits = [Visit("1", numbers={"pulse": 88.5, "age": 3}), Visit("2", numbers={}), Visit("3")]
    write_visits(visits, tmp_path / f"v{suffix}")
    assert list(read_visits(tmp_path / f"v{suffix}")) == visits


# ---- truth


def test_a_misspelt_condition_in_truth_is_an_error_with_a_suggestion() -> None:
    for wrong, right in (("falls", "fall"), ("Fever", "fever"), ("feevr", "fever")):
        with pytest.raises(CohortError, match=rf"visit number 2: .* did you mean '{right}'\?") as refused:
            build_cohort([Visit("a", truth=("fall",)), Visit("b", truth=("fever", wrong))], ANCHORS)
        assert wrong not in str(refused.value).replace(right, "")
    cohort = build_cohort([Visit("a", truth=("fall", "sepsis")), Visit("b", truth=())], ANCHORS)
    assert cohort.Y is not None and cohort.Y.tolist() == [[True, False], [False, False]]
    with pytest.raises(CohortError, match=r"2 names and none is a condition .* conditions are fall, fever"):
        build_cohort([Visit("a", truth=("sepsis", "uti"))], ANCHORS)
