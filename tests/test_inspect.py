"""'whatelse inspect': what columns seem to be, a map that reads, and nothing overwritten."""

from __future__ import annotations

import json
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
from whatelse.sources.inspection import look_at


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
    look = look_at(file)
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
    look = look_at(tmp_path / "t.csv")
    made = look.to_map()
    assert made["id"] == {"row_number": True}
    assert made["sex"] == {"column": "gender", "values": {"7": None, "8": None, "9": None}}
    assert "CHECK" in look.to_yaml() and "write F or M for 7, 8, 9" in look.to_yaml()
    assert [line["system"] for line in made["coded"]] == ["ward", "flag"]
    assert len(list(read_visits(tmp_path / "t.csv", columns=yaml.safe_load(look.to_yaml())))) == 60


def test_other_formats(tmp_path: Path) -> None:
    records = [
        {"id": i, "age": 3.0 * i, "triage_note": f"note {i} of a patient with pain in the chest"} for i in range(40)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    pyarrow.parquet.write_table(pa.Table.from_pylist(records), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.parquet"):
        made = look_at(tmp_path / name).to_map()
        assert made == {"id": "id", "age": "age", "triage_note": "triage_note"}
        assert len(list(read_visits(tmp_path / name, columns=made))) == 40


def test_what_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        look_at(tmp_path)
    (tmp_path / "head.csv").write_text("id,age\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no rows"):
        look_at(tmp_path / "head.csv")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="cannot be read as a Parquet"):
        look_at(tmp_path / "bad.parquet")
