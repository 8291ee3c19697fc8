"""The sdist and the wheel made from it, installed where there is no checkout: commands run there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def run(*command: object, cwd: Path, **env: str) -> str:
    ran = subprocess.run([str(word) for word in command], cwd=cwd, env=CLEAN | env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


@pytest.fixture(scope="module")
def whatelse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a new environment: the wheel, with the dependencies that are installed here."""
    here = tmp_path_factory.mktemp("distribution")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--target", here / "backend", "hatchling", cwd=here)
    backend = {"PYTHONPATH": str(here / "backend")}
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", here / "dist", cwd=ROOT, **backend)
    (sdist,) = (here / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/whatelse/__init__.py"} <= names
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", here / "dist", sdist, cwd=here, **backend)
    (wheel,) = (here / "dist").glob("*.whl")
    venv.create(here / "venv", with_pip=False)
    python = here / "venv" / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=here)
    places = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=here).strip()
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(places, "dependencies.pth").write_text("\n".join(sorted(others)) + "\n", encoding="utf-8")
    return python.with_name("whatelse")


def test_the_installed_package_is_the_wheel(whatelse: Path, tmp_path: Path) -> None:
    where = run(whatelse.with_name("python"), "-c", "import whatelse; print(whatelse.__file__)", cwd=tmp_path)
    assert where.startswith(str(whatelse.parents[1]))


def test_ask_demo_and_doctor_run_without_the_checkout(whatelse: Path, tmp_path: Path) -> None:
    cache = {"WHATELSE_CACHE": str(tmp_path / "cache")}
    answer = run(whatelse, "ask", "72M on coumadin, headache, confused since yesterday", cwd=tmp_path, **cache)
    assert "Subdural hematoma" in answer and "worth asking" in answer
    shown = run(whatelse, "demo", "--no-serve", cwd=tmp_path, **cache)
    assert "before learning" in shown and (tmp_path / "demo" / "model.safetensors").exists()
    assert "ok      model" in run(whatelse, "doctor", "--port", 65_000, cwd=tmp_path, **cache)


def test_serve_answers_without_the_checkout(whatelse: Path, tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("id,age,sex,triage_note\n1,72,M,headache and confused\n", encoding="utf-8")
    command = [str(whatelse), "serve", "--model", "emergency", "--visits", "v.csv", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=CLEAN, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address is not None
            for path in ("", "static/style.css", "api/visits"):
                with urllib.request.urlopen(address[0] + path, timeout=60) as page:
                    assert page.status == 200
        finally:
            server.terminate()
            server.wait(60)
