"""Write requirements-serve.txt: all that serving needs, each file by its SHA-256, at the versions of constraints.txt.

    python scripts/lock.py            # needs a package index and pip-tools
    python scripts/lock.py --check    # without an index: does the file say what pyproject.toml and constraints.txt say?

Install from it with 'pip install --require-hashes -r requirements-serve.txt', then 'pip install --no-deps whatelse'.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-serve.txt"
HEADER = "# Made by scripts/lock.py from pyproject.toml and constraints.txt; do not edit.\n"


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


def lock() -> None:
    """Resolve and write the file anew."""
    command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--extra", "serve", "--generate-hashes"]
    command += ["--constraint", "constraints.txt", "--no-header", "--strip-extras", "--no-annotate", "--allow-unsafe"]
    command += ["--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-emit-options"]
    subprocess.run([*command, "--output-file", str(LOCK), "pyproject.toml"], cwd=ROOT, check=True)
    LOCK.write_text(HEADER + LOCK.read_text("utf-8"), "utf-8")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        lock()
    if found := problems():
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
