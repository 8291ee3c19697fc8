"""Launches in the database: after a restart, in two servers at once, sealed, and gone when they are over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from tests.server.ehr.smart.test_routes import key_of, launch, refused
from tests.sources.fhir.test_visit import visit_resources
from tests.support.serving import live, service
from tests.support.smart_ehr import CLIENT, Ehr, memory, running
from whatelse.server import Settings
from whatelse.server.ehr.smart import launches
from whatelse.server.ehr.smart.launches import prune
from whatelse.server.settings import SettingsError
from whatelse.store import Store, schema
from whatelse.store.engine import writing


@pytest.fixture
def ehr() -> Iterator[Ehr]:
    with running(Ehr(memory(visit_resources()))) as made:
        yield made


def settings(ehr: Ehr) -> dict[str, object]:
    return {"smart_client_id": CLIENT, "fhir_servers": [ehr.issuer], "auth": "token"}


def test_launch_survives_a_restart(ehr: Ehr, tmp_path: Path) -> None:
    with service(tmp_path, **settings(ehr)) as made, live(made) as url, httpx.Client(base_url=url, timeout=60) as http:
        ehr.redirect = url + "/smart/callback"
        key = key_of(launch((ehr, made, http), launch="xyz"))
        csrf, cookies = http.get("/api/session").json()["csrf"], dict(http.cookies)
        begun = http.get("/smart/launch", params={"iss": ehr.issuer})
        state_cookies = dict(http.cookies)
    with service(tmp_path, **settings(ehr)) as made, live(made) as url:
        with httpx.Client(base_url=url, timeout=60, cookies=cookies) as http:
            view = http.get(f"/api/visits/{key}").json()
            assert view["record"]["triage_note"].startswith("fell"), "it was read again from the EHR"
            assert http.get("/api/session").json()["csrf"] == csrf
            assert http.get(f"/smart/visit/{key}").json()["patient"]["born"] == "1946-05-02"
        with httpx.Client(base_url=url, timeout=60, cookies=state_cookies) as http:
            ehr.redirect = url + "/smart/callback"
            there = httpx.get(begun.headers["location"]).headers["location"]
            assert key_of(http.get(there)) == key, "a launch that was at the sign-in goes on"
        assert ehr.problems == ["redirect_uri"], "the test's servers have other ports"


def test_two_servers_know_a_launch_and_read_what_the_other_was_asked_to(ehr: Ehr, tmp_path: Path) -> None:
    given = settings(ehr)
    with (
        service(tmp_path, **given) as one,
        service(tmp_path, **given) as two,
        live(one) as a,
        live(two) as b,
        httpx.Client(base_url=a, timeout=60) as http,
    ):
        ehr.redirect = a + "/smart/callback"
        key = key_of(launch((ehr, one, http), launch="xyz"))
        headers = {"x-whatelse-csrf": http.get("/api/session").json()["csrf"], "content-type": "application/json"}
        other = httpx.Client(base_url=b, timeout=60, cookies=http.cookies)
        assert other.get(f"/api/visits/{key}").status_code == 200
        resources = visit_resources()
        resources[1]["reasonCode"] = [{"text": "changed meanwhile"}]
        ehr.backend = memory(resources)
        assert other.post(f"/smart/visit/{key}", content="{}", headers=headers).status_code == 200
        seen = [w.get(f"/api/visits/{key}").json()["record"]["chief_complaint"] for w in (http, other)]
        assert seen == ["changed meanwhile"] * 2
        assert http.request("DELETE", "/smart/session", headers=headers).status_code == 204
        assert other.get(f"/api/visits/{key}").status_code == 401
        other.close()


def test_database_holds_no_token_person_or_patient_and_forgets_what_is_over(ehr: Ehr, tmp_path: Path) -> None:
    with service(tmp_path, **settings(ehr)) as made, live(made) as url, httpx.Client(base_url=url, timeout=60) as http:
        ehr.redirect, ehr.patient = url + "/smart/callback", "p1"
        key = key_of(launch((ehr, made, http), launch="xyz"))
        with made.store.engine.connect() as connection:
            rows = connection.execute(sa.select(schema.launch)).all()
        written = str(rows) + (tmp_path / "decisions.db").read_bytes().decode("latin-1")
        secrets = [*ehr.tokens, "refresh-me", http.cookies["whatelse_launch"], "1946-05-02", '"p1"']
        assert len(rows) == 2 and not [text for text in secrets if text in written]
        assert prune(made.store.engine) == 0
        with writing(made.store.engine) as connection:
            over = datetime.now(UTC) - timedelta(seconds=1)
            connection.execute(schema.launch.update().values(until=over))
        assert http.get(f"/api/visits/{key}").status_code == 401
        assert prune(made.store.engine) == 2


def test_visit_that_cannot_be_read_again_after_a_restart_is_said(ehr: Ehr, tmp_path: Path) -> None:
    with service(tmp_path, **settings(ehr)) as made, live(made) as url, httpx.Client(base_url=url, timeout=60) as http:
        ehr.redirect = url + "/smart/callback"
        key, cookies = key_of(launch((ehr, made, http))), dict(http.cookies)
    ehr.backend = lambda path, query: (500, b"secret words", "text/plain")
    with (
        service(tmp_path, **settings(ehr)) as made,
        live(made) as url,
        httpx.Client(timeout=60, cookies=cookies) as http,
    ):
        refused(http.get(f"{url}/api/visits/{key}"), "could not be read from the EHR")


def test_launches_at_the_sign_in_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    monkeypatch.setattr(launches, "MOST", 3)
    made, none = launches.Launches(store.engine), launches.Endpoints("", "", "", "")
    pending = launches.Pending("i", none, "v", "n", "r")
    states = [made.begin(pending) for _ in range(3)]
    with pytest.raises(launches.LaunchError, match="Too many"):
        made.begin(pending)
    assert made.come_back(*states[0]) == pending
    with writing(store.engine) as connection:
        connection.execute(schema.launch.update().values(until=datetime.fromtimestamp(time.time() - 1, UTC)))
    with pytest.raises(launches.LaunchError, match="not known"):
        made.come_back(*states[1])
    made.begin(pending)
    store.close()


def test_several_workers_may_launch_but_not_answer_hooks(tmp_path: Path) -> None:
    given = {"model": tmp_path, "database": "postgresql://x/y", "workers": 2, "fhir_servers": ["http://127.0.0.1/f"]}
    Settings(**given, smart_client_id="x").check()
    with pytest.raises(SettingsError, match="cds_hooks needs workers 1"):
        Settings(**given, cds_hooks=True).check()
