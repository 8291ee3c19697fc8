"""What is installed for serving is locked by hash and listed in a bill of materials; SECURITY.md names true tests."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

from whatelse import __version__

ROOT = Path(__file__).parents[1]


def test_the_lock_is_of_what_is_needed_and_tested() -> None:
    run = subprocess.run([sys.executable, "scripts/lock.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_lock_that_is_behind_is_found() -> None:
    lock = runpy.run_path(str(ROOT / "scripts" / "lock.py"))
    assert lock["pins"]("Some_Pkg[extra]==1.2 \\\n    --hash=sha256:0\n") == {"some-pkg": "1.2"}
    assert {"fastapi", "numpy", "psycopg", "pyjwt"} <= lock["needed"]()


def test_the_bill_of_materials_is_whole_and_the_same_every_time() -> None:
    made = [
        subprocess.run([sys.executable, "scripts/sbom.py"], cwd=ROOT, capture_output=True, check=True).stdout
        for _ in range(2)
    ]
    assert made[0] == made[1]
    bill = json.loads(made[0])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    names = {part["name"] for part in bill["components"]}
    lock = runpy.run_path(str(ROOT / "scripts" / "lock.py"))
    assert names == set(lock["pins"]((ROOT / "requirements-serve.txt").read_text("utf-8")))
    assert all(part["hashes"] and part["purl"].startswith("pkg:pypi/") for part in bill["components"])
    assert len({part["bom-ref"] for part in bill["components"]}) == len(bill["components"])


def test_the_version_is_the_same_everywhere() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"] == __version__
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    released = re.findall(r"^## (\d\S*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert released[0] == __version__


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", (ROOT / "SECURITY.md").read_text("utf-8"))
    assert len(named) > 30
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text("utf-8"), f"{file}::{test}"
