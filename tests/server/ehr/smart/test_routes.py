"""SMART launches, step by step and in a real browser, with an authorisation server that checks what it is sent."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from playwright.sync_api import Browser, expect, sync_playwright

from tests.sources.fhir.test_visit import visit_resources
from tests.support import ehr_bench
from tests.support.serving import FALLEN, live, service, wanted
from tests.support.smart_ehr import CLIENT, Ehr, memory, proxy, running
from whatelse.server import Service
from whatelse.server.ehr.smart.oauth import READ, missing_scopes, scopes

Opened = tuple[Ehr, Service, httpx.Client]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """An EHR, a service that it may launch, and a browser's client."""
    with running(Ehr(memory(visit_resources()))) as ehr:
        settings = {"smart_client_id": CLIENT, "fhir_servers": [ehr.issuer], "auth": "token"}
        with service(tmp_path, **settings) as made, live(made) as url:
            ehr.redirect = url + "/smart/callback"
            with httpx.Client(base_url=url, timeout=60) as http:
                yield ehr, made, http


def launch(opened: Opened, **parameters: str) -> httpx.Response:
    """Follow a launch to where it ends."""
    ehr, _, http = opened
    answer = http.get("/smart/launch", params={"iss": ehr.issuer, **parameters})
    return back(opened, answer) if answer.status_code == 303 else answer


def back(opened: Opened, answer: httpx.Response) -> httpx.Response:
    there = httpx.get(answer.headers["location"], follow_redirects=False)
    return opened[2].get(there.headers["location"])


def key_of(answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    found = re.fullmatch(r"/visit/([a-z0-9]+)\?embed=1&smart=1", answer.headers["location"])
    assert found
    return found[1]


def test_an_ehr_launch_opens_the_visit_and_decisions_carry_the_user(opened: Opened) -> None:
    ehr, made, http = opened
    key = key_of(launch(opened, launch="xyz"))
    assert ehr.problems == [] and ehr.asked[0]["launch"] == "xyz"
    view = http.get(f"/api/visits/{key}").json()
    assert view["record"]["id"] == "e1" and view["record"]["triage_note"].startswith("fell")
    said = http.get(f"/smart/visit/{key}").json()
    assert said["user"] == "Practitioner/7" and said["ends"] > time.time() and said["patient"]["born"] == "1946-05-02"
    csrf = http.get("/api/session").json()["csrf"]
    decided = http.post(f"/api/visits/{key}/decisions", json=wanted("fall"), headers={"x-whatelse-csrf": csrf})
    assert decided.status_code == 200
    assert http.post(f"/api/visits/{key}/decisions", json=wanted("uti", version=1)).status_code == 403
    (line,) = made.store.history("e1")
    assert line.actor == "Practitioner/7"
    cookies = "; ".join(http.cookies.keys())
    assert "token" not in cookies and not any(t in str(http.cookies) for t in ehr.tokens)


def test_a_standalone_launch_asks_for_a_patient(opened: Opened) -> None:
    ehr, _, _ = opened
    ehr.encounter, ehr.banner = None, False
    key = key_of(launch(opened))
    assert "launch" not in ehr.asked[0] and "launch/patient" in ehr.asked[0]["scope"].split()
    assert opened[2].get(f"/smart/visit/{key}").json()["patient"] is None, "the EHR shows its own banner"


def test_a_launch_is_for_one_visit_and_no_other(opened: Opened) -> None:
    _, made, http = opened
    key = key_of(launch(opened))
    other = made.worklist.keys[[v.id for v in made.worklist.visits].index(FALLEN.id)]
    for path in (f"/api/visits/{other}", "/api/visits", "/metrics", "/api/decisions/export", f"/smart/visit/{other}"):
        assert http.get(path).status_code in (403, 404), path
    assert http.get(f"/api/visits/{key}").status_code == 200
    with httpx.Client(base_url=http.base_url) as stranger:
        assert stranger.get(f"/api/visits/{key}").status_code == 401
        assert stranger.get(f"/smart/visit/{key}").status_code == 401


def test_sign_out_and_reading_again(opened: Opened) -> None:
    ehr, _, http = opened
    key = key_of(launch(opened))
    csrf = {"x-whatelse-csrf": http.get("/api/session").json()["csrf"], "content-type": "application/json"}
    resources = visit_resources()
    resources[1]["reasonCode"] = [{"text": "changed meanwhile"}]
    ehr.backend = memory(resources)
    assert http.post(f"/smart/visit/{key}", content="{}", headers=csrf).status_code == 200
    assert http.get(f"/api/visits/{key}").json()["record"]["chief_complaint"] == "changed meanwhile"
    assert http.request("DELETE", "/smart/session", headers=csrf).status_code == 204
    assert http.get(f"/api/visits/{key}").status_code == 401
    assert "Signed out" in http.get("/smart/ended").text


def test_access_that_ends_is_refreshed_or_over(opened: Opened) -> None:
    ehr, _, http = opened
    ehr.expires = 1
    key = key_of(launch(opened))
    csrf = {"x-whatelse-csrf": http.get("/api/session").json()["csrf"], "content-type": "application/json"}
    assert http.post(f"/smart/visit/{key}", content="{}", headers=csrf).status_code == 200
    assert ehr.refreshed == 1 and ehr.problems == []
    ehr.refresh = False
    http.cookies.clear()
    key = key_of(launch(opened))
    time.sleep(1.2)
    assert http.get(f"/api/visits/{key}").status_code == 401


def refused(answer: httpx.Response, says: str) -> None:
    assert answer.status_code >= 400 and says in answer.text, answer.text
    assert "secret" not in answer.text and "<b>" not in answer.text and "token-" not in answer.text


def test_a_wrong_issuer_is_never_asked(opened: Opened) -> None:
    _, _, http = opened
    for issuer in ("http://evil.test/fhir", opened[0].issuer + "/../x", "javascript:alert(1)", opened[0].base):
        refused(http.get("/smart/launch", params={"iss": issuer, "launch": "x"}), "not one that this app")


def test_state_is_good_once_in_one_browser_for_some_minutes(opened: Opened) -> None:
    ehr, _, http = opened
    answer = http.get("/smart/launch", params={"iss": ehr.issuer})
    there = httpx.get(answer.headers["location"]).headers["location"]
    with httpx.Client(base_url=http.base_url) as other:
        refused(other.get(there), "another browser")
    refused(http.get(there), "has been used")
    refused(http.get("/smart/callback", params={"state": "forged", "code": "x"}), "not known here")
    refused(http.get("/smart/callback"), "not known here")
    assert ehr.tokens == set()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: setattr(e, "error", "access_denied"), "refused there"),
        (lambda e: setattr(e, "error", "invalid_scope"), "all that this app reads"),
        (lambda e: setattr(e, "error", "<script>"), "did not give access"),
        (lambda e: setattr(e, "patient", None), "which patient"),
        (lambda e: setattr(e, "patient", "../x"), "which patient"),
        (lambda e: setattr(e, "encounter", "nowhere"), "could not be read"),
        (lambda e: setattr(e, "user", "Patient/p1"), "those who treat"),
        (lambda e: setattr(e, "user", "Patient/1/_history/2"), "those who treat"),
        (lambda e: setattr(e, "user", "patient/1"), "those who treat"),
        (lambda e: setattr(e, "user", "Patient/1?x=/y/Practitioner/3"), "those who treat"),
        (lambda e: setattr(e, "user", "https://elsewhere.example.org/Practitioner/3"), "those who treat"),
        (lambda e: setattr(e, "user", ""), "those who treat"),
        (lambda e: (setattr(e, "user", ""), e.spoil.update(profile="Practitioner/3")), "those who treat"),
        (lambda e: setattr(e, "user", "Practitioner/7\n"), "those who treat"),
        (lambda e: setattr(e, "user", "PRACTITIONER/7"), "those who treat"),
        (lambda e: setattr(e, "user", "Practitioner/7#Patient/1"), "those who treat"),
        (lambda e: setattr(e, "user", "RelatedPerson/7"), "those who treat"),
        (lambda e: e.spoil.update(nonce="other"), "could not be verified"),
        (lambda e: e.spoil.update(aud="other"), "could not be verified"),
        (lambda e: e.spoil.update(iss="http://other"), "could not be verified"),
        (lambda e: e.spoil.update(exp=1), "could not be verified"),
        (lambda e: setattr(e, "other_key", True), "could not be verified"),
        (lambda e: setattr(e, "backend", lambda p, q: (500, b"secret words", "text/plain")), "could not be read"),
        (lambda e: setattr(e, "backend", memory(visit_resources()[2:])), "could not be read"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_a_page_that_says_so(opened: Opened, change: Callable[[Ehr], Any], says: str) -> None:
    change(opened[0])
    refused(launch(opened, launch="x"), says)
    assert not [name for name in opened[2].cookies if name == "whatelse_launch"]


def test_addresses_of_the_sign_in_that_are_none(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for odd in ("javascript:alert(1)", "ftp://x", 7, "//evil.test/authorize"):
        found = {"authorization_endpoint": odd, "token_endpoint": "http://x/token", "jwks_uri": "http://x/keys"}
        monkeypatch.setattr("whatelse.server.ehr.smart.oauth.request_json", lambda *_, f=found, **__: f)
        refused(launch(opened, launch="x"), "not safe")


def test_sign_out_takes_the_cookie_back_in_a_frame_too(opened: Opened) -> None:
    http = opened[2]
    given = launch(opened, launch="x").headers.get_list("set-cookie")
    csrf = http.get("/api/session").json()["csrf"]
    taken = http.delete("/smart/session", headers={"x-whatelse-csrf": csrf}).headers["set-cookie"]

    def attributes(cookie: str) -> set[str]:
        return {part for part in cookie.lower().split("; ")[1:] if not part.startswith(("max-age", "expires"))}

    opening = next(cookie for cookie in given if cookie.startswith("whatelse_launch"))
    assert attributes(opening) == attributes(taken) and "samesite=strict" in attributes(taken)


def test_scopes_are_the_least_needed() -> None:
    asked = scopes(True).split()
    assert "launch" in asked and "launch/patient" in scopes(False).split()
    assert all(s.endswith(".rs") for s in asked if s.startswith("patient/")) and "offline_access" not in asked


def test_scopes_as_an_older_ehr_writes_them(opened: Opened) -> None:
    ehr, _, _ = opened
    ehr.capabilities = ["launch-ehr", "permission-patient"]
    key_of(launch(opened, launch="xyz"))
    asked = ehr.asked[0]["scope"].split()
    assert "patient/Observation.read" in asked and not any(s.endswith(".rs") for s in asked) and ehr.problems == []


def test_scopes_that_were_not_granted_end_the_launch_or_are_counted(opened: Opened) -> None:
    ehr, made, _ = opened
    ehr.scope = "openid patient/Patient.rs patient/Encounter.r"
    refused(launch(opened, launch="x"), "Encounter")
    ehr.scope = "openid patient/Patient.rs patient/Encounter.read patient/Condition.c"
    key_of(launch(opened, launch="x"))
    assert 'whatelse_fhir_failures_total{kind="Condition",reason="scope"}' in made.metrics.text({})
    assert missing_scopes("patient/*.rs launch") == [] and missing_scopes(None) == []
    assert missing_scopes("user/Patient.*") == [kind for kind in READ if kind != "Patient"]


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_client_proves_itself_by_a_key(tmp_path: Path, kind: str) -> None:
    made_key: Any = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP384R1())
    file = tmp_path / "client.pem"
    file.write_bytes(made_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with running(Ehr(memory(visit_resources()))) as ehr:
        settings = {"smart_client_id": CLIENT, "fhir_servers": [ehr.issuer], "auth": "token", "smart_client_key": file}
        with service(tmp_path, **settings) as made, live(made) as url, httpx.Client(base_url=url, timeout=60) as http:
            ehr.redirect, ehr.client_keys = url + "/smart/callback", url + "/smart/keys"
            key_of(launch((ehr, made, http), launch="xyz"))
            assert ehr.problems == [] and "d" not in http.get("/smart/keys").json()["keys"][0]


def test_secret_kinds_of_user_and_role_are_as_configured(tmp_path: Path) -> None:
    with running(Ehr(memory(visit_resources()), user="PractitionerRole/9", secret="s:3 cret")) as ehr:
        settings = {"smart_client_id": CLIENT, "fhir_servers": [ehr.issuer], "auth": "token"}
        settings |= {"smart_client_secret": ehr.secret, "smart_users": ["PractitionerRole"], "smart_role": "viewer"}
        with service(tmp_path, **settings) as made, live(made) as url, httpx.Client(base_url=url, timeout=60) as http:
            assert ehr.secret not in repr(made.settings)
            ehr.redirect = url + "/smart/callback"
            key = key_of(launch((ehr, made, http), launch="xyz"))
            assert ehr.problems == []
            assert http.get(f"/api/visits/{key}").status_code == 200
            csrf = {"x-whatelse-csrf": http.get("/api/session").json()["csrf"]}
            decision = http.post(f"/api/visits/{key}/decisions", json=wanted("head injury"), headers=csrf)
            assert decision.status_code == 403 and "viewer" in decision.json()["detail"]
            ehr.user = "Practitioner/9"
            refused(launch((ehr, made, http), launch="xyz"), "those who treat")


# ---- in a browser, before the FHIR server of ../shared/ehr


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("launched", [True, False])
def test_both_launches_in_a_browser(browser: Browser, tmp_path: Path, launched: bool) -> None:
    with ehr_bench.fhir_server(FHIR_STRICT="1") as bench, running(Ehr(proxy(bench))) as ehr:
        ehr.patient, ehr.encounter = "bench-ed-1", "bench-ed-visit-1" if launched else None
        settings = {"smart_client_id": CLIENT, "fhir_servers": [ehr.issuer], "auth": "token"}
        with service(tmp_path, **settings) as made, live(made) as url:
            ehr.redirect = url + "/smart/callback"
            context = browser.new_context()
            page = context.new_page()
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.goto(f"{url}/smart/launch?iss={ehr.issuer}" + ("&launch=abc" if launched else ""))
            page.wait_for_url(f"{url}/visit/*")
            assert parse_qs(urlsplit(page.url).query) == {"embed": ["1"], "smart": ["1"]}
            expect(page.locator("#record")).to_contain_text("central chest pressure")
            expect(page.locator("#smart")).to_contain_text("Edna Testcase")
            expect(page.locator("#smart")).to_contain_text("access until")
            page.locator("#add-name").fill("Fall")
            page.locator("#add-name").press("Enter")
            until = time.monotonic() + 60
            while not made.store.history("bench-ed-visit-1") and time.monotonic() < until:
                time.sleep(0.05)
            (line,) = made.store.history("bench-ed-visit-1")
            assert line.actor == "Practitioner/7" and line.verdict == "confirmed"
            assert ehr.problems == [] and problems == []
            page.locator("#smart button", has_text="Sign out").click()
            expect(page.locator("h1")).to_have_text("Signed out")
            page.goto(f"{url}/smart/launch?iss=http://evil.test/fhir")
            expect(page.locator("main")).to_contain_text("not one that this app")
            context.close()
