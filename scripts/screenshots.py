"""Take the pictures of the docs: `python scripts/screenshots.py`, into docs/img/. The shipped model answers."""

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
from whatelse.server.run import listen
from whatelse.server.service import load_model
from whatelse.simulate import simulate
from whatelse.store import Store
from whatelse.visits import Code, Visit

IMAGES = Path(__file__).parents[1] / "docs" / "img"
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
def serving(visits: list[Visit], folder: Path) -> Iterator[tuple[Service, str]]:
    """A server on a new database; the service and its URL."""
    settings = Settings(model=Path("emergency"), port=0, database=f"sqlite:///{folder / 'decisions.db'}")
    service = Service(settings, Store(settings.database), load_model(settings.model), visits)
    listening = listen(settings)
    server = uvicorn.Server(uvicorn.Config(create_app(service), log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not (server.started and service.worklist.scores and service.worklist.scores.complete):
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
    open_page(browser, where, 380, 780).screenshot(path=IMAGES / "visit-phone.png")
    open_page(browser, where, 380, 780, color_scheme="dark").screenshot(path=IMAGES / "visit-narrow-dark.png")
    open_page(browser, url).screenshot(path=IMAGES / "worklist.png")


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
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, service, url)
        browser.close()
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.name}: {image.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
