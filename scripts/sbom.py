"""Write a CycloneDX 1.5 bill of materials of what serving runs on, from requirements-serve.txt.

    python scripts/sbom.py > sbom.cdx.json

The same lock file gives the same bytes: no time and no random number is in it. Licences are those that installed
packages declare; a package that is not installed here has none listed.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-serve.txt"


def components(text: str) -> list[dict[str, Any]]:
    """One component for each pinned package, with the SHA-256 of every file that may be installed for it."""
    found = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        pinned = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", block)
        if pinned is None:
            continue
        name, version = re.sub(r"[-_.]+", "-", pinned[1]).lower(), pinned[2]
        purl = f"pkg:pypi/{name}@{version}"
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": value} for value in re.findall(r"sha256:([0-9a-f]{64})", block)],
        }
        if licence := licence_of(name):
            component["licenses"] = [{"license": {"name": licence}}]
        found.append(component)
    return found


def licence_of(name: str) -> str | None:
    """What an installed package says about its licence, in a line."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    said = about.get("License-Expression") or next(
        (line.rsplit(" :: ", 1)[1] for line in about.get_all("Classifier", []) if line.startswith("License ::")), ""
    )
    return said.strip() or None


def bill() -> dict[str, Any]:
    """The whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    found = components(LOCK.read_text("utf-8"))
    own = f"pkg:pypi/{name}@{version}"
    serial = uuid.uuid5(uuid.NAMESPACE_URL, own + "".join(sorted(part["bom-ref"] for part in found)))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": found,
        "dependencies": [{"ref": own, "dependsOn": sorted(part["bom-ref"] for part in found)}],
    }


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
