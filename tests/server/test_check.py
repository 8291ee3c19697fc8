"""`serve --check`: what works is said to work, and what does not is said to be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sources.fhir.test_visit import visit_resources
from tests.support.serving import save_model
from tests.support.smart_ehr import CLIENT, Ehr, memory, running
from whatelse.server.check import Line, check
from whatelse.server.settings import Settings
from whatelse.store import Store


def lines(folder: Path, **given: Any) -> dict[str, Line]:
    settings = Settings(model=save_model(folder), database=f"sqlite:///{folder / 'd.db'}", **given)
    return {line.what.split(" http")[0]: line for line in check(settings)}


def test_token_sign_in_without_a_token_is_wrong(tmp_path: Path) -> None:
    assert not lines(tmp_path, auth="token")["sign-in"].good
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    store.access.create("a", "viewer", 1)
    store.close()
    assert lines(tmp_path, auth="token")["sign-in"].good


def test_trial_hook_call_is_answered_and_leaves_nothing_in_the_database(tmp_path: Path) -> None:
    found = lines(tmp_path, cds_hooks=True)
    assert found["trial hook call"].good and "answered in" in found["trial hook call"].says
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    try:
        with store.engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM cds_look").scalar() == 0
    finally:
        store.close()


def test_trial_launch_finds_a_client_that_the_ehr_does_not_know(tmp_path: Path) -> None:
    with running(Ehr(memory(visit_resources()))) as ehr:
        given = {"smart_client_id": CLIENT, "fhir_servers": [ehr.issuer]}
        assert lines(tmp_path, **given)["trial launch from"].good
        ehr.unknown_client = True
        found = lines(tmp_path, **given)["trial launch from"]
        assert not found.good and "smart_client_id" in found.says
