"""'whatelse inspect': what columns seem to be, a map that reads, and nothing overwritten."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.errors import InputError
from whatelse.sources import read_visits
from whatelse.sources.inspection import inspect_file


def _table(path: Path, rng: np.random.Generator, count: int = 300) -> Path:
    """As hospitals export them: semicolons, Latin-1, decimal commas, own codes, 120/80, words for missing."""
    head = "Fall Nr;Alter;Geschlecht;Beschwerde;Notiz;ESI;Temp;Puls;BP;Diagnosen;Labor X;Bett;Ankunft;leer;Arzt"

    def row(i: int) -> list[str]:
        return [
            f"F{i:05}", f"{rng.integers(0, 99)}", "wmd"[rng.integers(3)],
            ("Sturz", "Fieber", "Übelkeit", "Thoraxschmerz", "Dyspnoe")[rng.integers(5)],
            f"Patient {i} klagt über Schmerzen seit {i % 9} Tagen, keine Übelkeit",
            str(rng.integers(1, 6)), f"{rng.normal(37, 0.8):.1f}".replace(".", ","),
            "n/a" if i % 9 == 0 else str(round(rng.normal(85, 15))),
            f"{rng.integers(90, 180)}/{rng.integers(50, 100)}", "S00.0,W18" if i % 2 else "R50.9",
            f"{rng.normal(5, 2):.2f}", f"B{rng.integers(40)}", f"{1 + i % 28:02}.03.2024 1{i % 10}:30", "",
            f"Dr. {rng.integers(10**6)}",
        ]  # fmt: skip

    lines = [head, *(";".join(row(i)) for i in range(count))]
    path.write_bytes("\r\n".join(lines).encode("latin-1"))
    return path


def test_what_columns_seem_to_be(tmp_path: Path, rng: np.random.Generator) -> None:
    file = _table(tmp_path / "visits.csv", rng)
    look = inspect_file(file)
    assert {seen.name: seen.field for seen in look.columns} == {
        "Fall Nr": "id", "Alter": "age", "Geschlecht": "sex", "Beschwerde": "chief_complaint", "Notiz": "triage_note",
        "ESI": "coded", "Temp": "numbers", "Puls": "numbers", "BP": "numbers", "Diagnosen": "billing",
        "Labor X": "numbers", "Bett": "", "Ankunft": "time", "leer": "", "Arzt": "",
    }  # fmt: skip
    made = look.to_map()
    assert made["delimiter"] == ";" and made["encoding"] == "cp1252" and made["missing"] == ["n/a"]
    assert made["numbers"]["BP"]["part"] == 1 and made["numbers"]["Labor X"] == "bands"
    assert made["numbers"]["Temp"] == [">= 38 -> vital:temperature-high"]
    assert made["coded"] == [{"column": "ESI", "system": "triage"}]
    assert made["billing"] == {"column": "Diagnosen", "separator": ",", "system": "icd"}
    assert made["time"] == {"column": "Ankunft", "format": "%d.%m.%Y %H:%M"}
    assert yaml.safe_load(look.to_yaml()) == made  # the file says what it means
    visits = list(read_visits(file, columns=made))
    assert len(visits) == 300 and visits[1].billing is not None and len(visits[1].billing) == 2
    assert visits[1].numbers is not None and [name for name, _ in visits[1].numbers] == ["labor_x"]
    assert any(code.code == "temperature-high" for visit in visits for code in visit.coded or ())
    assert "Übelkeit" in (visits[0].triage_note or "") and "Dr. " not in look.to_yaml()


def test_the_command_writes_a_map_once(tmp_path: Path, rng: np.random.Generator) -> None:
    file, out = _table(tmp_path / "visits.csv", rng), tmp_path / "map.yaml"
    run = CliRunner()
    first = run.invoke(app, ["inspect", str(file), "--out", str(out)])
    assert first.exit_code == 0 and "whatelse build" in first.output and "ignored" in first.output, first.output
    built = run.invoke(app, ["build", str(file), "--map", str(out), "--out", str(tmp_path / "c")])
    assert built.exit_code == 0 and "300 visits" in built.output, built.output
    out.write_text("edited: by hand", encoding="utf-8")
    again = run.invoke(app, ["inspect", str(file), "--out", str(out)])
    assert again.exit_code == 2 and "may have been edited" in again.output
    assert out.read_text(encoding="utf-8") == "edited: by hand"
    assert "triage_note: Notiz" in run.invoke(app, ["inspect", str(file)]).output


def test_a_table_without_an_id_or_with_odd_codes_of_sex(tmp_path: Path) -> None:
    rows = [f"{i},{i % 3 + 7},{'abc'[i % 3]},{i % 2}" for i in range(60)]
    (tmp_path / "t.csv").write_text("age,gender,ward,flag\n" + "\n".join(rows), encoding="utf-8")
    look = inspect_file(tmp_path / "t.csv")
    made = look.to_map()
    assert made["id"] == {"row_number": True}
    assert made["sex"] == {"column": "gender", "values": {"7": None, "8": None, "9": None}}
    assert "CHECK" in look.to_yaml() and "write F or M for 7, 8, 9" in look.to_yaml()
    assert [line["system"] for line in made["coded"]] == ["ward", "flag"]
    assert len(list(read_visits(tmp_path / "t.csv", columns=yaml.safe_load(look.to_yaml())))) == 60


def test_letters_for_sex_columns_about_no_health_and_a_first_column_of_ids(tmp_path: Path) -> None:
    head = "Dossier;Eintritt;sexe;Alter;Temp;Krankenkasse;Bett;T"
    rows = [
        f"{7000 + i};{1 + i % 28:02}.03.2024 11:30;{'FH'[i % 2]};{i % 90};"
        f"{'n.b.' if i % 9 == 0 else '36,8'};K{i % 5};B{i % 30};{36 + i % 5}"
        for i in range(200)
    ]
    (tmp_path / "t.csv").write_bytes("\r\n".join([head, *rows]).encode("latin-1"))
    found = inspect_file(tmp_path / "t.csv")
    made = found.to_map()
    assert made["id"] == "Dossier" and made["time"]["column"] == "Eintritt" and made["missing"] == ["n.b."]
    assert made["sex"] == {"column": "sexe", "values": {"F": "F", "H": "M"}}
    assert "numbers" in made and "T" in made["numbers"]
    assert {g.name for g in found.columns if "health" in g.why} == {"Krankenkasse", "Bett"}
    reader = read_visits(tmp_path / "t.csv", columns=made)
    assert [visit.sex for visit in reader][:2] == ["F", "M"] and reader.notes == []
    spanish = "id,sexo,edad\n" + "\n".join(f"{i},{'HM'[i % 2]},{i}" for i in range(60))
    (tmp_path / "s.csv").write_text(spanish, encoding="utf-8")
    assert inspect_file(tmp_path / "s.csv").to_map()["sex"]["values"] == {"H": "M", "M": "F"}


def test_short_names_of_age_and_sex_and_names_of_staff(tmp_path: Path) -> None:
    rows = [f"{i},{20 + i % 60},{i % 30},{'MF'[i % 2]},{('Ng', 'Roy', 'Diaz')[i % 3]}" for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["Case,Yrs,Pack yrs,M/F,Seen by", *rows]), encoding="utf-8")
    found = inspect_file(tmp_path / "t.csv")
    made = found.to_map()
    assert (made["age"], made["sex"]) == ("Yrs", "M/F") and "Pack yrs" in made["numbers"]
    assert [g.name for g in found.columns if "health" in g.why] == ["Seen by"]


def test_rows_that_cannot_be_decoded_are_said_and_the_next_command_skips_them(tmp_path: Path) -> None:
    rows = [f"{i};{i % 90};Patient klagt \xfcber Schmerzen seit {i} Tagen".encode("latin-1") for i in range(200)]
    rows[50] = rows[50].replace(b"Tagen", b"T\x81gen")
    (tmp_path / "t.csv").write_bytes(b"\r\n".join([b"Fall_Nr;Alter;Notiz", *rows]))
    run, out = CliRunner(), tmp_path / "map.yaml"
    looked = run.invoke(app, ["inspect", str(tmp_path / "t.csv"), "--out", str(out)])
    assert looked.exit_code == 0 and "1 rows cannot be read" in looked.output and "--on-error skip" in looked.output


def _triage_table(path: Path, rng: np.random.Generator, count: int = 400) -> Path:
    """In the shape of a public triage file: Latin-5, decimal commas, errors of a spreadsheet, columns that leak."""
    head = (
        "Group;Sex;Age;Patients number per hour;Arrival mode;Injury;Chief_complain;Mental;Pain;NRS_pain;SBP;DBP;HR;RR;"
    )
    head += (
        "BT;Saturation;KTAS_RN;Diagnosis in ED;Disposition;KTAS_expert;Error_group;Length of stay_min;KTAS duration_min"
    )

    def row(i: int) -> list[object]:
        return [
            1 + i % 2, 1 + i // 2 % 2, 16 + i % 80, 1 + i % 15, 1 + i % 7, 1 + i % 2,
            ("abd pain", "dizziness", "fever", "chest pain", "open wound", "right hand injury")[i % 6] + f" {i % 40}",
            1 + i % 4, i % 2, "#BOŞ!" if i % 2 else i % 10, "??" if i % 50 == 7 else 90 + i % 90, 60 + i % 30,
            60 + i % 60, 16 + i % 6, f"{36 + i % 30 / 10:.1f}".replace(".", ","), "#BOŞ!" if i % 2 else 90 + i % 11,
            1 + i % 5, ("Acute gastroenteritis", "Corneal abrasion", "Fever, unspecified")[i % 3], 1 + i % 7, 1 + i % 5,
            i % 9, 86 + i % 900, f"{i % 20},00",
        ]  # fmt: skip

    lines = [head, *(";".join(map(str, row(i))) for i in range(count))]
    path.write_bytes("\r\n".join(lines).encode("iso8859-9"))
    return path


def test_columns_known_only_after_the_visit_are_left_out(tmp_path: Path, rng: np.random.Generator) -> None:
    found = inspect_file(_triage_table(tmp_path / "triage.csv", rng))
    after = {guess.name for guess in found.columns if "after the visit" in guess.why}
    assert after == {
        "Diagnosis in ED", "Disposition", "KTAS_expert", "Error_group", "Length of stay_min", "KTAS duration_min",
    }  # fmt: skip
    assert not any(guess.field for guess in found.columns if guess.name in after)
    assert "# known only after the visit:\n# shown: [Diagnosis in ED, Disposition, " in found.to_yaml()


def test_german_names_of_what_is_known_after_the_visit(tmp_path: Path) -> None:
    rows = "".join(f"{i};{20 + i};{('entlassen', 'verstorben')[i % 2]};{i % 3};{i % 2}\n" for i in range(40))
    (tmp_path / "v.csv").write_text("Fallnummer;Alter;Verbleib;Entlassart;Entlassgrund\n" + rows, "utf-8")
    assert [guess.field for guess in inspect_file(tmp_path / "v.csv").columns] == ["id", "age", "", "", ""]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_counts_for_more_than_the_encoding_of_a_map(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "v.csv").write_text("id,triage_note\n1,Übelkeit\n", encoding)
    (tmp_path / "map.yaml").write_text("{encoding: cp1252, id: id, triage_note: triage_note}", "utf-8")
    found = read_visits(tmp_path / "v.csv", columns=tmp_path / "map.yaml")
    assert next(found).triage_note == "Übelkeit"


def test_a_file_in_another_code_page_is_inspected_and_read_unedited(tmp_path: Path, rng: np.random.Generator) -> None:
    file, out = _triage_table(tmp_path / "triage.csv", rng), tmp_path / "map.yaml"
    shown = CliRunner().invoke(app, ["inspect", str(file), "--out", str(out)])
    assert shown.exit_code == 0, shown.output
    made = yaml.safe_load(out.read_text("utf-8"))
    assert made["chief_complaint"] == "Chief_complain" and made["age"] == "Age"
    assert made["encoding"].startswith("cp125") and any(mark.startswith("#BO") for mark in made["missing"])
    visits = list(read_visits(file, columns=out))
    assert len(visits) == 400 and visits[0].chief_complaint == "abd pain 0"
    coded = {f"{code.system}:{code.code}" for visit in visits for code in visit.coded or ()}
    assert {"triage:1", "pain:yes", "pain:high", "vital:temperature-high"} <= coded
    assert not any("expert" in code or "disposition" in code for code in coded)


def test_a_column_of_zeros_and_ones_is_no_pain_score(tmp_path: Path, rng: np.random.Generator) -> None:
    made = inspect_file(_triage_table(tmp_path / "triage.csv", rng)).to_map()
    assert "Pain" not in made["numbers"] and made["numbers"]["NRS_pain"][0] == ">= 8 -> pain:high"
    assert {"column": "Pain", "system": "pain", "values": {"0": None, "1": "yes"}} in made["coded"]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "douleur thoracique, fièvre élevée, gêne à l'arrivée"),
        ("cp1250", "ból w klatce piersiowej, duszność, gorączka"),
        ("cp1251", "боль в груди, одышка, температура"),
        ("cp949", "가슴 통증과 호흡 곤란, 복통"),
        ("gb18030", "胸痛，呼吸困难，发热三天"),
        ("utf-16", "ból, fièvre, боль"),
    ],
)
def test_encodings_are_detected(tmp_path: Path, encoding: str, text: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(("id;note\n" + "".join(f"{i};{text} {i}\n" for i in range(50))).encode(encoding))
    found = inspect_file(file)
    notes = [visit.triage_note for visit in read_visits(file, columns=found.to_map())]
    assert notes == [f"{text} {i}" for i in range(50)]


def test_spoiled_bytes_do_not_stop_the_inspection(tmp_path: Path) -> None:
    rows = [f"{i},fièvre élevée {i}\n".encode() for i in range(50)]
    (tmp_path / "t.csv").write_bytes(b"id,note\n" + b"".join(rows) + b"99,bad \xde byte\n")
    found = inspect_file(tmp_path / "t.csv")
    assert any("1 rows cannot be read (holds bytes" in note for note in found.notes)
    assert found.to_yaml().encode()
    skipping = read_visits(tmp_path / "t.csv", columns=found.to_map(), on_error="skip")
    assert len(list(skipping)) == 50


def test_cells_that_cannot_be_read_become_unknown_or_the_column_is_left_out(tmp_path: Path) -> None:
    ages = ["thirty" if i == 30 else str(i) for i in range(100)]
    times = [f"2024-01-01 1{i % 10}:00" if i < 90 else f"late {i}" for i in range(100)]
    lines = [f"{i},{age},cough {i},{time}" for i, (age, time) in enumerate(zip(ages, times, strict=True))]
    (tmp_path / "t.csv").write_text("id,age,complaint,time\n" + "\n".join(lines), encoding="utf-8")
    made = inspect_file(tmp_path / "t.csv").to_map()
    assert "thirty" in made["missing"] and made["time"] is None
    visits = list(read_visits(tmp_path / "t.csv", columns=made))
    assert len(visits) == 100 and visits[30].age is None and visits[31].age == 31.0 and visits[0].time is None


def test_a_complaint_is_known_by_its_values(tmp_path: Path) -> None:
    words = ("chest pain", "cough and fever", "fall from stairs", "headache")
    lines = [f"{i},{words[i % 4]} {i % 17}" for i in range(100)]
    (tmp_path / "t.csv").write_text("case no,why\n" + "\n".join(lines), encoding="utf-8")
    assert inspect_file(tmp_path / "t.csv").to_map() == {"id": "case no", "chief_complaint": "why"}


def test_other_formats(tmp_path: Path) -> None:
    records = [
        {"id": i, "age": 3.0 * i, "triage_note": f"note {i} of a patient with pain in the chest"} for i in range(40)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    pyarrow.parquet.write_table(pa.Table.from_pylist(records), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.parquet"):
        made = inspect_file(tmp_path / name).to_map()
        assert made == {"id": "id", "age": "age", "triage_note": "triage_note"}
        assert len(list(read_visits(tmp_path / name, columns=made))) == 40


def test_what_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        inspect_file(tmp_path)
    with pytest.raises(InputError, match="no such file; check the path"):
        inspect_file(tmp_path / "vists.csv")
    (tmp_path / "head.csv").write_text("id,age\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no rows"):
        inspect_file(tmp_path / "head.csv")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="cannot be read as a Parquet"):
        inspect_file(tmp_path / "bad.parquet")


ODD = {  # column: its cells; what the map makes of it is tested below
    "Fall Nr.": [f"F/{i:04}" for i in range(120)],
    "ChiefComplText": [("chest pain", "fièvre, toux", "Übelkeit", "fall from stairs")[i % 4] for i in range(120)],
    "Schmerz (ja/nein)": [str(i % 2) for i in range(120)],
    "Pain": [str(i % 2) for i in range(120)],
    "FinalDx": [("pneumonia", "grippe", "fracture")[i % 3] for i in range(120)],
    "Outcome 30d": [("home", "décédé")[i % 2] for i in range(120)],
    "LengthOfStay(h)": [f"{i % 30},5" for i in range(120)],
    "KTAS_expert": [str(1 + i % 5) for i in range(120)],
    "Triage gold": [str(1 + i % 5) for i in range(120)],
    "DispositionCode": [str(i % 7) for i in range(120)],
    "ErrorGroup": [str(i % 9) for i in range(120)],
}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_table_of_odd_columns_is_built_with_the_map_as_written(tmp_path: Path, encoding: str) -> None:
    file, out, run = tmp_path / "t.csv", tmp_path / "map.yaml", CliRunner(charset="ascii")
    file.write_bytes("\n".join(map(";".join, [tuple(ODD), *zip(*ODD.values(), strict=True)])).encode(encoding))
    for arguments in (["--out", str(out)], []):  # the map as a file, then on a terminal without accents
        shown = run.invoke(app, ["inspect", str(file), *arguments])
        assert shown.exit_code == 0 and "known only after the visit" in shown.output, shown.output
    made = yaml.safe_load(out.read_text("utf-8"))
    assert (made["id"], made["chief_complaint"], made["delimiter"]) == ("Fall Nr.", "ChiefComplText", ";")
    assert "numbers" not in made and {entry["column"] for entry in made["coded"]} == {"Schmerz (ja/nein)", "Pain"}
    comments = out.read_text("utf-8").partition("# known only after the visit:")[2]
    assert all(name in comments for name in list(ODD)[4:])
    built = run.invoke(app, ["build", str(file), "--map", str(out), "--out", str(tmp_path / "cohort")])
    assert built.exit_code == 0 and "120 visits" in built.output, built.output


# ---- tables that nobody prepared

SAYS = ("chest pain", "fever", "vomiting", "head injury", "headache", "finger laceration", "syncope", "cough")
COMPLAINTS = [f"{SAYS[i % 8]}, {SAYS[i // 8 % 8]}" for i in range(200)]


def _german(i: int) -> dict[str, object]:
    """Latin-1, semicolons, abbreviated sexes, a name in every row, columns that leak."""
    return {
        "Fallnummer": f"2020-{i:05}", "Eintrittsdatum": f"{1 + i % 28:02}.03.2019 1{i % 10}:30",
        "Alter (J)": "k.A." if i % 40 == 7 else i % 95, "Gender": ("weibl.", "männl.")[i % 2],
        "Presenting text": f"{COMPLAINTS[i]} since {i} hours, größer, seen at home by neighbour",
        "Triage Kat.": 1 + i % 5,
        "Dispo": ("entlassen", "stationär", "verlegt")[i % 3], "LOS min": 60 + i, "Behandler": "Dr. Müller",
        "Station": "Notfall",
    }  # fmt: skip


def _spanish(i: int) -> dict[str, object]:
    """Decimal commas, an id that looks like an ICD code, two ways to write a sex, repeated long text."""
    return {
        "Nº episodio": f"E{i:05}", "Fecha de ingreso": f"{1 + i % 28:02}/03/2023", "Edad": f"{i % 90},5",
        "Sexo": ("Hombre", "Mujer", "H", "M")[i % 4], "Motivo de consulta": ("dolor", "fiebre", "tos")[i % 3],
        "Enfermedad actual": f"Paciente que acude por fiebre de {i % 9} días de evolución. Niega tos.",
        "Temperatura (ºC)": f"{36 + i % 30 / 10:.1f}".replace(".", ","), "TA": f"{100 + i % 60}/70",
        "FC": "no consta" if i % 11 == 0 else 60 + i % 60, "Diagnóstico principal": ("R07.4", "J18.9")[i % 2],
        "Destino al alta": ("Domicilio", "Ingreso")[i % 2], "Alergias": ("Sí", "No")[i % 2],
    }  # fmt: skip


def _spreadsheet(i: int) -> dict[str, object]:
    """As a spreadsheet saves it: ids as formulas, ages with units, dates in four forms, quotes and lines in notes."""
    when = (f"{1 + i % 12}/{13 + i % 15}/2019 1:30 PM", "2019-02-03 01:01:00", "13-Jan-19", "43501.5")
    return {
        "Account #": f'="{100000 + i}"', "ED Arrival Date/Time": when[min(3, i % 10)] if i % 10 < 4 else when[0],
        "Pt Age": ("54y", "18 mo", "76", "3 weeks", "")[i % 5], "M/F": "FM"[i % 2],
        "Chief Complaint": COMPLAINTS[i].upper(),
        "Provider Note": f'Pt states "I fell"\nand hit head.\t{COMPLAINTS[i]} {i}' if i % 4 else "",
        "Temp (F)": "-" if i % 9 == 0 else f"{97 + i % 50 / 10:.1f}",
        "Pain": ("0/10", "5/10", "10/10", "unable")[i % 4],
        "Home Meds": ("lisinopril 10mg; metformin 500mg", "None", "ASPIRIN 81 MG")[i % 3],
        "Final Dx": ("Closed head injury", "Chest pain, unspecified")[i % 2],
        "ED Disposition": ("Home", "Admit")[i % 2],
    }  # fmt: skip


def _hard_table(path: Path, row: Callable[[int], dict[str, object]], delimiter: str, encoding: str) -> Path:
    with path.open("w", encoding=encoding, newline="") as stream:
        writer = csv.DictWriter(stream, list(row(0)), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(row(i) for i in range(200))
    return path


def test_a_german_export(tmp_path: Path) -> None:
    file = _hard_table(tmp_path / "t.csv", _german, ";", "latin-1")
    found = inspect_file(file)
    made, why = found.to_map(), {guess.name: guess.why for guess in found.columns}
    assert made["sex"] == "Gender" and made["triage_note"] == "Presenting text" and made["id"] == "Fallnummer"
    assert "after the visit" in why["Dispo"] and "after the visit" in why["LOS min"]
    assert "health" in why["Behandler"] and why["Station"] == "the same value in every row"
    visits = list(read_visits(file, columns=made))
    assert [visit.sex for visit in visits[:2]] == ["F", "M"] and visits[7].age is None and visits[8].age == 8


def test_a_spanish_export(tmp_path: Path) -> None:
    file = _hard_table(tmp_path / "t.csv", _spanish, ";", "utf-8")
    made = inspect_file(file).to_map()
    assert made["id"] == "Nº episodio" and made["billing"]["column"] == "Diagnóstico principal"
    assert made["sex"]["values"] == {"Hombre": "M", "Mujer": "F", "H": "M", "M": "F"}
    assert made["triage_note"] == "Enfermedad actual" and {"FC", "TA", "Temperatura (ºC)"} <= set(made["numbers"])
    assert made["coded"] == [{"column": "Alergias", "system": "alergias", "values": {"No": None, "Sí": "yes"}}]
    visit = list(read_visits(file, columns=made))[25]
    assert visit.age == 25.5 and visit.sex == "F" and visit.time is not None and visit.time.day == 26


def test_a_spreadsheet_export(tmp_path: Path) -> None:
    file = _hard_table(tmp_path / "t.txt", _spreadsheet, "\t", "utf-8-sig")
    made = inspect_file(file).to_map()
    assert made["time"]["format"] == ["%m/%d/%Y %I:%M %p", "", "%d-%b-%y", "excel"] and made["missing"] == ["-", "None"]
    assert made["numbers"]["Pain"]["part"] == 1 and made["age"] == "Pt Age"
    visits = list(read_visits(file, columns=made))
    assert [visit.id for visit in visits[:2]] == ["100000", "100001"] and len(visits) == 200
    assert [visit.age for visit in visits[:5]] == [54, 1.5, 76, pytest.approx(21 / 365.25), None]
    times = [visit.time for visit in visits[:4]]
    assert times == [datetime(2019, 1, 13, 13, 30), datetime(2019, 2, 3, 1, 1), datetime(2019, 1, 13),
                     datetime(2019, 2, 5, 12)]  # fmt: skip
    assert visits[1].md_comments is not None and '"I fell"\nand' in visits[1].md_comments


@pytest.mark.parametrize(
    ("row", "delimiter", "encoding"), [(_german, ";", "latin-1"), (_spreadsheet, "\t", "utf-8-sig")]
)
def test_a_table_that_nobody_prepared_is_inspected_built_fitted_and_tagged(
    tmp_path: Path, row: Callable[[int], dict[str, object]], delimiter: str, encoding: str
) -> None:
    file, run = str(_hard_table(tmp_path / "t.csv", row, delimiter, encoding)), CliRunner()
    out = {name: str(tmp_path / name) for name in ("map.yaml", "cohort", "model", "tags.csv")}
    for arguments in (
        ["inspect", file, "--out", out["map.yaml"]],
        ["build", file, "--map", out["map.yaml"], "--out", out["cohort"]],
        ["fit", out["cohort"], "--out", out["model"]],
        ["tag", out["model"], file, "--out", out["tags.csv"]],
    ):
        done = run.invoke(app, arguments)
        assert done.exit_code == 0, (arguments[0], done.output)
    assert len(Path(out["tags.csv"]).read_text("utf-8").splitlines()) > 200
