"""The page in real Chromium, as a clinician uses it, with the shipped model."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.support import axe
from tests.support.serving import FALLEN, HOSTILE, live, service, wanted
from whatelse.server import Service, answers
from whatelse.simulate import simulate
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Code, Visit

pytestmark = pytest.mark.slow  # a browser

expect.set_options(timeout=60_000)
SEPTIC = Visit(
    "septic",
    age=72.0,
    sex="F",
    chief_complaint="fever, cough",
    triage_note="72F confused since this morning, productive cough x3 days, chills. Denies chest pain, has no rash. "
    "T 39.4 HR 124 BP 84/50 RR 28 O2 89% RA. PMH: COPD. hx of stroke, mother had cancer",
    md_comments="ill appearing, crackles R base. possible uti." + 60 * " seen and discussed.",
    medication_history=tuple(Code("name", drug, drug) for drug in ("lisinopril", "tiotropium", "warfarin")),
)
INFANT = Visit(
    "infant",
    age=0.15,
    sex="F",
    chief_complaint="fever",
    triage_note="fever since last night, fussy, poor feeding, fewer wet diapers. T 38.9 HR 182 RR 48. no vomiting",
    md_comments="",
)
BELLY = Visit(
    "belly",
    age=24.0,
    sex="F",
    chief_complaint="abd pain",
    triage_note="RLQ pain since yesterday, nausea, vomited x2, no appetite. denies dysuria. T 38.1 HR 104 BP 118/70",
    md_comments="ttp rlq with guarding, wbc 15.2",
)
PLEURITIC = Visit(
    "pleuritic",
    age=34.0,
    sex="F",
    chief_complaint="chest pain",
    triage_note="pleuritic chest pain x1 day, takes birth control. HR 104 BP 122/70 O2 97%",
    md_comments="",
)
REFILL = Visit("refill", age=30.0, sex="M", chief_complaint="med refill", triage_note="here for refill", md_comments="")
SAME = {name: getattr(BELLY, name) for name in ("age", "sex", "chief_complaint", "triage_note")}
OTHERS = tuple(Visit(f"belly-{k:02d}", **SAME) for k in range(60))


@cache
def shipped() -> Tagger:
    return Tagger.load("emergency")


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
    visits = [SEPTIC, FALLEN, INFANT, BELLY, PLEURITIC, REFILL, HOSTILE, *OTHERS]
    folder = tmp_path_factory.mktemp("page")
    with service(folder, (shipped(), visits), frame_ancestors=["http://127.0.0.1:*"]) as made:
        yield made


@pytest.fixture(scope="module")
def url(opened: Service) -> Iterator[str]:
    with live(opened) as made:
        yield made


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong unnoticed."""
    yield from _page(browser)


def _page(browser: Browser, **options: Any) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(60_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" and "409" not in m.text else None)
    yield page
    context.close()
    assert not problems


def address(opened: Service, url: str, visit: Visit) -> str:
    return f"{url}/visit/{opened.worklist.keys[opened.worklist.visits.index(visit)]}"


def ready(page: Page, where: str) -> None:
    page.goto(where)
    page.wait_for_selector("html.loaded", state="attached")


def cards(page: Page, part: str = "likely") -> list[str]:
    names: list[str] = page.locator(f"#{part} > li").evaluate_all("items => items.map(item => item.dataset.condition)")
    return names


def card(page: Page, condition: str) -> Locator:
    return page.locator(f'li[data-condition="{condition}"]')


_fresh = iter(OTHERS)


# ---- the worklist


def test_open_search_filter_and_go_to_a_visit(page: Page, opened: Service, url: str) -> None:
    ready(page, url)
    expect(page.locator("#rows li")).to_have_count(50)
    expect(page.locator("#summary")).to_contain_text("67 of 67 visits · 0 decided")
    expect(page.locator("#summary")).not_to_contain_text("read so far", timeout=120_000)
    expect(page.locator(".row", has_text="Sepsis")).not_to_have_count(0)
    page.keyboard.press("]")
    expect(page.locator("#where")).to_have_text("51–67 of 67")
    expect(page.locator(".row").last).to_contain_text("med refill")  # what deserves no look comes last
    page.keyboard.press("/")
    page.keyboard.type("poor feeding")
    expect(page.locator("#rows li")).to_have_count(1)
    expect(page.locator(".row")).to_contain_text("2-month-old girl")
    assert "feeding" not in page.url  # what is searched for may name somebody
    page.locator("#words").fill("")
    page.locator("#condition").select_option("appendicitis")
    expect(page.locator(".row").first).to_contain_text("Appendicitis")
    page.locator("#condition").select_option("")
    page.get_by_label("Must not be missed").check()
    expect(page.locator(".row", has_text="34-year-old")).to_contain_text("embolism")
    expect(page.locator(".row:not(:has(.chip.miss))")).to_have_count(0)


def test_the_worklist_shows_what_others_decide_while_it_is_open(page: Page, opened: Service, url: str) -> None:
    ready(page, url)
    api = address(opened, url, next(_fresh)).replace("/visit/", "/api/visits/")
    before = int(page.locator("#summary").inner_text().partition(" decided")[0].rpartition(" ")[2])
    assert httpx.post(f"{api}/decisions", json=wanted("appendicitis")).status_code == 200
    expect(page.locator("#summary")).to_contain_text(f"{before + 1} decided")


# ---- a visit


def test_three_parts_and_what_is_known(page: Page, opened: Service, url: str) -> None:
    ready(page, address(opened, url, SEPTIC))
    headings = [text.casefold().strip("⚠ ") for text in page.locator(".panel h3").all_inner_texts() if text]
    order = ["likely", "must not be missed", "worth asking or doing next", "known: in the record or decided"]
    assert headings == [heading for heading in order if heading in headings] and order[0] in headings
    assert "sepsis" in cards(page) and len(cards(page)) <= 4
    expect(card(page, "sepsis")).to_contain_text("times the usual")
    expect(card(page, "sepsis")).to_contain_text("Raised by: ")
    assert {"fever", "copd"} <= set(cards(page, "known")) and not {"fever", "copd", "cough"} & set(cards(page))
    assert all(int(p.strip("<>%")) >= 10 for p in page.locator("#likely .tag-p").all_inner_texts())
    asked = page.locator("#questions li[data-finding]").all_inner_texts()
    assert all("Yes: " in text and "No: " in text for text in asked)


def test_a_danger_that_is_unlikely_is_an_alert_with_its_finding_and_what_settles_it(
    page: Page, opened: Service, url: str
) -> None:
    ready(page, address(opened, url, PLEURITIC))
    assert "pulmonary_embolism" in cards(page, "must_not_miss") and "pulmonary_embolism" not in cards(page)
    alert = card(page, "pulmonary_embolism")
    for text in ("Raised by: ", "pleuritic", "Would settle it: ", "times the usual"):
        expect(alert).to_contain_text(text)


def test_confirm_undo_and_nothing_moves_under_the_pointer(page: Page, opened: Service, url: str) -> None:
    where = address(opened, url, SEPTIC)
    ready(page, where)
    before = cards(page)
    button = card(page, "sepsis").get_by_role("button", name="Confirm Sepsis")
    place = card(page, "sepsis").bounding_box()
    button.click()
    expect(card(page, "sepsis")).to_contain_text("confirmed")
    assert cards(page)[: len(before)] == before and card(page, "sepsis").bounding_box()["y"] == place["y"]  # type: ignore[index]
    expect(page.locator("#said")).to_contain_text("Sepsis: confirmed.")
    expect(page.locator("#moved")).to_contain_text("because it often comes with sepsis")
    expect(page.locator(".delta").first).to_contain_text("was")
    page.locator("#said").get_by_role("button", name="Undo").click()
    expect(page.locator("#said")).to_contain_text("Undone")
    expect(card(page, "sepsis").get_by_role("button", name="Confirm Sepsis")).to_be_visible()
    page.get_by_role("button", name="Reject Pneumonia").click()
    expect(card(page, "pneumonia")).to_contain_text("rejected")
    ready(page, where)
    assert "pneumonia" in cards(page, "known") and "pneumonia" not in cards(page)
    page.get_by_role("button", name="Reopen Pneumonia").click()
    expect(page.locator(".decided")).to_have_count(0)


def test_a_condition_that_is_not_suggested_can_be_confirmed(page: Page, opened: Service, url: str) -> None:
    ready(page, address(opened, url, next(_fresh)))
    page.get_by_label("Confirm another condition").fill("gout")
    page.keyboard.press("Enter")
    expect(card(page, "gout")).to_contain_text("confirmed")
    page.get_by_label("Confirm another condition").fill("no such thing")
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("no such condition")


def test_a_change_is_on_the_screen_within_a_tenth_of_a_second(page: Page, opened: Service, url: str) -> None:
    """From the click to the new cards, in the browser: half of 20 clicks within 100 ms (where more processes run than
    there are processors, so many times as long). The 95th percentile is measured in processor time, below."""
    ready(page, address(opened, url, next(_fresh)))
    times = page.evaluate(
        """async () => {
            const times = [];
            for (let i = 0; i < 20; i++) {
                await new Promise((resolve) => setTimeout(resolve, 500));
                performance.clearMarks("whatelse-shown");
                const start = performance.now();
                document.querySelector(i % 2 ? ".decided .buttons button:last-child" : "#likely .yes").click();
                const shown = () => performance.getEntriesByName("whatelse-shown");
                while (!shown().length) await new Promise((resolve) => setTimeout(resolve, 1));
                times.push(shown()[0].startTime - start);
            }
            return times;
        }"""
    )
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert np.median(times) < 100 * busy, (busy, times)


def test_an_answer_takes_a_tenth_of_a_second_of_processor_time_at_most() -> None:
    """Of 50 decisions on simulated visits, the 95th percentile; most of them change 50 conditions or more."""
    times, changed = [], []
    for visit in simulate(50, 12):
        reading = answers.read(shipped(), visit)
        before = reading.suggest()
        first = (before.likely or before.tags)[0].condition
        start = time.thread_time()
        _, after = answers.view(reading, State((first,), version=1))
        times.append(time.thread_time() - start)
        was = {tag.condition: tag.probability for tag in before.tags}
        changed.append(sum(abs(tag.probability - was[tag.condition]) > 1e-6 for tag in after.tags))
    assert np.median(changed) >= 50, changed
    assert np.percentile(times, 95) < 0.1, times


def test_why_is_grouped_and_leads_to_the_place_in_the_note(page: Page, opened: Service, url: str) -> None:
    ready(page, address(opened, url, BELLY))
    row = card(page, "appendicitis")
    row.get_by_role("button", name="Why Appendicitis?").click()
    expect(row.locator(".why h4").first).to_have_text("For it")
    assert {"Signs", "Results and treatment"} & set(row.locator(".why h5").all_inner_texts())
    expect(row.locator(".why")).to_contain_text("by the knowledge base")
    row.locator(".why button.link").first.click()
    expect(page.locator("mark.pointed")).to_have_count(1)
    row.get_by_role("button", name="Why Appendicitis?").click()
    expect(row.locator(".why")).to_be_hidden()


def test_the_record_is_shown_as_it_was_read(page: Page, opened: Service, url: str) -> None:
    ready(page, address(opened, url, SEPTIC))
    read = {
        "chest pain": ("denied", "no"),
        "stroke": ("history", "hx"),
        "uti": ("possible", "?"),
        "cancer": ("family", "fam"),
    }
    for text, (kind, sign) in read.items():
        mark = page.locator(f"#record mark.{kind}", has_text=text).first
        expect(mark).to_be_visible()
        assert mark.locator(".sign").inner_text().lower() == sign  # readable without colour
    assert "line-through" in page.locator("mark.denied").first.evaluate("m => getComputedStyle(m).textDecorationLine")
    vitals = page.locator(".vitals")
    expect(vitals).to_contain_text("BP 84/50 (hypotension)")
    expect(vitals.locator(".abnormal", has_text="Temp")).to_contain_text("39.4 °C (fever)")
    expect(page.locator("#record")).to_contain_text("Anticoagulant: warfarin")
    note = page.locator(".md_comments")
    assert "folded" in (note.get_attribute("class") or "")
    note.get_by_role("button", name="Show the whole note").click()
    assert "folded" not in (note.get_attribute("class") or "")
    ready(page, address(opened, url, INFANT))
    expect(page.locator("h1")).to_contain_text("2-month-old girl")
    expect(page.locator(".vitals .abnormal", has_text="RR")).to_have_count(0)  # 48 is no fast breathing at two months


def test_a_question_is_answered_on_the_spot_and_taken_back(page: Page, opened: Service, url: str) -> None:
    ready(page, address(opened, url, PLEURITIC))
    first = page.locator("#questions li").first
    finding = first.get_attribute("data-finding")
    first.get_by_role("button", name="Yes").click()
    expect(page.locator("#moved")).to_contain_text("is present")
    answered = page.locator(f'#questions li[data-finding="{finding}"]')
    expect(answered).to_contain_text("Answered yes")
    answered.get_by_role("button", name="Yes").click()
    expect(page.locator("#said")).to_contain_text("answer taken back")


def test_two_people_at_once_lose_nothing(page: Page, opened: Service, url: str) -> None:
    """Somebody decides on another tag meanwhile: both stand. On the same tag: the page says so and records nothing."""
    where = address(opened, url, next(_fresh))
    api = where.replace("/visit/", "/api/visits/")
    ready(page, where)
    mine, third = cards(page)[0], cards(page, "known")[0]
    assert httpx.post(f"{api}/decisions", json=wanted("gout", "rejected")).status_code == 200
    card(page, mine).get_by_role("button", name="Confirm").click()
    expect(card(page, mine)).to_contain_text("confirmed")
    expect(card(page, "gout")).to_contain_text("rejected")
    assert httpx.post(f"{api}/decisions", json=wanted(third, "rejected", 2)).status_code == 200
    card(page, third).get_by_role("button", name="Confirm").click()
    expect(page.locator("#said")).to_contain_text("Your decision was not recorded")
    lines = httpx.get(f"{api}/history").json()["lines"]
    assert [(line["subject"], line["verdict"]) for line in lines] == [
        ("gout", "rejected"), (mine, "confirmed"), (third, "rejected"),
    ]  # fmt: skip


def test_everything_by_keyboard(page: Page, opened: Service, url: str) -> None:
    visit = next(_fresh)
    ready(page, url)
    page.keyboard.press("/")
    page.keyboard.type(visit.id)
    expect(page.locator("#rows li")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("html.loaded #likely li")
    page.keyboard.press("ArrowDown")
    first = cards(page)[0]
    assert page.evaluate("document.activeElement.dataset.condition") == first
    page.keyboard.press("w")
    expect(card(page, first).locator(".why")).to_be_visible()
    page.keyboard.press("c")
    expect(card(page, first)).to_contain_text("confirmed")
    assert page.evaluate("document.activeElement.dataset.condition") == first  # one can go on from here
    page.keyboard.press("u")
    expect(page.locator(".decided")).to_have_count(0)
    page.keyboard.press("Escape")
    page.wait_for_url(f"{url}/")


def test_when_nothing_stands_out_it_says_so_in_one_line(page: Page, opened: Service, url: str) -> None:
    ready(page, address(opened, url, REFILL))
    expect(page.locator("#nothing")).to_contain_text("Nothing else stands out")
    expect(page.locator("#likely > li")).to_have_count(0)
    for key in "cx":  # a key decides on nothing that is not chosen
        page.keyboard.press(key)
    assert opened.store.state(REFILL.id).version == 0


# ---- typing


def test_suggestions_follow_the_typing(page: Page, opened: Service, url: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/api/suggest") else None)
    ready(page, f"{url}/new")
    start = len(asked)
    page.locator("#triage_note").press_sequentially(
        "rlq pain, guarding, vomiting, no appetite, denies dysuria", delay=5
    )
    expect(card(page, "appendicitis")).to_be_visible()
    expect(page.locator("#read mark.denied").first).to_be_visible()
    assert 1 <= len(asked) - start <= 8  # not one for each of 54 keys
    card(page, "appendicitis").get_by_role("button", name="Confirm").click()
    expect(card(page, "appendicitis")).to_contain_text("confirmed")
    assert "guarding" not in page.url and opened.store.state("typed").version == 0
    ready(page, f"{url}/new")
    expect(page.locator("#triage_note")).to_have_value("")


# ---- everywhere


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing(browser: Browser, opened: Service, url: str, scheme: Any, width: int) -> None:
    for page in _page(browser, color_scheme=scheme):
        page.set_viewport_size({"width": width, "height": 800})
        for where in (url, address(opened, url, SEPTIC), f"{url}/new", f"{url}/signin"):
            page.goto(where)
            if not where.endswith("signin"):
                page.wait_for_selector("html.loaded", state="attached")
            if "/visit/" in where:
                page.locator("#likely").get_by_role("button", name="Why").first.click()
                expect(page.locator(".why:not([hidden])")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, where
            assert axe.violations(page) == [], where
        ready(page, address(opened, url, SEPTIC))
        if width < 400:
            button = page.locator("#likely .yes").first.bounding_box()
            assert button is not None and button["height"] >= 44 and button["x"] + button["width"] <= width
            panel, record = page.locator(".panel").bounding_box(), page.locator("#record").bounding_box()
            assert panel is not None and record is not None and panel["y"] < record["y"]  # the answer comes first
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(243, 245, 248)"
        assert dark == (scheme == "dark")


def test_embedded_it_has_no_chrome_and_only_known_parents(page: Page, opened: Service, url: str) -> None:
    where = address(opened, url, SEPTIC) + "?embed=1"
    ready(page, where)
    expect(page.locator("header.chrome")).to_be_hidden()
    expect(page.locator("#likely li").first).to_be_visible()
    expect(page.locator("footer")).to_contain_text("does not replace")
    policy = httpx.get(where).headers["content-security-policy"]
    assert "frame-ancestors http://127.0.0.1:*" in policy
    page.keyboard.press("Escape")
    page.wait_for_url(f"{url}/?embed=1")


def test_it_says_what_it_is_and_what_it_knows(page: Page, opened: Service, url: str) -> None:
    ready(page, address(opened, url, SEPTIC))
    foot = page.locator("footer")
    expect(foot).to_contain_text("Supports judgement, does not replace it")
    expect(foot).to_contain_text("writes nothing into it")
    expect(foot).to_contain_text(f"knows {len(shipped().conditions_):,} conditions and suggests nothing else")
    assert page.locator("[aria-live=polite]").count() == 1


def test_script_in_a_record_stays_text(page: Page, opened: Service, url: str) -> None:
    for where in (url, address(opened, url, HOSTILE)):
        ready(page, where)
        page.wait_for_timeout(200)
        assert page.evaluate("window.hacked") is None
        if where == url:
            page.locator("#words").fill("fell")
        expect(page.locator("body")).to_contain_text("<script>window.hacked = 1</script>")
    # marks are where the words are although the note has characters outside the basic plane
    fell = page.locator("#record mark", has_text="fell")
    expect(fell.first).to_have_text("fell")


def test_signing_in_with_a_token(browser: Browser, tmp_path: Path) -> None:
    with service(tmp_path, auth="token") as opened, live(opened) as url:
        token = opened.store.access.create("Dr. Ada", "clinician", 1)
        viewer = opened.store.access.create("student", "viewer", 1)
        where = address(opened, url, FALLEN)
        for context_page in _page_allowing_401(browser):
            context_page.goto(where)
            context_page.wait_for_url(f"{url}/signin")
            context_page.locator("#token").fill("whatelse_wrong")
            context_page.locator("#signin button").click()
            expect(context_page.locator("#problem")).to_contain_text("not known here")
            context_page.locator("#token").fill(token)
            context_page.keyboard.press("Enter")
            context_page.wait_for_url(where)
            expect(context_page.locator("#who")).to_contain_text("Dr. Ada (clinician)")
            card(context_page, "fall").get_by_role("button", name="Confirm").click()
            expect(context_page.locator(".decided")).to_have_count(1)
            assert context_page.evaluate("document.cookie") == ""  # HttpOnly
            context_page.get_by_role("button", name="Sign out").click()
            context_page.wait_for_url(f"{url}/signin")
            context_page.locator("#token").fill(viewer)
            context_page.keyboard.press("Enter")
            context_page.wait_for_url(f"{url}/")
            context_page.goto(where)
            expect(context_page.locator(".decided")).to_have_count(1)
            expect(context_page.get_by_role("button", name="Confirm")).to_have_count(0)
        assert opened.store.history(FALLEN.id)[0].actor == "Dr. Ada"


def _page_allowing_401(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()
