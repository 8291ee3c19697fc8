"""Exported networks read back to the same parameters, and mean the same distribution."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import reference_gibbs as reference
from whatelse.errors import ModelFileError
from whatelse.model.export import to_jgum, to_xdsl
from whatelse.model.file import ModelFile
from whatelse.noisyor import JointModel, NoisyOr
from whatelse.noisyor.evidence import Evidence


def named(noisyor: NoisyOr, **changes: object) -> ModelFile:
    m, n = noisyor.m, noisyor.n
    content: dict = dict(
        model=JointModel.plain(noisyor),
        conditions=("uti", "fall", "fall!", "été <&> \x01")[:m],
        findings=tuple(["neg:fever", "neg fever", "uti", *(f"age:{10 * j}-{10 * j + 10}" for j in range(n - 3))]),
        anchor_columns=np.arange(m),
        noise={name: np.full(m, 0.1) for name in ("prior", "sensitivity", "false_positive")},
    )
    return ModelFile(**{**content, **changes})


@pytest.fixture
def model(rng: np.random.Generator) -> ModelFile:
    plain = reference.random_model(rng, 4, 7, plain=True)
    fail, leak = plain.fail.copy(), plain.leak.copy()
    fail[:, 5] = 1.0  # a finding without parents
    fail[0, 1], leak[1] = 0.0, 0.0  # certain edge, no leak
    return named(NoisyOr(plain.prior, fail, leak))


def read_xdsl(path: Path) -> tuple[NoisyOr, dict[str, str]]:
    """A small reader by the layout that SMILE documents; returns the model and identifier -> name."""
    root = ET.parse(path).getroot()
    nodes = {node.get("id"): node for node in root.find("nodes")}
    assert all([state.get("id") for state in node.findall("state")] == ["present", "absent"] for node in nodes.values())
    conditions = [name for name in nodes if name.startswith("condition")]
    findings = [name for name in nodes if name.startswith("finding")]
    prior = [float(nodes[name].find("probabilities").text.split()[0]) for name in conditions]
    fail, leak = np.ones((len(conditions), len(findings))), np.zeros(len(findings))
    for j, name in enumerate(findings):
        node = nodes[name]
        if node.tag == "cpt":
            leak[j] = float(node.find("probabilities").text.split()[0])
            continue
        parents = node.find("parents").text.split()
        assert node.find("strengths").text.split() == ["0", "1"] * len(parents)
        table = np.array(node.find("parameters").text.split(), float).reshape(2 * len(parents) + 1, 2)
        np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-15)
        np.testing.assert_array_equal(table[1:-1:2], [[0.0, 1.0]] * len(parents))
        for k, parent in enumerate(parents):
            fail[conditions.index(parent), j] = table[2 * k, 1]
        leak[j] = table[-1, 0]
    shown = {node.get("id"): node.find("name").text for node in root.find("extensions/genie")}
    assert shown.keys() == nodes.keys()
    return NoisyOr(prior, fail, leak), shown


def test_xdsl_reads_back_exactly(model: ModelFile, tmp_path: Path) -> None:
    to_xdsl(model, tmp_path / "model.xdsl")
    found, names = read_xdsl(tmp_path / "model.xdsl")
    for name in ("prior", "fail", "leak"):
        np.testing.assert_array_equal(getattr(found, name), getattr(model.model.noisyor, name))
    assert list(names.values())[:3] == ["uti", "fall", "fall!"]
    assert all(identifier.isidentifier() and identifier.isascii() for identifier in names)


def test_jgum_reads_back(model: ModelFile, tmp_path: Path) -> None:
    to_jgum(model, tmp_path / "model.jgum")
    network = json.loads((tmp_path / "model.jgum").read_text())
    names = [node.removesuffix("{absent|present}") for node in network["nodes"]]
    conditions, findings = names[:4], names[4:]
    assert [network["cpt"][name][1] for name in conditions] == model.model.noisyor.prior.tolist()
    for j, name in enumerate(findings):
        table = network["cpt"][name]
        if isinstance(table, list):
            assert table[1] == model.model.noisyor.leak[j] and network["parents"][name] == []
            continue
        assert table["externalWeight"] == model.model.noisyor.leak[j]
        assert list(table["causalWeights"]) == network["parents"][name]
        fail = [1 - table["causalWeights"].get(parent, 0.0) for parent in conditions]
        np.testing.assert_allclose(fail, model.model.noisyor.fail[:, j], rtol=1e-14)


def test_pyagrum_reads_the_same_distribution(model: ModelFile, tmp_path: Path) -> None:
    pyagrum = pytest.importorskip("pyagrum", reason="pyAgrum is in the bench extra")
    to_jgum(model, tmp_path / "model.jgum")
    network = pyagrum.loadBN(str(tmp_path / "model.jgum"))
    names = list(json.loads((tmp_path / "model.jgum").read_text())["cpt"])
    for j, name in enumerate(names[4:]):
        for y in product((0, 1), repeat=4):
            given = {parent: y[i] for i, parent in enumerate(names[:4]) if parent in network.cpt(name).names}
            chance = network.cpt(name)[given][1]
            assert chance == pytest.approx(reference.chance(model.model.noisyor, y, j), abs=1e-6)
    states, weights = reference.posterior(model.model.noisyor, present=(0, 3))
    inference = pyagrum.LazyPropagation(network)
    inference.setEvidence({name: int(j in (0, 3)) for j, name in enumerate(names[4:])})
    found = [inference.posterior(name)[1] for name in names[:4]]
    np.testing.assert_allclose(found, weights @ states, atol=1e-5)


@pytest.mark.parametrize("write", [to_xdsl, to_jgum])
def test_what_cannot_be_said_is_refused(model: ModelFile, tmp_path: Path, write: object) -> None:
    core = model.model.noisyor
    coupling = np.zeros((4, 4))
    coupling[0, 1] = coupling[1, 0] = 0.5
    for changed, message in (
        (named(NoisyOr(core.prior, core.fail, core.leak, weight=np.full(7, 0.5))), "a weight other than one"),
        (named(NoisyOr(core.prior, core.fail, core.leak, coupling=coupling)), "couplings between conditions"),
        (named(core, model=JointModel(core, replace(Evidence.none(4, 7), weight=np.ones((4, 7))))), "evidence added"),
    ):
        with pytest.raises(ModelFileError, match=message):
            write(changed, tmp_path / "model")
        assert not (tmp_path / "model").exists()


def test_a_network_of_the_papers_size_is_small(rng: np.random.Generator, tmp_path: Path) -> None:
    fail = rng.uniform(0.1, 0.9, (4, 1003))
    model = named(NoisyOr(np.full(4, 0.1), fail, np.full(1003, 0.01)))
    to_xdsl(model, tmp_path / "model.xdsl")
    assert (tmp_path / "model.xdsl").stat().st_size < 1e6
    np.testing.assert_array_equal(read_xdsl(tmp_path / "model.xdsl")[0].fail, fail)
