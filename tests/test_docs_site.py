"""The documentation as a site: built anew, warnings are errors, notebooks run, and nothing comes from a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import whatelse

pytest.importorskip("sphinx")
pytest.importorskip("myst_nb")
DOCS = Path(__file__).parents[1] / "docs"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first run on a machine compiles the kernels


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it; the package is that of this checkout."""
    out = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(out)]
    env = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return out


def test_every_page_is_there_and_leads_somewhere(site: Path) -> None:
    pages = [path.relative_to(DOCS) for suffix in ("md", "ipynb") for path in DOCS.rglob(f"*.{suffix}")]
    assert len(pages) > 20
    for page in pages:
        html = (site / page.with_suffix(".html")).read_text(encoding="utf-8")
        for link in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', html):
            if "://" not in link and not link.startswith(("mailto:", "data:")):
                assert (site / page.parent / link).exists(), f"{page} leads to {link}, which is not there"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]+)"', html)
        loaded += re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(https?:[^"]+)"', html)
        assert not loaded, f"{page.name} loads {loaded[:1]}"


def test_the_reference_has_the_public_names(site: Path) -> None:
    html = (site / "reference" / "index.html").read_text(encoding="utf-8")
    for name in set(whatelse.__all__) - {"__version__"}:
        home = "errors." if name.endswith("Error") else ""
        assert f'id="whatelse.{home}{name}"' in html or f'href="noisyor.html#whatelse.noisyor.{name}"' in html, name
    assert 'id="whatelse.Tagger.tag"' in html and "set_fit_request" not in html


def test_notebooks_were_run(site: Path) -> None:
    own = (site / "notebooks" / "own-table.html").read_text(encoding="utf-8")
    assert "share of cases with the anchor" in own and own.count("cell_output") >= 5
    reading = (site / "notebooks" / "reading-a-result.html").read_text(encoding="utf-8")
    assert "confirming" in reading and "held-out tag: 0." in reading and reading.count("<img") >= 1
