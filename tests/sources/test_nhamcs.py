"""NHAMCS: the distributed zips, and what happens when they are not what they should be."""

from __future__ import annotations

import zipfile
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from whatelse.errors import InputError
from whatelse.sources import VisitReader, nhamcs, read_visits
from whatelse.sources.report import BadValue, Report
from whatelse.visits import Code


@pytest.fixture(scope="module")
def folder(data_folder: Path) -> Path:
    if not (data_folder / "nhamcs").is_dir():
        pytest.skip("the NHAMCS files are not here")
    return data_folder / "nhamcs"


@pytest.mark.data
def test_all_three_years(folder: Path) -> None:
    reader = read_visits(sorted(folder.glob("ed*_sas.zip")), source="nhamcs", labels=folder)
    years: dict[int, int] = {}
    coded: dict[Code, int] = {}
    for visit in reader:
        assert visit.time is not None and visit.age is not None and visit.sex is not None
        assert visit.triage_note is None and visit.medication_history is None  # the survey has neither
        assert visit.dispensed is not None and visit.billing is not None and visit.coded is not None
        years[visit.time.year] = years.get(visit.time.year, 0) + 1
        for code in visit.coded:
            coded[code] = coded.get(code, 0) + 1
        assert not any(code.code.startswith("-") or code.code.endswith("-") for code in visit.billing)
    assert years == {2016: 19_467, 2017: 16_709, 2018: 20_291}
    assert sum(years.values()) == 56_467
    assert not reader.left_out and not reader.notes
    # counts taken from the data sets with the survey's own codes: INJURY = 1, TEMPF in tenths, ARREMS = 1, ADMITHOS = 1
    assert coded[nhamcs.INJURY] == 6116 + 5257 + 5756
    assert coded[nhamcs.AMBULANCE] == 3040 + 2548 + 3284
    assert coded[nhamcs.ADMITTED] == 1616 + 1661 + 2410
    assert coded[Code("triage", "3", "level 3")] == 6526 + 5759 + 6954
    assert 0.03 < coded[Code("vital", "temperature-high", "temperature >= 100.4 F")] / 56_467 < 0.05


@pytest.mark.data
def test_without_labels_codes_keep_their_numbers(folder: Path) -> None:
    visit = next(read_visits(folder / "ed2018_sas.zip", source="nhamcs"))
    assert visit.id == "nhamcs-2018-000001"
    assert visit.coded and all(code.name is None for code in visit.coded if code.system == "rfv")


def make(year: int = 2018, **values: object) -> nhamcs.Visit:
    record: dict[str, object] = {"AGE": 40.0, "SEX": 1.0, "YEAR": float(year), "VMONTH": 3.0}
    for name, value in values.items():
        record |= {f"{name}{k}": v for k, v in enumerate(value, 1)} if isinstance(value, tuple) else {name: value}
    labels = {"rfv": {"10100": "Fever"}, "icd10": {"R51-": "Headache"}}
    return nhamcs.VisitMaker(Path("ed.zip"), labels)(record, 7)


def test_one_record() -> None:
    visit = make(RFV=(10100.0, -9.0), DIAG=("R51-", "-9", "N390"), CAUSE=("W19X",), DRUGID=("d00015", "", "d00015"))
    assert visit.id == "nhamcs-2018-000007" and visit.sex == "F" and visit.time == datetime(2018, 3, 1)
    assert visit.coded == (Code("rfv", "10100", "Fever"),)
    assert visit.billing == (Code("icd10", "R51", "Headache"), Code("icd10", "N390"), Code("cause", "W19X"))
    assert visit.dispensed == (Code("drug", "d00015"),)


def test_years_before_2016_are_icd9() -> None:
    visit = make(2015, DIAG=("5990-",), CAUSE=("8859",))
    assert visit.billing == (Code("icd9", "5990"), Code("icd9", "E8859"))


@pytest.mark.parametrize(
    ("column", "value", "codes"),
    [
        ("TEMPF", 1004, ["temperature-high"]),
        ("TEMPF", 1003, []),
        ("TEMPF", 100.4, ["temperature-high"]),
        ("TEMPF", -9, []),
        ("PULSE", 101, ["pulse-high"]),
        ("PULSE", 100, []),
        ("PULSE", 59, ["pulse-low"]),
        ("PULSE", 998, []),
        ("PULSE", -9, []),
        ("RESPR", 23, ["respirations-high"]),
        ("BPSYS", 89, ["systolic-low"]),
        ("BPSYS", 181, ["systolic-high"]),
        ("BPSYS", 998, []),
        ("POPCT", 92, ["saturation-low"]),
        ("POPCT", 93, []),
        ("IMMEDR", 1, ["1"]),
        ("IMMEDR", 7, []),
        ("IMMEDR", 0, []),
        ("PAINSCALE", 0, ["none"]),
        ("PAINSCALE", 8, ["high"]),
        ("PAINSCALE", -8, []),
        ("ARREMS", 1, ["ambulance"]),
        ("ARREMS", 2, []),
        ("INJURY", 1, ["injury"]),
        ("INJURY", 2, []),
        ("HTN", 1, ["htn"]),
        ("HTN", 0, []),
        ("ADMITHOS", 1, ["admitted"]),
    ],
)
def test_thresholds(column: str, value: float, codes: list[str]) -> None:
    assert [code.code for code in make(**{column: value}).coded or ()] == codes


@pytest.mark.parametrize(("column", "value"), [("AGE", 131), ("SEX", 3)])
def test_impossible_values(column: str, value: float) -> None:
    with pytest.raises(BadValue) as caught:
        make(**{column: value})
    assert caught.value.column == column and str(value) not in caught.value.kind.replace("130", "")


def test_negative_means_unknown() -> None:
    visit = make(AGE=-9, SEX=-9)
    assert visit.age is None and visit.sex is None


def test_not_a_zip(tmp_path: Path) -> None:
    file = tmp_path / "ed2018_sas.zip"
    file.write_text("not found")
    with pytest.raises(InputError, match=r"ed2018_sas\.zip: is not a readable zip"):
        next(read_visits(file, source="nhamcs"))


@pytest.mark.parametrize("names", [[], ["readme.txt"], ["a.sas7bdat", "b.sas7bdat"]])
def test_zip_without_one_sas_file(tmp_path: Path, names: list[str]) -> None:
    file = tmp_path / "ed2018_sas.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    with pytest.raises(InputError, match="exactly one SAS data set"):
        next(read_visits(file, source="nhamcs", on_error="skip"))


def test_sas_file_of_noise_and_hostile_name(tmp_path: Path) -> None:
    file = tmp_path / "ed2018_sas.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../outside.sas7bdat", b"\0\1\2" * 5000)
    with pytest.raises(InputError, match="readable SAS data set"):
        next(read_visits(file, source="nhamcs"))
    assert [path.name for path in tmp_path.iterdir()] == ["ed2018_sas.zip"]


@pytest.mark.data
def test_cut_short(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "ed2018_sas.zip"
    file.write_bytes((folder / "ed2018_sas.zip").read_bytes()[:500_000])
    with pytest.raises(InputError, match="not a readable zip"):
        next(read_visits(file, source="nhamcs"))


@pytest.mark.data
def test_damaged_inside(folder: Path, tmp_path: Path) -> None:
    content = bytearray((folder / "ed2018_sas.zip").read_bytes())
    content[1_000_000:1_000_100] = bytes(100)
    file = tmp_path / "ed2018_sas.zip"
    file.write_bytes(content)
    with pytest.raises(InputError, match="not a readable zip"):
        next(read_visits(file, source="nhamcs"))


@pytest.mark.data
def test_the_same_year_twice(folder: Path) -> None:
    visits = read_visits([folder / "ed2017_sas.zip"] * 2, source="nhamcs")
    with pytest.raises(InputError, match=r"ed2017_sas\.zip, row 1, column 'id': this id was seen before"):
        for _ in visits:
            pass


def test_labels(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no label tables"):
        nhamcs.read_labels(tmp_path, Report())
    (tmp_path / "rfv_labels.csv").write_text("code,label\n10100,Fever\n")
    report = Report()
    assert nhamcs.read_labels(tmp_path, report) == {"rfv": {"10100": "Fever"}}
    assert any("drug_labels.csv" in note for note in report.notes)
    (tmp_path / "drug_labels.csv").write_text("a;b\n")
    with pytest.raises(InputError, match="'code' and 'label'"):
        nhamcs.read_labels(tmp_path, report)


class FakeSas:
    """Stands in for pyreadstat, which reads SAS data sets but writes none: another year's columns."""

    ReadstatError = PyreadstatError = RuntimeError

    def __init__(self, **columns: list[object]) -> None:
        self.columns = columns

    def read_sas7bdat(
        self, path: Path, metadataonly: bool = False, row_offset: int = 0, row_limit: int = 0, **options: object
    ) -> tuple[dict[str, list[object]], SimpleNamespace]:
        size = len(next(iter(self.columns.values())))
        rows = slice(row_offset, row_offset + row_limit)
        data = {} if metadataonly else {name: values[rows] for name, values in self.columns.items()}
        return data, SimpleNamespace(column_names=list(self.columns), number_rows=size)


def read_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **columns: list[object]) -> VisitReader:
    monkeypatch.setattr(nhamcs, "pyreadstat", FakeSas(**columns))
    monkeypatch.setattr(nhamcs, "CHUNK", 2)
    file = tmp_path / "ed2021_sas.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("ed2021_sas.sas7bdat", "x")
    return read_visits(file, source="nhamcs", on_error="skip")


def test_other_years_have_other_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = read_fake(
        tmp_path,
        monkeypatch,
        age=[1.0, 2.0, 200.0, float("nan"), 5.0],
        Sex=[1.0, 2.0, 1.0, -9.0, 7.0],
        rfv1=["10100", -9.0, -9.0, -9.0, -9.0],  # a number as text will do
        Diag1=["R51-", "-9", "", None, "-9"],
    )
    visits = list(reader)
    assert [visit.id for visit in visits] == [f"nhamcs-2021-00000{row}" for row in (1, 2, 4)]
    assert [visit.age for visit in visits] == [1, 2, None] and [visit.sex for visit in visits] == ["F", "M", None]
    assert visits[0].coded == (Code("rfv", "10100"),) and visits[0].billing == (Code("icd10", "R51"),)
    assert visits[0].dispensed is None and visits[0].time is None  # this file has no drugs and no months
    assert reader.left_out == {"age is above 130": 1, "sex is neither 1 (female) nor 2 (male)": 1}
    assert "no column YEAR, VMONTH, ARREMS" in reader.notes[0] and "DRUGID*, CAUSE*" in reader.notes[0]


def test_another_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no column SEX, RFV1, DIAG1 among its 2 columns"):
        next(read_fake(tmp_path, monkeypatch, AGE=[1.0], OTHER=[2.0]))
    with pytest.raises(InputError, match="no records"):
        next(read_fake(tmp_path, monkeypatch, AGE=[], SEX=[], RFV1=[], DIAG1=[]))
