"""Take a model elsewhere: GeNIe / SMILE (XDSL, noisy-max nodes) and pyAgrum (.jgum, noisy-or nodes).

Both keep the noisy-or form, one number an edge: a table over 23 parents would have 8 million rows. Neither can say
that a finding counts for less than one, that conditions are coupled or that evidence is added: such models are refused
rather than exported as something else.

XDSL's noisy-max (net parameters, as SMILE stores them): states run from the strongest to the distinguished one, here
`present absent`. For each parent the columns of its states in that order, `1 - f, f` for present and `0, 1` for absent;
the leak, `l, 1 - l`, is the last column.
"""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np

from whatelse import __version__
from whatelse.errors import ModelFileError
from whatelse.files import write_whole
from whatelse.model.file import ModelFile

ACROSS = 12  # nodes side by side in GeNIe's window


def to_xdsl(model: ModelFile, path: str | os.PathLike[str]) -> None:
    """Write the network for GeNIe 3 and later; O(edges). The names of the model stand beside the identifiers."""
    conditions, findings = _identifiers(model, Path(path))
    noisyor = model.model.noisyor
    smile = ET.Element("smile", version="1.0", id="whatelse", numsamples="10000", discsamples="10000")
    nodes = ET.SubElement(smile, "nodes")
    for name, prior in zip(conditions, noisyor.prior, strict=True):
        _node(nodes, "cpt", name, probabilities=[prior, 1.0 - prior])
    for j, name in enumerate(findings):
        leak = [noisyor.leak[j], 1.0 - noisyor.leak[j]]
        parents = np.flatnonzero(noisyor.fail[:, j] < 1)
        if not parents.size:
            _node(nodes, "cpt", name, probabilities=leak)
            continue
        columns = [number for f in noisyor.fail[parents, j] for number in (1.0 - f, f, 0.0, 1.0)]
        node = _node(nodes, "noisymax", name)
        ET.SubElement(node, "parents").text = " ".join(conditions[i] for i in parents)
        ET.SubElement(node, "strengths").text = " ".join(["0 1"] * parents.size)
        ET.SubElement(node, "parameters").text = _numbers([*columns, *leak])
    genie = ET.SubElement(ET.SubElement(smile, "extensions"), "genie", version="1.0", app="whatelse", name="whatelse")
    for place, (identifier, name) in enumerate(
        zip([*conditions, *findings], [*model.conditions, *model.findings], strict=True)
    ):
        shown = ET.SubElement(genie, "node", id=identifier)
        ET.SubElement(shown, "name").text = re.sub(r"[\x00-\x1f\x7f]", " ", name)  # XML has no such characters
        x, y = 20 + 130 * (place % ACROSS), 20 + 70 * (place // ACROSS)
        ET.SubElement(shown, "position").text = f"{x} {y} {x + 110} {y + 50}"
    ET.indent(smile)
    write_whole(Path(path), ET.tostring(smile, encoding="UTF-8", xml_declaration=True) + b"\n")


def to_jgum(model: ModelFile, path: str | os.PathLike[str]) -> None:
    """Write the network for `pyagrum.loadBN("model.jgum")` (pyAgrum 3 and later); O(edges).

    A causal weight is 1 - f and the external weight is the leak, as in pyAgrum's `addNoisyORNet`.
    """
    conditions, findings = _identifiers(model, Path(path))
    noisyor = model.model.noisyor
    parents: dict[str, list[str]] = {name: [] for name in conditions}
    tables: dict[str, object] = {
        name: [1.0 - float(prior), float(prior)] for name, prior in zip(conditions, noisyor.prior, strict=True)
    }
    for j, name in enumerate(findings):
        causes = {conditions[i]: 1.0 - float(noisyor.fail[i, j]) for i in np.flatnonzero(noisyor.fail[:, j] < 1)}
        leak = float(noisyor.leak[j])
        parents[name] = list(causes)
        tables[name] = (
            {"kind": "ici", "name": "MultiDimNoisyORNet", "externalWeight": leak, "causalWeights": causes}
            if causes
            else [1.0 - leak, leak]
        )
    network = {
        "type": "BN",
        "GumJsonVersion": "1.0",
        "nodes": [f"{name}{{absent|present}}" for name in [*conditions, *findings]],
        "parents": parents,
        "cpt": tables,
        "properties": {"name": "whatelse", "software": f"whatelse {__version__}"},
    }
    write_whole(Path(path), json.dumps(network, indent=1).encode())


def _identifiers(model: ModelFile, path: Path) -> tuple[list[str], list[str]]:
    """`condition_…` and `finding_…`: letters, digits, underscores, each once. Refuses what cannot be expressed."""
    for problem, there in (
        ("findings with a weight other than one", (model.model.noisyor.weight != 1).any()),
        ("couplings between conditions", model.model.noisyor.coupling.any()),
        ("evidence added to the log odds", not model.model.evidence.says_nothing),
    ):
        if there:
            raise ModelFileError(
                f"{path}: not written: the model has {problem}, which a noisy-or network in this format cannot say; "
                "export a model learned without"
            )
    taken: set[str] = set()
    found: list[list[str]] = []
    for kind, names in (("condition", model.conditions), ("finding", model.findings)):
        found.append([])
        for name in names:
            base = f"{kind}_{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_')}".rstrip("_")
            identifier, copy = base, 2
            while identifier in taken:
                identifier, copy = f"{base}_{copy}", copy + 1
            taken.add(identifier)
            found[-1].append(identifier)
    return found[0], found[1]


def _node(nodes: ET.Element, kind: str, name: str, probabilities: list[float] | None = None) -> ET.Element:
    node = ET.SubElement(nodes, kind, id=name)
    for state in ("present", "absent"):
        ET.SubElement(node, "state", id=state)
    if probabilities is not None:
        ET.SubElement(node, "probabilities").text = _numbers(probabilities)
    return node


def _numbers(values: list[float]) -> str:
    return " ".join(repr(float(value)) for value in values)
