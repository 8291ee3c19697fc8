"""axe-core for tests: the accessibility checker, installed once outside the repository by npm."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Page

VERSION = "4.10.3"
RUN = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
    .map((v) => `${v.id}: ${v.nodes.length} times, first ${v.nodes[0].html.slice(0, 160)}`)"""


def script() -> Path:
    """axe.min.js; skips where npm cannot get it."""
    cache = Path(os.environ.get("WHATELSE_TEST_CACHE", tempfile.gettempdir())) / f"whatelse-axe-{VERSION}"
    if not (cache / "axe.min.js").is_file():
        if shutil.which("npm") is None:
            pytest.skip("no npm here: axe-core is installed with it")
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run(["npm", "pack", f"axe-core@{VERSION}"], cwd=folder, capture_output=True, timeout=120)
            if made.returncode:
                pytest.skip("npm could not get axe-core (no package registry?)")
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as packed:
                found = packed.extractfile("package/axe.min.js")
                assert found is not None
                cache.mkdir(parents=True, exist_ok=True)
                (cache / "axe.min.js").write_bytes(found.read())
    return cache / "axe.min.js"


def violations(page: Page) -> list[str]:
    """What axe-core objects to on the page as it is now."""
    page.evaluate(script().read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(RUN)
    return found
