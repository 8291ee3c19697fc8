"""The commands for those who connect it to an EHR: check, cards, omop."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.sources.fhir.test_visit import visit_resources
from tests.sources.test_omop import write_csv
from tests.support.hooking import VIEW, call
from tests.support.serving import client, save_model, service
from tests.support.smart_ehr import CLIENT, Ehr, memory, running
from whatelse.cli import app
from whatelse.cli.cards import summary
from whatelse.server.ehr.cds.log import Card, Look
from whatelse.sources.fhir import client as fhir_client

RUN = CliRunner()


def test_check_says_of_each_connection_whether_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save_model(tmp_path)
    (tmp_path / "keys.json").write_text('{"keys": []}')
    with running(Ehr(memory(visit_resources()))) as ehr:
        config = {
            "model": str(model), "database": f"sqlite:///{tmp_path / 'x.db'}", "cds_hooks": True,
            "cds_issuers": {"https://ehr.example.org": str(tmp_path / "keys.json")}, "smart_client_id": CLIENT,
            "fhir_servers": [ehr.issuer, "http://127.0.0.1:9/fhir"],
        }  # fmt: skip
        (tmp_path / "serve.yaml").write_text(json.dumps(config))
        monkeypatch.setattr(fhir_client, "TRIES", 1)
        done = RUN.invoke(app, ["serve", "--check", "--config", str(tmp_path / "serve.yaml")])
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert sum(line.startswith("ok ") for line in lines) >= 5, done.stdout
    wrong = [line for line in lines if line.startswith("WRONG")]
    assert any("keys of https://ehr.example.org" in line for line in wrong)
    assert any("http://127.0.0.1:9/fhir" in line and "cannot be reached" in line for line in wrong)
    assert any(f"trial launch from {ehr.issuer}: the sign-in takes" in line for line in lines)


def test_a_report_of_what_would_have_been_shown_and_the_switch(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'decisions.db'}"
    with service(tmp_path, cds_hooks=True, cds_mode="silent", cds_threshold=0.15) as opened, client(opened) as http:
        assert http.post(VIEW, json=call()).json() == {"cards": []}
        assert http.post(VIEW, json=call()).json() == {"cards": []}
    found = json.loads(RUN.invoke(app, ["cards", "report", "--json", "--database", database]).stdout)
    assert (found["visits"], found["looks"]) == (1, 2)
    assert found["silent"]["conditions"] == {"fall": 1} and found["shown"]["cards"] == 0
    assert found["thresholds"]["0.1"] >= 100.0 >= found["thresholds"]["0.2"]  # at 0.15 there is one card
    text = RUN.invoke(app, ["cards", "report", "--database", database]).stdout
    assert "100.0 per 100 visits" in text and "fell" not in text
    assert RUN.invoke(app, ["cards", "mode", "off", "--database", database]).exit_code == 0
    with service(tmp_path, cds_hooks=True, cds_threshold=0.15) as opened, client(opened) as http:
        assert http.post(VIEW, json=call()).json() == {"cards": []}
        assert RUN.invoke(app, ["cards", "mode", "reset", "--database", database]).exit_code == 0
        assert _soon(http)


def test_cards_shown_and_cards_of_a_threshold_are_counted_alike() -> None:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    looks, cards = [], []
    for n in range(5):  # a tag that a later look no longer has was shown all the same
        for top in ([["fall", 0.8]], [["uti", 0.7]], [["uti", 0.6]]):
            looks.append(Look(at, f"v{n}", "patient-view", "", True, 1, top, []))
            card = Card(f"{n}{top}", f"v{n}", top[0][0], "", top[0][1], 1, 0.5, "", "", "patient-view", "", True, at)
            cards.append(card)
    found = summary(looks, cards)
    assert found["shown"]["per_100"] == found["thresholds"]["0.5"] == 200.0


def test_silent_mode_is_compared_with_later_diagnoses(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'decisions.db'}"
    with service(tmp_path, cds_hooks=True, cds_mode="silent", cds_threshold=0.15) as opened, client(opened) as http:
        assert http.post(VIEW, json=call()).json() == {"cards": []}
    resources = visit_resources()
    resources.append({
        "resourceType": "Condition", "id": "dx", "subject": {"reference": "Patient/p1"},
        "encounter": {"reference": "Encounter/e1"},
        "category": [{"coding": [{"code": "encounter-diagnosis"}]}],
        "code": {"coding": [{"system": "http://hl7.org/fhir/sid/icd-10-cm", "code": "W19.XXXA"}]},
    })  # fmt: skip
    bundle = tmp_path / "discharged.json"
    bundle.write_text(json.dumps({"resourceType": "Bundle", "entry": [{"resource": r} for r in resources]}))
    page = tmp_path / "report.html"
    given = ["--source", "fhir", "--out", str(page), "--database", database, "--threshold", "0.15"]
    done = RUN.invoke(app, ["cards", "report", str(save_model(tmp_path)), str(bundle), *given])
    assert done.exit_code == 0, done.output
    assert "1 visits with a look and coded diagnoses" in done.stdout
    fall = next(line for line in done.stdout.splitlines() if line.startswith("fall"))
    assert fall.count("1/1") == 2, "the card was right, and the diagnosis had a card"
    assert "Silent mode" in page.read_text() and "fell" not in page.read_text()


def _soon(http: httpx.Client) -> bool:
    import time

    until = time.monotonic() + 60
    while time.monotonic() < until:
        if http.post(VIEW, json=call()).json()["cards"]:
            return True
        time.sleep(0.2)
    return False


def test_omop_cohorts_from_a_model(tmp_path: Path) -> None:
    folder = write_csv(tmp_path / "cdm")
    given = [str(save_model(tmp_path)), str(folder), "--omop", str(tmp_path / "results"), "--threshold", "0.15"]
    for _ in range(2):
        done = RUN.invoke(app, ["tag", *given])
        assert done.exit_code == 0, done.output
    rows = (tmp_path / "results" / "cohort.csv").read_text().splitlines()
    assert rows[0] == "cohort_definition_id,subject_id,cohort_start_date,cohort_end_date" and len(rows) == 2
    assert rows[1].split(",")[1:] == ["7", "2026-05-01", "2026-05-01"]
    assert len((tmp_path / "results" / "cohort_definition.csv").read_text().splitlines()) == 24


def test_build_takes_fhir_and_omop(tmp_path: Path) -> None:
    bundle = {"resourceType": "Bundle", "entry": [{"resource": r} for r in visit_resources()]}
    (tmp_path / "v.json").write_text(json.dumps(bundle))
    done = RUN.invoke(app, ["build", "--source", "fhir", str(tmp_path / "v.json"), "--out", str(tmp_path / "cohort")])
    assert done.exit_code == 0, done.output
    folder = write_csv(tmp_path / "cdm")
    done = RUN.invoke(
        app, ["build", "--source", "omop", str(folder), "--option", "cdm_schema=cdm", "--out", str(tmp_path / "other")]
    )
    assert done.exit_code == 0, done.output
    done = RUN.invoke(app, ["build", "--source", "omop", str(folder), "--option", "since=2026"])
    assert done.exit_code == 2 and "since is for the source fhir" in done.output


def test_what_is_missing_is_said_once(tmp_path: Path) -> None:
    folder = write_csv(tmp_path / "cdm")
    (folder / "NOTE.csv").unlink()
    command = [
        Path(sys.executable).with_name("whatelse"),
        "build",
        "--source",
        "omop",
        str(folder),
        "--out",
        str(tmp_path / "c"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr.count("notes are unknown") == 1, done.stderr
