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
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyreadstat

from whatelse.errors import InputError
from whatelse.sources.description import Description
from whatelse.sources.report import BadValue, Report
from whatelse.sources.vitals import ADMITTED, AMBULANCE, INJURY, vital_codes
from whatelse.visits import Code, Sex, Visit

CHUNK = 4_000  # rows; about 20 MB of Python objects at a time
LARGEST = 4 << 30  # bytes; a survey year is about 0.1 GB, anything above this is not one
FIRST_ICD10_YEAR = 2016

NEEDED = ("AGE", "SEX", "RFV1", "DIAG1")
REPEATED = {"RFV": 5, "DRUGID": 30, "DIAG": 5, "CAUSE": 3}
SINGLE = (
    *("YEAR", "VMONTH", "AGE", "SEX", "ARREMS", "INJURY", "ADMITHOS"),
    *("TEMPF", "PULSE", "RESPR", "BPSYS", "POPCT", "IMMEDR", "PAINSCALE"),
)
CHRONIC = {
    "ETOHAB": "alcohol misuse",
    "ALZHD": "dementia",
    "ASTHMA": "asthma",
    "CANCER": "cancer",
    "CEBVD": "cerebrovascular disease",
    "CKD": "chronic kidney disease",
    "COPD": "chronic obstructive pulmonary disease",
    "CHF": "congestive heart failure",
    "CAD": "coronary artery disease",
    "DEPRN": "depression",
    "DIABTYP1": "diabetes type 1",
    "DIABTYP2": "diabetes type 2",
    "DIABTYP0": "diabetes type unknown",
    "ESRD": "end-stage renal disease",
    "HPE": "history of thromboembolism",
    "EDHIV": "hiv infection",
    "HYPLIPID": "hyperlipidaemia",
    "HTN": "hypertension",
    "OBESITY": "obesity",
    "OSA": "obstructive sleep apnoea",
    "OSTPRSIS": "osteoporosis",
    "SUBSTAB": "substance misuse",
}
LABEL_FILES = {"rfv": "rfv_labels", "drug": "drug_labels", "icd10": "diagnosis_labels", "cause": "cause_labels"}
SEXES: dict[float, Sex] = {1: "F", 2: "M"}

Labels = dict[str, dict[str, str]]


def read_nhamcs(path: Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    """(record number from 1, visit) for every record of one survey year."""
    names = read_labels(how.labels, report) if how.labels is not None else {}
    if not zipfile.is_zipfile(path) and path.suffix.lower() == ".sas7bdat":
        yield from _read_sas(path, path, report, names)
        return
    with tempfile.TemporaryDirectory(prefix="whatelse-") as folder:
        yield from _read_sas(_unpack(path, Path(folder)), path, report, names)


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
                raise InputError(
                    f"needs exactly one SAS data set (.sas7bdat) in the zip, found {len(members)}; "
                    "take the file named like ed2018_sas.zip",
                    file=path,
                )
            if members[0].file_size > LARGEST:
                raise InputError("the SAS data set in the zip would unpack to more than 4 GB", file=path)
            target = folder / "visits.sas7bdat"
            with archive.open(members[0]) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out, 1 << 20)
            return target
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, zlib.error):
        # RuntimeError: encrypted; NotImplementedError: a compression this Python does not have
        raise InputError(
            "is not a readable zip file: damaged, cut short or encrypted; download it again", file=path
        ) from None


def _read_sas(sas: Path, path: Path, report: Report, labels: Labels) -> Iterator[tuple[int, Visit]]:
    try:
        _, meta = pyreadstat.read_sas7bdat(sas, metadataonly=True, output_format="dict")
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError):
        raise InputError("does not hold a readable SAS data set: damaged or cut short", file=path) from None
    found = {name.upper(): name for name in meta.column_names}  # the case differs from year to year
    if missing := [name for name in NEEDED if name not in found]:
        raise InputError(
            f"is not an NHAMCS emergency department file: no column {', '.join(missing)} "
            f"among its {len(found)} columns",
            file=path,
        )
    groups = {stem: [f"{stem}{k}" for k in range(1, n + 1) if f"{stem}{k}" in found] for stem, n in REPEATED.items()}
    singles = [name for name in (*SINGLE, *CHRONIC) if name in found]
    absent = [name for name in (*SINGLE, *CHRONIC) if name not in found]
    absent += [stem + "*" for stem, columns in groups.items() if not columns]
    if absent:
        report.note(f"{path.name}: no column {', '.join(absent)}; their findings are missing")

    use = [found[name] for name in (*singles, *(column for columns in groups.values() for column in columns))]
    make = _Maker(path, labels, has_drugs=bool(groups["DRUGID"]))
    for start in range(0, meta.number_rows or 0, CHUNK):
        try:
            data, _ = pyreadstat.read_sas7bdat(
                sas, usecols=use, output_format="dict", row_offset=start, row_limit=CHUNK
            )
        except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError):
            raise InputError("the SAS data set is damaged or cut short", file=path, row=start + 1) from None
        columns: dict[str, list[Any]] = {name: data[found[name]] for name in singles}
        size = len(columns["AGE"])
        repeated = {
            stem: list(zip(*(data[found[name]] for name in names), strict=True)) if names else [()] * size
            for stem, names in groups.items()
        }
        for i in range(size):
            row = start + i + 1
            try:
                visit = make(
                    row,
                    {name: _number(values[i]) for name, values in columns.items()},
                    {stem: values[i] for stem, values in repeated.items()},
                )
            except BadValue as bad:
                report.leave_out_row(bad, path, row)
                continue
            yield row, visit
    if not meta.number_rows:
        raise InputError("the SAS data set has no records", file=path)


class _Maker:
    """Makes a Visit of one record; codes are made once and shared between visits."""

    def __init__(self, path: Path, labels: Labels, has_drugs: bool) -> None:
        self.labels, self.has_drugs = labels, has_drugs
        self.codes: dict[tuple[str, str], Code] = {}
        match = re.search(r"(?:19|20)\d\d", path.name)
        self.file_year = int(match[0]) if match else None
        self.stem = path.name.split(".")[0]
        self.chronic = {column: Code("chronic", column.lower(), name) for column, name in CHRONIC.items()}

    def code(self, system: str, raw: str) -> Code:
        key = (system, raw)
        if key not in self.codes:
            name = self.labels.get(system, {}).get(raw)
            self.codes[key] = Code(system, raw.rstrip("-") if system in ("icd9", "icd10", "cause") else raw, name)
        return self.codes[key]

    def __call__(self, row: int, one: dict[str, float | None], many: dict[str, tuple[Any, ...]]) -> Visit:
        age, sex = one["AGE"], one["SEX"]
        if age is not None and age > 130:
            raise BadValue("age is above 130", "AGE")
        if sex is not None and sex not in SEXES:
            raise BadValue("sex is neither 1 (female) nor 2 (male)", "SEX")
        year = int(one.get("YEAR") or self.file_year or 0)
        month = int(one.get("VMONTH") or 0)

        coded = [self.code("rfv", f"{int(v):05d}") for v in map(_number, many["RFV"]) if v]
        if one.get("ARREMS") == 1:
            coded.append(AMBULANCE)
        if one.get("INJURY") == 1:
            coded.append(INJURY)
        coded += vital_codes(
            temperature=one.get("TEMPF"),
            pulse=_measured(one.get("PULSE")),
            respirations=_measured(one.get("RESPR")),
            systolic=_measured(one.get("BPSYS")),
            saturation=one.get("POPCT"),
            triage=one.get("IMMEDR"),
            pain=one.get("PAINSCALE"),
        )
        coded += [code for column, code in self.chronic.items() if one.get(column) == 1]
        if one.get("ADMITHOS") == 1:
            coded.append(ADMITTED)

        old = 0 < year < FIRST_ICD10_YEAR
        billing = [self.code("icd9" if old else "icd10", text) for text in map(_text, many["DIAG"]) if text]
        causes = [text for text in map(_text, many["CAUSE"]) if text]
        billing += [
            self.code("icd9", "E" + text if text[0].isdigit() else text) if old else self.code("cause", text)
            for text in causes
        ]
        drugs = [self.code("drug", str(text).strip()) for text in many["DRUGID"] if text and str(text).strip()]
        return Visit(
            id=f"nhamcs-{year or self.stem}-{row:06d}",
            age=age,
            sex=SEXES[sex] if sex is not None else None,
            dispensed=_distinct(drugs) if self.has_drugs else None,
            billing=_distinct(billing),
            coded=_distinct(coded),
            time=datetime(year, month, 1) if year and 1 <= month <= 12 else None,
        )


def _distinct(codes: list[Code]) -> tuple[Code, ...]:
    return tuple(dict.fromkeys(codes))


def _number(value: Any) -> float | None:
    """A value of a numeric column, or None for the survey's negative "missing" codes."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 else None  # NaN is not >= 0 either


def _measured(value: float | None) -> float | None:
    return None if value == 998 else value


def _text(value: Any) -> str:
    """A diagnosis or cause code as it is in the file, upper case; "" for the negative "missing" codes."""
    text = str(value or "").strip().upper()
    return "" if text.startswith("-") else text
