"""Take the screenshots of the README: `python scripts/screenshots.py`, into docs/img/.

A department is simulated and a model learned from it, or `--demo FOLDER` uses what `make demo` left there. The visit
shown has both of the conditions named below: the one where confirming the first lifts the second most.
"""

from __future__ import annotations

import argparse
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

from whatelse.annotators import AnchorSet
from whatelse.cohort import build_cohort
from whatelse.learning import learners as learning
from whatelse.server import Service, Settings, create_app
from whatelse.server.run import listen
from whatelse.server.service import load_model
from whatelse.simulate import simulate
from whatelse.sources import read_visits
from whatelse.store import Store
from whatelse.tagger import Tagger
from whatelse.visits import Visit

CONFIRMED, RISING = "pneumonia", "severe sepsis"
IMAGES = Path(__file__).parents[1] / "docs" / "img"


def department(demo: Path | None, folder: Path) -> tuple[Path, list[Visit]]:
    """A model file and visits that it has not seen."""
    if demo is not None:
        return demo / "model.safetensors", list(read_visits(demo / "test.parquet"))
    path = folder / "model.safetensors"
    Tagger(learning.DEFAULT).fit(build_cohort(simulate(12_000, 1), AnchorSet.shipped())).save(path)
    return path, list(simulate(3_000, 2))


def most_moved(tagger: Tagger, visits: list[Visit]) -> Visit:
    """The visit where confirming CONFIRMED lifts RISING most, in probability, among those that do have both."""

    def rise(visit: Visit) -> float:
        before = {tag.condition: tag.probability for tag in tagger.suggest(visit).tags}
        after = {tag.condition: tag.probability for tag in tagger.suggest(visit, confirmed=[CONFIRMED]).tags}
        return after[RISING] - before[RISING]

    return max((v for v in visits if v.truth and {CONFIRMED, RISING} <= set(v.truth)), key=rise)


@contextmanager
def serving(model: Path, visits: list[Visit], folder: Path) -> Iterator[tuple[Service, str]]:
    """A server on a new database; the service and its URL."""
    settings = Settings(model=model, port=0, database=f"sqlite:///{folder / 'decisions.db'}")
    service = Service(settings, Store(settings.database), load_model(model), visits)
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


TO_THE_TOP = "for (const part of [document.scrollingElement, ...document.querySelectorAll('*')]) part.scrollTop = 0"


def open_page(browser: Browser, url: str, width: int = 1280, height: int = 860, **options: Any) -> Page:
    """A loaded page, sharper than its size."""
    page = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=1.5, **options
    ).new_page()
    page.goto(url)
    page.wait_for_selector("html.loaded", state="attached")
    page.wait_for_timeout(300)
    return page


def take(browser: Browser, service: Service, url: str, visit: Visit) -> None:
    """Take every screenshot of the README."""
    where = f"{url}/visit/{service.worklist.keys[service.worklist.visits.index(visit)]}"
    page = open_page(browser, where)
    page.screenshot(path=IMAGES / "visit.png")
    page.locator(f'#suggested li[data-condition="{CONFIRMED}"]').get_by_role("button", name="Confirm").click()
    page.wait_for_selector("#confirmed li")
    page.wait_for_timeout(1000)  # marks and questions follow
    page.evaluate(TO_THE_TOP)  # the next tag has the focus, and was scrolled to
    page.screenshot(path=IMAGES / "visit-confirmed.png")
    page.locator("#suggested li").first.get_by_role("button", name="Why?").click()
    page.wait_for_selector(".why:not([hidden])")
    page.screenshot(path=IMAGES / "visit-why.png", full_page=False)
    open_page(browser, where, 380, 780, color_scheme="dark").screenshot(path=IMAGES / "visit-narrow-dark.png")
    open_page(browser, url).screenshot(path=IMAGES / "worklist.png")


def main() -> None:
    """Make a department, serve it, take pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, help="the folder of 'make demo'")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots need Chromium: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, visits = department(given.demo, folder)
        with serving(model, visits, folder) as (service, url), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser, service, url, most_moved(service.tagger, visits))
            browser.close()
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.name}: {image.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
