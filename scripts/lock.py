"""Write requirements-serve.txt: all that serving needs, each file by its SHA-256, at the versions of constraints.txt.

    python scripts/lock.py            # needs a package index; pip resolves, nothing is installed
    python scripts/lock.py --check    # without an index: does the file say what pyproject.toml and constraints.txt say?

The files are those for the Python and platform that runs this, which the first line names: run it where you serve.

Install from it with 'pip install --require-hashes -r requirements-serve.txt', then 'pip install --no-deps whatelse'.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-serve.txt"
HEADER = (
    "# By scripts/lock.py from pyproject.toml and constraints.txt, for Python {python} on {machine}; do not edit.\n"
)


def normal(name: str) -> str:
    """A package's name as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Package -> version of every pinned line."""
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text, re.MULTILINE)
    return {normal(name): version for name, version in found}


def needed() -> set[str]:
    """The packages that pyproject.toml names for serving."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    return {normal(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in lines}


def problems() -> list[str]:
    """What is wrong with the lock file: a package without a pin or a hash, or at another version than tested."""
    text = LOCK.read_text("utf-8")
    locked, tested = pins(text), pins((ROOT / "constraints.txt").read_text("utf-8"))
    found = [f"{name} is needed and not locked" for name in sorted(needed() - locked.keys())]
    found += [
        f"{name} is locked at {version} and tested at {tested[name]}"
        for name, version in locked.items()
        if name in tested and tested[name] != version
    ]
    found += [f"{name} was never tested: it is not in constraints.txt" for name in locked if name not in tested]
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        if "==" in block and not block.startswith("#") and "--hash=sha256:" not in block:
            found.append(f"{block.split('==')[0]} has no hash")
    return found


def lock(report: Path | None = None) -> None:
    """Resolve, by pip's own report of what it would install, and write the file anew."""
    with tempfile.TemporaryDirectory() as folder:
        if report is None:
            report = Path(folder) / "report.json"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
            command += ["--ignore-installed", "--report", str(report), "--constraint", "constraints.txt"]
            subprocess.run([*command, f"{ROOT}[serve]"], cwd=ROOT, check=True)
        found = json.loads(report.read_text("utf-8"))["install"]
    lines = [HEADER.format(python=platform.python_version(), machine=f"{sys.platform} {platform.machine()}")]
    for item in sorted(found, key=lambda item: normal(item["metadata"]["name"])):
        name, version = normal(item["metadata"]["name"]), item["metadata"]["version"]
        if name != "whatelse":
            digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}\n")
    LOCK.write_text("".join(lines), "utf-8")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--report", type=Path, help="a report that 'pip install --dry-run --report' wrote already")
    given = parser.parse_args()
    if not given.check:
        lock(given.report)
    if found := problems():
        sys.exit("\n".join(found))
    print("requirements-serve.txt says what pyproject.toml and constraints.txt say")


if __name__ == "__main__":
    main()
