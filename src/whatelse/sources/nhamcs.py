"""NHAMCS: the emergency department public-use files of the National Hospital Ambulatory Medical Care Survey.

Reads the zip as distributed (one SAS data set in it), or the SAS data set itself, some thousand rows
at a time. Negative values are the survey's "blank", "unknown" and "not applicable", and 998 is its
"palpated / by Doppler"; none of them is a measurement.

    RFV1-5       -> coded      Code("rfv", "10100", "Fever")
    DRUGID1-30   -> dispensed  Code("drug", "d00015", "IBUPROFEN"), given here or prescribed to take home
    DIAG1-5      -> billing    Code("icd10", "N390", ...); ICD-9 before the survey year 2016
    CAUSE1-3     -> billing    Code("cause", "W19X", ...); ICD-9 E codes before the survey year 2016
    vital signs, triage, arrival, injury, chronic conditions, admission -> coded
"""

from __future__ import annotations

import csv
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyreadstat

from whatelse.errors import InputError
from whatelse.io.files import scratch_folder
from whatelse.io.limits import shipped_yaml
from whatelse.sources.codings import load_codings
from whatelse.sources.description import Description
from whatelse.sources.report import BadValue, Report
from whatelse.sources.vitals import ADMITTED, AMBULANCE, INJURY, vital_codes
from whatelse.visits import OLDEST, Code, Sex, Visit

CHUNK = 4_000  # rows; about 20 MB of Python objects at a time
LARGEST = 4 << 30  # bytes; a survey year is about 0.1 GB, anything above this is not one
FIRST_ICD10_YEAR = 2016
PALPATED = 998  # instead of a measurement: "palpated", "by Doppler"

_FILES = shipped_yaml("whatelse.sources", "nhamcs.yaml")
REPEATED: dict[str, int] = _FILES["repeated"]
CHRONIC = load_codings().flags  # the survey's column in lower case -> code
VITALS: dict[str, str] = _FILES["vitals"]
FLAGS = {"ARREMS": AMBULANCE, "INJURY": INJURY}
SINGLE = (*_FILES["single"], *VITALS.values(), *(flag.upper() for flag in CHRONIC))
LABEL_FILES: dict[str, str] = _FILES["labels"]
SEXES: dict[float, Sex] = {1: "F", 2: "M"}

Labels = dict[str, dict[str, str]]


def read_nhamcs(path: Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    """(record number from 1, visit) for every record of one survey year."""
    names = read_labels(how.labels, report) if how.labels is not None else {}
    plain = not zipfile.is_zipfile(path) and path.suffix.lower() == ".sas7bdat"
    with scratch_folder() as folder:
        yield from _read_sas(path if plain else _unpack(path, folder), path, report, names)


def read_labels(folder: Path, report: Report) -> Labels:
    """{code system: {code: label}} from the tables `rfv_labels.csv` … of a folder (columns code, label)."""
    labels: Labels = {}
    for system, stem in LABEL_FILES.items():
        file = folder / f"{stem}.csv"
        if not file.is_file():
            continue
        try:
            with file.open(encoding="utf-8-sig", newline="") as stream:
                rows = csv.DictReader(stream)
                if not {"code", "label"} <= set(rows.fieldnames or ()):
                    raise InputError("a label table needs the columns 'code' and 'label'", file=file)
                labels[system] = {row["code"]: row["label"] for row in rows if row["code"] and row["label"]}
        except (UnicodeDecodeError, csv.Error):
            raise InputError("cannot be read as a CSV table in UTF-8", file=file) from None
    if not labels:
        raise InputError("has no label tables; expected rfv_labels.csv, drug_labels.csv …", file=folder)
    for system, stem in LABEL_FILES.items():
        if system not in labels:
            report.note(f"{folder}: no {stem}.csv, so {system} codes have no names")
    return labels


def _unpack(path: Path, folder: Path) -> Path:
    """Copy the one SAS data set of the zip to `folder`, under a name of our own."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.lower().endswith(".sas7bdat")]
            if len(members) != 1:
                problem = f"needs exactly one SAS data set (.sas7bdat) in the zip, found {len(members)}"
                raise InputError(f"{problem}; take the file named like ed2018_sas.zip", file=path)
            if members[0].file_size > LARGEST:
                raise InputError("the SAS data set in the zip would unpack to more than 4 GB", file=path)
            target = folder / "visits.sas7bdat"
            with archive.open(members[0]) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out, 1 << 20)
            return target
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, zlib.error):
        # RuntimeError: encrypted; NotImplementedError: a compression this Python does not have
        problem = "is not a readable zip file: damaged, cut short or encrypted; download it again"
        raise InputError(problem, file=path) from None


def _read_sas(sas: Path, path: Path, report: Report, labels: Labels) -> Iterator[tuple[int, Visit]]:
    try:
        _, meta = pyreadstat.read_sas7bdat(sas, metadataonly=True, output_format="dict")
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError):
        raise InputError("does not hold a readable SAS data set: damaged or cut short", file=path) from None
    found = {name.upper(): name for name in meta.column_names}  # the case differs from year to year
    if missing := [name for name in _FILES["needed"] if name not in found]:
        problem = f"no column {', '.join(missing)} among its {len(found)} columns"
        raise InputError(f"is not an NHAMCS emergency department file: {problem}", file=path)
    absent = [name for name in SINGLE if name not in found]
    absent += [f"{stem}*" for stem in REPEATED if f"{stem}1" not in found]
    if absent:
        report.note(f"{path.name}: no column {', '.join(absent)}; their findings are missing")
    repeated = [f"{stem}{k}" for stem, most in REPEATED.items() for k in range(1, most + 1)]
    use = [name for name in (*SINGLE, *repeated) if name in found]
    make = VisitMaker(path, labels)
    for start in range(0, meta.number_rows or 0, CHUNK):
        try:
            data, _ = pyreadstat.read_sas7bdat(
                sas, usecols=[found[name] for name in use], output_format="dict", row_offset=start, row_limit=CHUNK
            )
        except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError):
            raise InputError("the SAS data set is damaged or cut short", file=path, row=start + 1) from None
        cells = zip(*(data[found[name]] for name in use), strict=True)
        records = (dict(zip(use, values, strict=True)) for values in cells)
        yield from report.usable(enumerate(records, start=start + 1), make, path)
    if not meta.number_rows:
        raise InputError("the SAS data set has no records", file=path)


class VisitMaker:
    """Makes a Visit of one record. A code is made once and shared between visits."""

    def __init__(self, path: Path, labels: Labels) -> None:
        self.labels, self.stem = labels, path.name.split(".")[0]
        self.codes: dict[tuple[str, str], Code] = {}
        match = re.search(r"(?:19|20)\d\d", path.name)
        self.file_year = int(match[0]) if match else 0

    def __call__(self, record: dict[str, Any], row: int) -> Visit:
        """record: {column: cell}."""
        one = {name: _number(record.get(name)) for name in SINGLE}
        age, sex = one["AGE"], one["SEX"]
        if age is not None and age > OLDEST:
            raise BadValue(f"age is above {OLDEST}", "AGE")
        if sex is not None and sex not in SEXES:
            raise BadValue("sex is neither 1 (female) nor 2 (male)", "SEX")
        year, month = int(one["YEAR"] or self.file_year), int(one["VMONTH"] or 0)

        reasons = [_number(cell) for cell in _cells(record, "RFV")]
        coded = [self._code("rfv", f"{int(number):05d}") for number in reasons if number]
        coded += [code for name, code in FLAGS.items() if one[name] == 1]
        values = {sign: None if one[name] == PALPATED else one[name] for sign, name in VITALS.items()}
        coded += vital_codes(**values | {"temperature": one["TEMPF"]})  # 998 tenths of a degree are measured
        coded += [code for flag, code in CHRONIC.items() if one[flag.upper()] == 1]
        coded += [ADMITTED] if one["ADMITHOS"] == 1 else []

        old = 0 < year < FIRST_ICD10_YEAR
        billing = [self._code("icd9" if old else "icd10", text) for text in _texts(record, "DIAG")]
        causes = [f"E{text}" if old and text[0].isdigit() else text for text in _texts(record, "CAUSE")]
        billing += [self._code("icd9" if old else "cause", text) for text in causes]
        drugs = [self._code("drug", text) for cell in _cells(record, "DRUGID") if (text := str(cell or "").strip())]
        return Visit(
            id=f"nhamcs-{year or self.stem}-{row:06d}",
            age=age,
            sex=SEXES[sex] if sex is not None else None,
            dispensed=tuple(dict.fromkeys(drugs)) if "DRUGID1" in record else None,
            billing=tuple(dict.fromkeys(billing)),
            coded=tuple(dict.fromkeys(coded)),
            time=datetime(year, month, 1) if year and 1 <= month <= 12 else None,
        )

    def _code(self, system: str, raw: str) -> Code:
        key = (system, raw)
        if key not in self.codes:
            name = self.labels.get(system, {}).get(raw)
            self.codes[key] = Code(system, raw.rstrip("-") if system in ("icd9", "icd10", "cause") else raw, name)
        return self.codes[key]


def _cells(record: dict[str, Any], stem: str) -> list[Any]:
    return [record.get(f"{stem}{k}") for k in range(1, REPEATED[stem] + 1)]


def _texts(record: dict[str, Any], stem: str) -> list[str]:
    """Diagnosis or cause codes in upper case, without the negative "missing" codes."""
    texts = [str(cell or "").strip().upper() for cell in _cells(record, stem)]
    return [text for text in texts if text and not text.startswith("-")]


def _number(cell: Any) -> float | None:
    """A cell of a numeric column; None for the survey's negative "missing" codes."""
    try:
        number = float(cell)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 else None  # NaN is not >= 0 either
