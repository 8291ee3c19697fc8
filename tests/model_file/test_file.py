"""A model file comes back as it was saved; a file that is not one is refused with a reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

import whatelse.model_file.file as modelfile
from whatelse import __version__
from whatelse.errors import ModelFileError, OutputError
from whatelse.model_file.file import ModelFile, load, save
from whatelse.noisyor import JointModel, NoisyOr
from whatelse.noisyor.evidence import Evidence
from whatelse.tagger import Tagger
from whatelse.visits import Visit

KEPT = Path(__file__).parents[1] / "data"
PRESENT = [2, 5, 6, 7, 9, 14, 16, 17, 18, 19, 32, 34, 47, 54]


EVIDENCE = Evidence(
    weight=np.arange(6.0).reshape(2, 3),
    centre=np.array([0.5, 0.25, 0.125]),
    excuse=np.array([[False, False, True], [False, False, False]]),
    anchor_columns=np.array([0, 1]),
    anchor_log_odds=np.array([[-0.5, -0.25], [2.0, 3.0]]),
)


def small(**changes: Any) -> ModelFile:
    """Two conditions, three findings, numbers that are exact in binary."""
    content: dict[str, Any] = dict(
        model=NoisyOr(
            prior=[0.125, 0.25],
            fail=[[0.5, 1.0, 0.75], [1.0, 0.25, 1.0]],
            leak=[0.0625, 0.03125, 0.5],
            weight=[1.0, 1.0, 0.5],
            coupling=[[0.0, -0.5], [-0.5, 0.0]],
        ),
        conditions=("uti", "fall — chute"),
        findings=("anchor:uti", "anchor:fall", "neg:fever"),
        anchor_columns=np.array([0, 1]),
        noise=dict(prior=[0.125, 0.25], sensitivity=[0.5, 0.75], false_positive=[0.0625, 0.03125]),
        vocabulary={"min_count": 10, "order": ["b", "a"]},
        learned={"learner": "em", "history": [-3.5, -2.25], "data": {"visits": 1000}},
    )
    content |= changes
    if isinstance(content["model"], NoisyOr):
        content["model"] = JointModel(content["model"], EVIDENCE)
    return ModelFile(**content)


def same(a: ModelFile, b: ModelFile) -> None:
    for name in modelfile.CORE:
        np.testing.assert_array_equal(getattr(a.model.noisyor, name), getattr(b.model.noisyor, name))
    for field in fields(Evidence):
        np.testing.assert_array_equal(getattr(a.model.evidence, field.name), getattr(b.model.evidence, field.name))
    np.testing.assert_array_equal(a.anchor_columns, b.anchor_columns)
    for name in ("conditions", "findings", "vocabulary", "learned"):
        assert getattr(a, name) == getattr(b, name)
    assert a.noise.keys() == b.noise.keys()
    for name in a.noise:
        np.testing.assert_array_equal(a.noise[name], b.noise[name])


def rewrite(
    path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], object], *, seal: bool = True
) -> Path:
    """Change header or arrays of a saved file; with `seal`, give it the digest that fits."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["whatelse"])
    tensors = read_tensors(data)
    change(header, tensors)
    if seal:
        header["digest"] = modelfile._digest(path, header, tensors)
    path.write_bytes(write_tensors(tensors, {"whatelse": json.dumps(header)}))
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(tmp_path / "small.model", small())
    return tmp_path / "small.model"


def test_what_is_saved_is_what_is_loaded(saved: Path) -> None:
    model = load(saved)
    same(model, small())
    assert len(model.digest) == 64 and model.version == __version__
    assert not model.model.noisyor.fail.flags.writeable and not model.model.evidence.weight.flags.writeable


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    digests = [save(tmp_path / name, small()) for name in ("a", "b")]
    again = small(vocabulary={"order": ["b", "a"], "min_count": 10})
    digests.append(save(tmp_path / "c", again))
    digests.append(save(tmp_path / "d", load(tmp_path / "a")))
    assert len(set(digests)) == 1
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1
    other = small(noise={**small().noise, "prior": [0.125, 0.5]})
    assert save(tmp_path / "e", other) not in digests


def test_files_of_older_schemas_stay_readable() -> None:
    """Kept since 0.1.0. Never write them again: a new schema gets new files beside them."""
    same(load(KEPT / "model-schema-1.safetensors"), small(model=JointModel.plain(small().model.noisyor)))
    tagger = Tagger.load(KEPT / "model-schema-1-tagger.safetensors")
    assert tagger.digest_.startswith("c646ed9137bd") and tagger.tolerance == 1e-3
    x = sp.csr_matrix((np.ones(14, np.uint8), (np.zeros(14, int), PRESENT)), (1, len(tagger.vocabulary_.names)))
    said = [0.007584, 0.025028, 0.047685, 0.007854, 0.016159, 0.021947]  # by 0.1.0
    np.testing.assert_allclose(tagger.predict_proba(x)[0], said, atol=2e-6)


def test_a_model_of_version_0_2_answers_as_it_did() -> None:
    tagger = Tagger.load(KEPT / "model-schema-2-tagger.safetensors")
    note = "pt fell at home, denies loc. cough and fever x3 days, foul urine"
    visit = Visit("a", age=80, sex="F", chief_complaint="fever, weakness", triage_note=note)
    np.testing.assert_allclose(tagger.predict_proba([visit])[0], [0.576243, 0.363472, 0.01123], atol=2e-6)  # by 0.2.0
    tags = {tag.condition: tag.probability for tag in tagger.suggest(visit, confirmed=["fall"]).tags}
    assert tags == pytest.approx({"uti": 0.573865, "pneumonia": 0.010439}, abs=2e-6)


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"cannot be written \(No space left"):
        save(saved, small(learned={}))
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_saving_needs_a_folder_and_plain_json(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        save(tmp_path / "missing" / "model", small())
    for wrong in ({"path": Path("x")}, {"loss": float("nan")}):
        with pytest.raises(ModelFileError, match="must be plain JSON"):
            save(tmp_path / "model", small(learned=wrong))


def test_every_flipped_byte_and_every_cut_is_noticed(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    broken = tmp_path / "broken"
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        broken.write_bytes(flipped)
        with pytest.raises(ModelFileError, match="broken: "):
            load(broken)
    for length in range(0, len(data), 7):
        broken.write_bytes(data[:length])
        with pytest.raises(ModelFileError, match="broken: "):
            load(broken)


def test_files_that_are_not_model_files(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        load(tmp_path / "missing")
    with pytest.raises(ModelFileError, match="is a folder; give the file"):
        load(tmp_path)
    path = tmp_path / "file"
    for content in (b"", b"{}", b"visit,age\n1,40\n" * 100, bytes(1000), os.urandom(5000), b"\x80\x04\x95pickle" * 9):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match="file: "):
            load(path)
    path.write_bytes(write_tensors({"x": np.zeros(3)}))
    with pytest.raises(ModelFileError, match="not a model that whatelse saved"):
        load(path)
    path.write_bytes(write_tensors({"x": np.zeros(3)}, {"whatelse": "[" * 200_000}))
    with pytest.raises(ModelFileError, match="header is damaged"):
        load(path)


@pytest.mark.parametrize("really", [True, False])
def test_a_huge_header_is_refused_before_it_is_read(tmp_path: Path, really: bool) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.write((100 * 2**20).to_bytes(8, "little") + b"{")
        file.truncate(101 * 2**20 if really else 1000)  # sparse: takes no space
    with pytest.raises(ModelFileError, match=r"claims a header of 104,857,600 bytes, more than the 16,777,216"):
        load(path)


def test_a_large_vocabulary_fits(tmp_path: Path) -> None:
    n = 50_000
    model = small(
        model=JointModel.plain(NoisyOr(prior=[0.1, 0.2], fail=np.full((2, n), 0.5), leak=np.full(n, 0.1))),
        findings=tuple(f"hx:a rather long drug name {j}" for j in range(n)),
    )
    save(tmp_path / "large", model)
    assert load(tmp_path / "large").findings == model.findings
    with pytest.raises(ModelFileError, match="more than the 16,777,216 a header may have"):
        save(tmp_path / "larger", small(learned={"history": ["x" * 1000] * 20_000}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(schema=4), "saved in schema 4 by a newer whatelse.*upgrade whatelse"),
        (lambda h, t: h.update(schema=0), "no schema version"),
        (lambda h, t: h.update(schema="1"), "no schema version"),
        (lambda h, t: h.update(code="import os"), "unknown entry 'code'"),
        (lambda h, t: h.pop("learned"), "lacks 'learned'"),
        (lambda h, t: h.update(vocabulary=[]), "'vocabulary' in its header is not a dict"),
        (lambda h, t: h.update(conditions=["uti", "uti"]), "conditions must be named once each; 'uti'"),
        (lambda h, t: h.update(conditions=["uti", 3]), "conditions must be a tuple of non-empty names"),
        (lambda h, t: h.update(findings=["a", "b"]), "2 findings are named but the model has 3"),
        (lambda h, t: t.pop("leak"), "the array 'leak' is missing"),
        (lambda h, t: t.update(more=np.zeros(2)), "the array 'more' is not one that schema 3 knows"),
        (lambda h, t: t.update(leak=t["leak"].astype(np.float32)), "'leak' has dtype float32, needs float64"),
        (lambda h, t: t["fail"].__setitem__((1, 2), np.nan), "fail of condition 1, finding 2 is nan"),
        (lambda h, t: t.update(prior=np.array([0.1])), "prior has 1 conditions but fail has 2 rows"),
        (lambda h, t: t.update(anchor_columns=np.array([0, 3])), "anchor_columns must be 2 finding indices"),
        (lambda h, t: t["noise.prior"].__setitem__(0, np.nan), "noise 'prior' must be 2 probabilities"),
        (lambda h, t: t["evidence.weight"].__setitem__((0, 0), np.nan), "weight of the evidence must be finite"),
        (lambda h, t: t.pop("evidence.centre"), "its evidence is damaged or incomplete"),
    ],
)
def test_wrong_content_is_refused_even_with_the_right_digest(saved: Path, change: Any, message: str) -> None:
    with pytest.raises(ModelFileError, match=f"small.model: .*{message}"):
        load(rewrite(saved, change))


def test_a_changed_number_does_not_match_the_digest(saved: Path) -> None:
    with pytest.raises(ModelFileError, match="does not match its SHA-256 digest"):
        load(rewrite(saved, lambda header, tensors: tensors["fail"].__setitem__((0, 0), 0.25), seal=False))


def test_a_model_that_could_not_be_saved_cannot_be_made() -> None:
    with pytest.raises(ModelFileError, match=r"noise has \['prior'\]"):
        small(noise={"prior": np.array([0.1, 0.2])})
    assert small(anchor_columns=[0, -1]).anchor_columns[1] == -1
