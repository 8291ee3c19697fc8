"""Take the pictures of the docs: `python scripts/screenshots.py`, into docs/img/. The shipped model answers.

The workbench is that of a small simulated department, with a model of its own.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from whatelse.server import Service, Settings, create_app
from whatelse.server.service import load_model
from whatelse.server.workers import listen
from whatelse.simulate import simulate
from whatelse.sources import read_visits
from whatelse.store import Store
from whatelse.visits import Code, Visit

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
CONFIRMED = "pneumonia"
SHOWN = Visit(
    "ED-1042",
    age=72.0,
    sex="F",
    chief_complaint="fever, cough",
    triage_note="72F confused since this morning, productive cough x3 days, chills. Denies chest pain, no rash. "
    "T 39.4 HR 124 BP 84/50 RR 28 O2 89% RA. PMH: COPD, HTN. hx of stroke",
    md_comments="ill appearing, crackles R base, possible UTI.",
    medication_history=tuple(Code("name", drug, drug) for drug in ("lisinopril", "tiotropium", "warfarin")),
)


@contextmanager
def serving(visits: list[Visit], folder: Path, bench: Path | None = None) -> Iterator[tuple[Service, str]]:
    """A server on a new database, with a workbench or without; the service and its URL."""
    model = bench / "model" if bench else Path("emergency")
    settings = Settings(model=model, port=0, database=f"sqlite:///{folder / 'decisions.db'}", workbench=bench)
    service = Service(settings, Store(settings.database), load_model(settings.model), visits)
    listening = listen(settings)
    server = uvicorn.Server(uvicorn.Config(create_app(service), log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not (
            server.started
            and service.worklist.scores
            and service.worklist.scores.done == len(service.worklist.scores.probabilities)
        ):
            time.sleep(0.1)
        yield service, f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        service.close()


def open_page(browser: Browser, url: str, width: int = 1280, height: int = 860, **options: Any) -> Page:
    """A loaded page, sharper than its size."""
    page = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=1.5, **options
    ).new_page()
    page.set_default_timeout(120_000)
    page.goto(url)
    page.wait_for_selector("html.loaded", state="attached")
    page.wait_for_timeout(300)
    return page


def take(browser: Browser, service: Service, url: str) -> None:
    """Take every picture."""
    where = f"{url}/visit/{service.worklist.keys[service.worklist.visits.index(SHOWN)]}"
    page = open_page(browser, where)
    page.screenshot(path=IMAGES / "visit.png")
    scores = service.worklist.scores
    alarming = [i for i, one in enumerate(scores.standing if scores else ()) if one.must_not_miss]
    if alarming:
        other = open_page(browser, f"{url}/visit/{service.worklist.keys[alarming[0]]}")
        other.locator("#must_not_miss-part").scroll_into_view_if_needed()
        other.screenshot(path=IMAGES / "visit-must-not-miss.png")
    card = page.locator(f'li[data-condition="{CONFIRMED}"]')
    card.get_by_role("button", name="Why").click()
    page.wait_for_selector(".why:not([hidden])")
    card.scroll_into_view_if_needed()
    page.screenshot(path=IMAGES / "visit-why.png")
    card.get_by_role("button", name="Why").click()
    card.get_by_role("button", name="Confirm").click()
    page.wait_for_selector("#moved:not(:empty)")
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=IMAGES / "visit-confirmed.png")
    page.get_by_role("button", name="Undo").click()
    open_page(browser, where, 360, 780).screenshot(path=IMAGES / "visit-phone.png")
    open_page(browser, where, 360, 780, color_scheme="dark").screenshot(path=IMAGES / "visit-narrow-dark.png")
    open_page(browser, url).screenshot(path=IMAGES / "worklist.png")


def take_workbench(browser: Browser, url: str) -> None:
    """Take the pictures of the workbench: conditions, one condition with a phrase, old and new model."""
    page = browser.new_context(viewport={"width": 1280, "height": 860}, device_scale_factor=1.5).new_page()
    page.set_default_timeout(600_000)
    page.goto(f"{url}/workbench")
    page.wait_for_selector("#rows tr")
    page.locator("#bench-status progress").wait_for(state="detached")
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "workbench.png")
    page.goto(f"{url}/workbench/condition?name=uti")
    page.locator("button.suggestion").first.click()
    page.wait_for_selector("#excerpts li")
    page.screenshot(path=IMAGES / "workbench-condition.png")
    page.goto(f"{url}/workbench/learn")
    page.get_by_role("button", name="Learn").click()
    page.get_by_role("button", name="Promote").wait_for()
    page.screenshot(path=IMAGES / "workbench-learn.png")


def main() -> None:
    """Serve a department, take pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots need Chromium: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    visits = [SHOWN, *simulate(30, 77)]
    with (
        tempfile.TemporaryDirectory() as name,
        serving(visits, Path(name)) as (service, url),
        sync_playwright() as playwright,
    ):
        quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=quiet)
        take(browser, service, url)
        sys.path.insert(0, str(ROOT))
        from tests.support.bench_department import new_bench, visits_file

        (Path(name) / "bench").mkdir()
        bench = new_bench(Path(name) / "bench")
        with serving(list(read_visits([visits_file()]))[:50], Path(name) / "bench", bench) as (_, where):
            take_workbench(browser, where)
        browser.close()
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.name}: {image.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
