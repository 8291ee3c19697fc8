"""The workbench in real Chromium, as a curator uses it; and what its routes let through."""

from __future__ import annotations

import csv
import errno
import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.support import axe
from tests.support.bench_department import CONDITIONS, new_bench, visits_file
from tests.support.serving import SCRIPT, client, live, wait_until
from whatelse.errors import InputError
from whatelse.server import Service, Settings
from whatelse.server.security import connections
from whatelse.server.service import load_model, without_folders
from whatelse.server.settings import SettingsError
from whatelse.sources import read_visits
from whatelse.store import Store, audit
from whatelse.tagger import Tagger
from whatelse.workbench import label_queue
from whatelse.workbench.workbench import Workbench

pytestmark = pytest.mark.slow  # a browser

API = "/api/workbench"
expect.set_options(timeout=60_000)


@contextmanager
def workbench(folder: Path, **settings: Any) -> Iterator[Service]:
    """A service with a workbench of its own."""
    bench = new_bench(folder)
    given = {"model": bench / "model", "database": f"sqlite:///{folder / 'd.db'}", "rate_limit": 0, **settings}
    checked = Settings(workbench=bench, **given)
    tagger = load_model(bench / "model")
    opened = Service(checked, Store(checked.database), tagger, list(read_visits([visits_file()]))[:50])
    try:
        yield opened
    finally:
        opened.close()


def folder_of(opened: Service) -> Path:
    assert opened.settings.workbench is not None
    return opened.settings.workbench


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with workbench(tmp_path_factory.mktemp("workbench")) as made:
        yield made


@pytest.fixture(scope="module")
def url(opened: Service) -> Iterator[str]:
    with live(opened) as made:
        hunted(made)
        yield made


def hunted(url: str) -> None:
    """Wait until suggestions are there."""
    for _ in range(600):
        state = httpx.get(f"{url}{API}/state").json()
        if not state["job"]["running"]:
            assert state["hunted"], state
            return
        time.sleep(0.1)
    raise AssertionError(state)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    yield from _page(browser)


def _page(browser: Browser, **options: Any) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(60_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" and "422" not in m.text else None)
    yield page
    context.close()
    assert not problems


def ready(page: Page, where: str) -> None:
    page.goto(where)
    page.wait_for_selector("html.loaded", state="attached")


def post(url: str, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{url}{API}{path}", json=body, timeout=60)


def anchors(opened: Service, condition: str) -> list[str]:
    entries = yaml.safe_load((folder_of(opened) / "conditions.yaml").read_text("utf-8"))["conditions"]
    return list(next(e for e in entries if e["name"] == condition)["anchors"]["notes"])


# ---- conditions


def one_blank(text: str) -> str:
    """YAML with one blank before each comment: an edit may move a comment on its line."""
    return re.sub(" +#", " #", text)


def test_conditions_with_coverage_precision_and_sensitivity(page: Page, url: str) -> None:
    ready(page, url)
    page.get_by_role("link", name="Workbench").click()
    page.wait_for_selector("#rows tr")
    expect(page.locator("#rows tr")).to_have_count(4)
    expect(page.locator("#summary")).to_contain_text("4 conditions, 1,500 visits")
    row = page.locator("#rows tr", has_text="Urinary tract infection")
    told = httpx.get(f"{url}{API}/conditions").json()["rows"]
    uti = next(r for r in told if r["name"] == "uti")
    assert [r["gain"] for r in told] == sorted((r["gain"] for r in told), reverse=True)
    expect(row.locator("td").nth(1)).to_contain_text(str(uti["fires"]))
    expect(row.locator("td").nth(2)).to_contain_text(f"{round(100 * uti['precision'][0])}%")
    expect(row.locator("td").nth(3)).to_contain_text("–")  # its interval
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('#rows') !== null")
    page.keyboard.press("Enter")
    page.wait_for_url("**/workbench/condition?name=*")


# ---- phrases


def test_suggestions_in_context_judged_accepted_refused_and_undone_by_keyboard(
    page: Page, opened: Service, url: str
) -> None:
    ready(page, f"{url}/workbench/condition?name=uti")
    names = page.locator("#suggestions .suggestion").evaluate_all("items => items.map(item => item.dataset.phrase)")
    assert 3 <= len(names) <= 10 and all(len(name) > 1 for name in names)
    expect(page.locator("#shares")).to_contain_text("By the knowledge base (urinary tract infection)")
    assert page.locator("#lifts tr").count() >= 8
    expect(page.locator(".suggestion[aria-current]")).to_have_attribute("data-phrase", names[0])
    excerpts = page.locator("#excerpts li")
    shown = excerpts.count()
    assert 1 <= shown <= 10
    assert excerpts.first.locator("mark").inner_text().lower().split() == names[0].split()
    page.keyboard.press("y")
    expect(excerpts.first).to_contain_text("has it")
    page.keyboard.press("n")
    expect(page.locator("#precision")).to_contain_text("1 of 2 judged have it")
    page.keyboard.press("u")
    expect(page.locator("#precision")).to_contain_text("1 of 1 judged have it")
    with (folder_of(opened) / "judged.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert (line["condition"], line["phrase"], line["label"]) == ("uti", names[0], "1")
    page.keyboard.press("a")
    expect(page.locator("#said")).to_contain_text("accepted")
    expect(page.locator("#anchors")).to_contain_text(names[0])
    assert anchors(opened, "uti") == ["uti", names[0]]
    expect(page.locator(".suggestion[aria-current]")).to_have_attribute("data-phrase", names[1])
    expect(page.locator("#bench-status")).to_contain_text("changed since the records were looked through")
    page.keyboard.press("r")
    expect(page.locator("#said")).to_contain_text("refused")
    assert yaml.safe_load((folder_of(opened) / "refused.yaml").read_text("utf-8")) == {"uti": [names[1]]}
    page.keyboard.press("u")
    expect(page.locator("#said")).to_contain_text("Undone")
    page.keyboard.press("u")
    expect(page.locator("#anchors li")).to_have_count(1)
    assert one_blank((folder_of(opened) / "conditions.yaml").read_text("utf-8")) == one_blank(CONDITIONS)
    assert names[0].replace(" ", "") not in page.url  # what stands in notes is in no address


def test_a_phrase_of_ones_own_edited_and_removed(page: Page, opened: Service, url: str) -> None:
    ready(page, f"{url}/workbench/condition?name=headache")
    page.keyboard.press("/")
    page.keyboard.type("fell")
    page.keyboard.press("Enter")
    expect(page.locator("#worth")).to_contain_text("It is an anchor of fall now")
    button = page.get_by_role("button", name="Take it from fall")
    button.click()
    expect(page.locator("#anchors li")).to_have_count(2)
    assert anchors(opened, "fall") == ["fall"] and anchors(opened, "headache") == ["headache", "fell"]
    page.get_by_role("button", name="Edit fell").click()
    page.keyboard.type("fall")
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("anchor of condition 'fall'")  # a conflict is refused
    assert anchors(opened, "headache") == ["headache", "fell"]
    ready(page, f"{url}/workbench/condition?name=headache")
    page.get_by_role("button", name="Edit fell").click()
    page.keyboard.type("head hurts")
    page.keyboard.press("Enter")
    expect(page.locator("#anchors")).to_contain_text("head hurts")
    page.get_by_role("button", name="Remove head hurts").click()
    expect(page.locator("#anchors li")).to_have_count(1)
    assert post(url, "/edit", {"action": "accept", "condition": "fall", "phrase": "fell"}).status_code == 200
    assert one_blank((folder_of(opened) / "conditions.yaml").read_text("utf-8")) == one_blank(CONDITIONS)


# ---- labels


def test_the_label_queue_one_visit_after_another_with_undo(page: Page, opened: Service, url: str) -> None:
    def late(route: Route) -> None:  # the work has ended before the page hears that it has begun
        answer = route.fetch()
        wait_until(lambda: not httpx.get(f"{url}{API}/state").json()["job"]["running"])
        route.fulfill(response=answer)

    page.route("**/labels/more", late)
    ready(page, f"{url}/workbench/labels")
    page.locator("#more").click()
    expect(page.locator("#labelling")).to_be_visible()
    expect(page.locator("#summary")).to_contain_text("0 of 200")
    expect(page.locator("#checks button")).to_have_count(4)
    first = page.locator("#record .record-name + p").inner_text()
    name = page.locator("#checks button").first.get_attribute("data-condition")
    page.keyboard.press("y")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("?")
    page.keyboard.press("Enter")
    expect(page.locator("#summary")).to_contain_text("1 of 200")
    expect(page.locator("#record .record-name + p")).not_to_have_text(first)
    with (folder_of(opened) / "labels.csv").open(encoding="utf-8-sig", newline="") as file:
        row = next(csv.DictReader(file))
    assert first.startswith(row["visit"]) and row[str(name)] == "1"
    assert sorted(row[c] for c in ("uti", "fall", "headache", "abdominal pain")) == ["", "0", "0", "1"]
    second = page.locator("#record .record-name + p").inner_text()
    page.keyboard.press("s")
    expect(page.locator("#record .record-name + p")).not_to_have_text(second)
    page.keyboard.press("u")
    expect(page.locator("#record .record-name + p")).to_have_text(first)
    expect(page.locator("#summary")).to_contain_text("0 of 200")
    page.keyboard.press("u")
    expect(page.locator("#said")).to_contain_text("nothing left to undo")
    expect(page.locator("#checks")).not_to_contain_text("%")  # labels must not lean on the model
    assert "S21" not in page.url


# ---- learning


def test_learn_see_both_side_by_side_drop_and_promote(browser: Browser, tmp_path: Path) -> None:
    with workbench(tmp_path) as opened, live(opened) as url:
        hunted(url)
        assert post(url, "/edit", {"action": "accept", "condition": "uti", "phrase": "dysuria"}).status_code == 200
        before = Tagger.load(opened.settings.model).digest_
        for page in _page(browser):
            ready(page, f"{url}/workbench/learn")
            expect(page.locator("#candidate")).to_be_hidden()
            page.locator("#start").click()
            expect(page.locator("#bench-status progress")).to_be_visible()
            expect(page.locator("#start")).to_be_disabled()
            page.wait_for_selector("#verdict h2", timeout=120_000)
            expect(page.locator("#changes")).to_contain_text("+ dysuria")
            expect(page.locator("#measures")).to_contain_text("held-out anchor: reciprocal rank")
            expect(page.locator("#measures")).to_contain_text("log loss")
            assert page.locator("#measures td[data-label=Interval]").first.inner_text().count("to") == 1
            kept = shutil.copytree(folder_of(opened), tmp_path / "kept")  # learning twice would take twice as long
            page.locator("#drop").click()
            expect(page.locator("#candidate")).to_be_hidden()
            assert opened.tagger.digest_ == before
            shutil.copytree(kept, folder_of(opened), dirs_exist_ok=True)
            ready(page, f"{url}/workbench/learn")
            page.once("dialog", lambda dialog: dialog.accept())
            page.locator("#promote").click()
            expect(page.locator("#summary")).to_contain_text("serves now")
        assert opened.tagger.digest_ == Tagger.load(opened.settings.model).digest_ != before
        assert "dysuria" not in opened.tagger.vocabulary_.index


def test_a_condition_from_nothing(browser: Browser, tmp_path: Path) -> None:
    with workbench(tmp_path) as opened, live(opened) as url:
        for page in _page(browser):
            ready(page, f"{url}/workbench")
            page.keyboard.press("n")
            page.keyboard.type("back pain")
            page.keyboard.press("Tab")
            page.keyboard.type("back pain")
            page.keyboard.press("Enter")
            expect(page.locator("#rows tr")).to_have_count(5)
            page.wait_for_selector("#rows tr:has-text('Back pain') td:nth-child(3) .number", timeout=60_000)
            page.locator("#rows a", has_text="Back pain").click()
            page.wait_for_selector("#suggestions .suggestion, #none:visible")
            expect(page.locator("#anchors")).to_contain_text("back pain")
            page.go_back()
            page.wait_for_selector("#rows tr")
            page.locator("#new-name").fill("back pain")
            page.locator("#new-phrase").fill("lumbago")
            page.keyboard.press("Enter")
            expect(page.locator("#problem")).to_contain_text("is there already")
        text = (folder_of(opened) / "conditions.yaml").read_text("utf-8")
        assert text.startswith(CONDITIONS.rstrip()) and "name: back pain" in text


# ---- everywhere


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_narrow_screens(browser: Browser, url: str, scheme: Any) -> None:
    for page in _page(browser, color_scheme=scheme):
        page.set_viewport_size({"width": 380, "height": 800})
        for path in ("", "/condition?name=uti", "/labels", "/learn"):
            ready(page, f"{url}/workbench{path}")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= 380, path
            assert axe.violations(page) == [], path
            assert page.locator("h1").count() == 1 and page.locator("[role=status], [aria-live]").count() >= 1
            unnamed = page.locator("button, input, a, [role=region]").evaluate_all(
                "all => all.filter(e => e.checkVisibility() && !(e.textContent.trim() || e.ariaLabel || "
                "e.labels?.length)).map(e => e.outerHTML)"
            )
            assert unnamed == [], path
        ready(page, f"{url}/workbench/condition?name=uti")
        box = page.locator("#excerpts .yes").first.bounding_box()
        assert box is not None and box["height"] >= 44 and box["x"] + box["width"] <= 380


def test_script_in_a_record_or_a_phrase_stays_text(browser: Browser, tmp_path: Path) -> None:
    with workbench(tmp_path) as opened, live(opened) as url:
        hunted(url)
        assert post(url, "/conditions", {"name": SCRIPT[:60], "phrase": "fall down"}).status_code == 200
        for page in _page(browser):
            ready(page, f"{url}/workbench")
            expect(page.locator("#rows")).to_contain_text("<script>")
            ready(page, f"{url}/workbench/condition?name=fall")
            page.locator("#own-phrase").fill(SCRIPT)
            page.keyboard.press("Enter")
            expect(page.locator("#worth")).to_contain_text("<script>")
            assert page.evaluate("window.hacked") is None


# ---- who may, and what is left behind


def test_only_curators_come_in_with_their_csrf_token_and_leave_a_trace(tmp_path: Path) -> None:
    with workbench(tmp_path, auth="token") as opened, live(opened) as url:
        roles = ("viewer", "clinician", "curator", "admin")
        tokens = {role: opened.store.access.create(role, role, 1) for role in roles}
        tried = {
            role: httpx.get(f"{url}{API}/conditions", headers={"Authorization": f"Bearer {token}"}).status_code
            for role, token in tokens.items()
        }
        assert tried == {"viewer": 403, "clinician": 403, "curator": 200, "admin": 200}
        assert httpx.get(f"{url}{API}/conditions").status_code == 401
        with httpx.Client(base_url=url) as web:
            session = web.post("/api/session", json={"token": tokens["curator"]}).json()
            assert session["workbench"] and session["role"] == "curator"
            body = {"condition": "uti", "phrase": "dysuria"}
            assert web.post(f"{API}/look", json=body).status_code == 403  # without the page's own token
            web.headers["X-Whatelse-CSRF"] = session["csrf"]
            shown = web.post(f"{API}/look", json=body).json()["excerpts"]
            assert web.post(f"{API}/edit", json={**body, "action": "accept"}).status_code == 200
            assert web.get("/workbench").headers["content-security-policy"].startswith("default-src 'none'")
            key = shown[0]["visit"]
            assert web.post(f"{API}/judge", json={**body, "visit": key, "answer": "yes"}).status_code == 200
            ids = {v.id for v in read_visits([visits_file()])}
            assert not ids & {e["visit"] for e in shown}  # keys, not ids

        def lines_by_event() -> dict[str, Any]:
            return {line["event"]: line for line in map(json.loads, audit.lines(opened.store.engine))}

        wait_until(lambda: "phrase judged" in lines_by_event())  # the audit is written beside the answers
        lines = lines_by_event()
        assert lines["anchors edited"]["actor"] == "curator"
        assert lines["excerpts read"]["detail"]["visits"] == [e["visit"] for e in shown]
        assert lines["phrase judged"]["detail"]["visits"] == [key]
        assert "dysuria" not in json.dumps(lines) and lines["refused"]["detail"]["status"] == 403


def test_answers_that_nobody_reads_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, leave = list[str](), connections.ConnectionLimiter.leave

    def leaving(limiter: connections.ConnectionLimiter, connection: Any, group: str) -> None:
        leave(limiter, connection, group)
        left.append(group)

    monkeypatch.setattr(connections.ConnectionLimiter, "leave", leaving)
    large = label_queue.Waiting(("a",) * 250_000, 0)  # 7 MB of keys: more than a kernel takes
    monkeypatch.setattr(label_queue.Queue, "waiting", lambda _: large)
    with workbench(tmp_path, client_seconds=1.0) as opened, live(opened) as url:
        raws = [socket.socket() for _ in range(6)]
        for raw in raws:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
            raw.sendall(f"GET {API}/labels HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert raw.recv(12) == b"HTTP/1.1 200"  # and no more of it
        with httpx.Client(base_url=url, timeout=60) as web:
            assert web.get(f"{API}/state").status_code == 200  # the workbench has one thread
            assert web.get(f"/api/visits/{opened.worklist.keys[0]}").status_code == 200
            assert opened.store.engine.pool.checkedout() < 6  # type: ignore[attr-defined]  # the server's own, if any
            wait_until(lambda: len(left) == 6)  # dropped, all of them; the client that asks stays
            assert web.get(f"{API}/state").status_code == 200
        for raw in raws:
            raw.close()


def test_what_cannot_be_used_is_refused_and_nothing_is_written(opened: Service, url: str) -> None:
    file = folder_of(opened) / "conditions.yaml"
    before = file.read_bytes()
    tries = [
        ("/edit", {"action": "accept", "condition": "flu", "phrase": "cough"}, 404),
        ("/edit", {"action": "accept", "condition": "uti", "phrase": "fell"}, 409),
        ("/edit", {"action": "accept", "condition": "uti", "phrase": "uti"}, 422),
        ("/edit", {"action": "accept", "condition": "uti", "phrase": "..."}, 422),
        ("/edit", {"action": "accept", "condition": "uti", "phrase": "x", "key": "nonsense"}, 422),
        ("/edit", {"action": "change", "condition": "uti", "phrase": "uti"}, 422),
        ("/edit", {"action": "remove", "condition": "uti", "phrase": "nothing such"}, 422),
        ("/edit", {"action": "accept", "condition": "uti", "phrase": "y" * 300}, 422),
        ("/judge", {"condition": "uti", "phrase": "dysuria", "visit": "a" * 26, "answer": "yes"}, 404),
        ("/look", {"condition": "flu", "phrase": "dysuria"}, 422),
        ("/conditions", {"name": "fall", "phrase": "tumble"}, 422),
        ("/promote", {}, 422),
        (f"/labels/{'a' * 26}", {"yes": []}, 404),
    ]
    for path, body, status in tries:
        answer = post(url, path, body)
        assert answer.status_code == status, (path, body, answer.text)
        assert answer.json()["detail"]
    assert file.read_bytes() == before


def test_every_route_is_documented(url: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "workbench.md").read_text(encoding="utf-8")
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    routes = [(method, path) for path, methods in paths.items() if path.startswith(API) for method in methods]
    assert len(routes) == 18
    for method, path in routes:
        assert f"`{method.upper()} {path}`" in text, f"docs/workbench.md does not list {method.upper()} {path}"


def test_without_a_folder_there_is_no_workbench(tmp_path: Path) -> None:
    from tests.support.serving import service

    with service(tmp_path) as plain, live(plain) as url:
        assert httpx.get(f"{url}/workbench").status_code == 404
        assert httpx.get(f"{url}{API}/state").status_code == 404
        assert httpx.get(f"{url}/api/session").json()["workbench"] is False
    settings = Settings(model=Path("m"), workbench=tmp_path, workers=2, database="postgresql://x")
    with pytest.raises(SettingsError, match="workers 1"):
        settings.check()


def test_errors_name_no_folder_and_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_folders("/srv/secret/place/a.yaml: bad; see https://x.org/a/b and /tmp/q/c.csv") == (
        "a.yaml: bad; see https://x.org/a/b and c.csv"
    )
    with workbench(tmp_path) as opened, client(opened) as http:
        for error, status, says in (
            (InputError(f"{tmp_path}/cohort: cannot be used"), 422, "cohort: cannot be used"),
            (OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x")), 503, "(No space left on device)"),
        ):

            def fail(*_: object, error: Exception = error) -> None:
                raise error

            monkeypatch.setattr(Workbench, "conditions", fail)
            answer = http.get("/api/workbench/conditions")
            assert answer.status_code == status and says in answer.json()["detail"], answer.text
            assert str(tmp_path) not in answer.text and "Errno" not in answer.text


def test_an_edit_that_cannot_be_written_is_to_be_tried_again_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with workbench(tmp_path) as opened, client(opened) as http:
        before = (folder_of(opened) / "conditions.yaml").read_bytes()
        monkeypatch.setattr("whatelse.io.files.os.fsync", full)
        edit = {"condition": "uti", "phrase": "dysuria", "action": "accept"}
        answer = http.post(f"{API}/edit", json=edit)
        monkeypatch.undo()
        assert answer.status_code == 503 and answer.headers["retry-after"] == "60", answer.text
        detail = answer.json()["detail"]
        assert detail.startswith("conditions.yaml: cannot be written (No space left on device)"), detail
        assert (folder_of(opened) / "conditions.yaml").read_bytes() == before


def test_a_job_that_fails_names_no_folder_and_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my secret place"
    folder.mkdir()
    failing: list[Exception] = []

    def learn(bench: Workbench) -> None:
        def work(_: object) -> None:
            raise failing[-1]

        bench.start("learn", work)

    monkeypatch.setattr(Workbench, "start_learning", learn)
    with workbench(folder) as opened, client(opened) as http:
        root = folder_of(opened)
        wait_until(lambda: not http.get(f"{API}/state").json()["job"]["running"])
        for error, says in (
            (InputError("cannot be used", file=root / "labels.csv"), "labels.csv: cannot be used"),
            (OSError(errno.ENOSPC, "No space left on device", str(root / "x")), "(No space left on device)"),
            (ValueError("a record"), "it failed (ValueError)"),
        ):
            failing.append(error)
            assert http.post(f"{API}/learn", json={}).status_code == 200
            wait_until(lambda: not http.get(f"{API}/state").json()["job"]["running"])
            told = http.get(f"{API}/state").json()["job"]["problem"]
            assert says in told and "secret" not in told and "Errno" not in told and "a record" not in told
