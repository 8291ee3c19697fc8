"""The model file: safetensors with a JSON header, safe to open wherever it comes from.

Layout (docs/model-file.md): 8 bytes of header length, a JSON header, raw little-endian arrays. The header's
`__metadata__` has one entry, `whatelse`: canonical JSON with the schema version, names, vocabulary, how the model was
learned and a SHA-256 digest over all of that and every array. Loading runs nothing from the file, judges a header of at
most `MAX_HEADER` bytes before it reads an array, and checks everything before anything is used. The file is not mapped
into memory: truncating a mapped file under a running server ends the process (SIGBUS).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from whatelse import __version__
from whatelse.errors import ModelError, ModelFileError
from whatelse.io.files import write_whole
from whatelse.io.limits import limit
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import NoisyOr

SCHEMA = 3  # 2: no `absence` and no silence; 1: evidence among extra arrays
NOISE = ("prior", "sensitivity", "false_positive")
CORE = ("prior", "fail", "leak", "weight", "coupling", "absence")
SILENCE = ("silence", "silence_base", "half_length", "company")  # of the evidence; left out where silence says nothing
EVIDENCE_OF_SCHEMA_1 = ("weight", "centre", "excuse", "anchor_columns", "anchor_log_odds")
MAX_HEADER = 16 * 2**20  # bytes; a vocabulary of 100,000 findings takes about 5 MB
MAX_ARRAYS = "WHATELSE_MAX_MODEL_BYTES"
ELSEWHERE = "copy it again from where it was saved"
_KEY = "whatelse"
GIVE = "give the file that 'whatelse fit' saved"  # what to do about a file that is no model
_FIELDS = {"schema", "version", "digest", "conditions", "findings", "vocabulary", "learned"}


@dataclass(frozen=True, eq=False)
class ModelFile:
    """All that is needed to tag a visit.

    model           the joint model: noisy-or and evidence
    conditions      m names; findings: n names, each once
    anchor_columns  (m,) which finding is the anchor of each condition; -1 for a condition without one
    noise           arrays (m,) `prior`, `sensitivity`, `false_positive`: the rates the anchors were given
    vocabulary      JSON: how a visit becomes findings; opaque here
    learned         JSON: learner, settings, history, data
    digest          SHA-256 of the content as it was loaded; empty for a model that was never saved
    version         of the library that wrote the file
    """

    model: JointModel
    conditions: tuple[str, ...]
    findings: tuple[str, ...]
    anchor_columns: NDArray[np.int64]
    noise: dict[str, NDArray[np.float64]]
    vocabulary: dict[str, Any] = field(default_factory=dict)
    learned: dict[str, Any] = field(default_factory=dict)
    digest: str = ""
    version: str = __version__

    def __post_init__(self) -> None:
        m, n = self.model.m, self.model.n
        for name, names, size in (("conditions", self.conditions, m), ("findings", self.findings, n)):
            if not isinstance(names, tuple) or not all(isinstance(entry, str) and entry for entry in names):
                raise ModelFileError(f"{name} must be a tuple of non-empty names")
            if len(names) != size:
                raise ModelFileError(f"{len(names)} {name} are named but the model has {size}")
            if len(set(names)) != size:
                twice = Counter(names).most_common(1)[0][0]
                raise ModelFileError(f"{name} must be named once each; {twice!r} is there more than once")
        columns = np.array(self.anchor_columns, np.int64)
        if columns.shape != (m,) or (m and (columns.min() < -1 or columns.max() >= n)):
            raise ModelFileError(f"anchor_columns must be {m} finding indices from 0 to {n - 1}, or -1 for no anchor")
        if set(self.noise) != set(NOISE):
            raise ModelFileError(f"noise has {sorted(self.noise)}, needs {sorted(NOISE)}")
        noise = {name: np.array(self.noise[name], np.float64) for name in NOISE}
        for name, rates in noise.items():
            if rates.shape != (m,) or not ((rates >= 0) & (rates <= 1)).all():
                raise ModelFileError(f"noise {name!r} must be {m} probabilities, one per condition")
        for value in (columns, *noise.values()):
            value.setflags(write=False)
        object.__setattr__(self, "anchor_columns", columns)
        object.__setattr__(self, "noise", noise)


def save(path: str | os.PathLike[str], model: ModelFile) -> str:
    """Write the model and return its digest; the same content always gives the same bytes."""
    path = Path(path)
    tensors = _tensors(model)
    named = {name: getattr(model, name) for name in ("conditions", "findings", "vocabulary", "learned")}
    header = {"schema": SCHEMA, "version": __version__, **named}
    header["digest"] = digest = _digest(path, header, tensors)
    data = write_tensors(tensors, metadata={_KEY: _canonical(path, header)})
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER:
        raise ModelFileError(
            f"{path}: names, vocabulary and history take {length:,} bytes, more than the {MAX_HEADER:,} a header may "
            "have; keep the learning history elsewhere"
        )
    write_whole(path, data)
    return digest


def load(path: str | os.PathLike[str]) -> ModelFile:
    """Read and check a model file; ModelFileError says what is wrong with it and what to do."""
    path = Path(path)
    header, tensors = read_file(path)
    if _digest(path, header, tensors) != header["digest"]:
        raise ModelFileError(f"{path}: the content does not match its SHA-256 digest: it was changed; {ELSEWHERE}")
    try:
        return _model(header, tensors)
    except (ModelError, ModelFileError) as error:
        raise ModelFileError(f"{path}: {error}; save the model again with a whatelse that checks it") from None


def _tensors(model: ModelFile) -> dict[str, NDArray[Any]]:
    core = {name: getattr(model.model.noisyor, name) for name in CORE}
    evidence = model.model.evidence
    names = [f.name for f in fields(evidence) if evidence.hears_silence or f.name not in SILENCE]
    said = {} if evidence.says_nothing else {f"evidence.{name}": getattr(evidence, name) for name in names}
    noise = {f"noise.{name}": rates for name, rates in model.noise.items()}
    everything = {**core, "anchor_columns": model.anchor_columns, **noise, **said}
    return {name: np.ascontiguousarray(everything[name]) for name in sorted(everything)}


def _model(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> ModelFile:
    """Dtypes and names of the arrays first; NoisyOr and ModelFile check shapes, ranges and NaN."""
    needed = {name: "float64" for name in CORE} | {f"noise.{name}": "float64" for name in NOISE}
    needed |= {"anchor_columns": "int64"}
    tensors = {name: value for name, value in tensors.items() if name != "frozen"}  # of 0.2: for its learners only
    if header["schema"] == 1:
        tensors = _from_schema_1(tensors)
    if header["schema"] < 3 and "weight" in tensors:
        tensors = {"absence": tensors["weight"], **tensors}
    said = {name.removeprefix("evidence."): value for name, value in tensors.items() if name.startswith("evidence.")}
    found = {name: str(value.dtype) for name, value in tensors.items() if not name.startswith("evidence.")}
    for name in sorted(needed.keys() | found.keys()):
        if name not in found:
            raise ModelFileError(f"the array {name!r} is missing")
        if name not in needed:
            raise ModelFileError(f"the array {name!r} is not one that schema {SCHEMA} knows")
        if found[name] != needed[name]:
            raise ModelFileError(f"the array {name!r} has dtype {found[name]}, needs {needed[name]}")
    noisyor = NoisyOr(**{name: tensors[name] for name in CORE})
    try:
        model = JointModel(noisyor, Evidence(**said)) if said else JointModel.plain(noisyor)
    except TypeError:
        raise ModelFileError("its evidence is damaged or incomplete") from None
    return ModelFile(
        model=model,
        conditions=tuple(header["conditions"]),
        findings=tuple(header["findings"]),
        anchor_columns=tensors["anchor_columns"],
        noise={name: tensors[f"noise.{name}"] for name in NOISE},
        **{name: header[name] for name in ("vocabulary", "learned", "digest", "version")},
    )


def _from_schema_1(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Schema 1 kept the evidence among extra arrays, of which it had any number; only whole evidence was used."""
    core = {name: value for name, value in tensors.items() if not name.startswith("extra.")}
    if not all(f"extra.evidence_{name}" in tensors for name in EVIDENCE_OF_SCHEMA_1):
        return core
    return core | {f"evidence.{name}": tensors[f"extra.evidence_{name}"] for name in EVIDENCE_OF_SCHEMA_1}


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The checked header and the arrays by name. Sizes and header are checked before the arrays are read."""
    if not path.is_file():
        raise ModelFileError(f"{path}: {'is a folder' if path.is_dir() else 'there is no such file'}; {GIVE}")
    try:
        with path.open("rb") as file:
            start, size = file.read(9), os.fstat(file.fileno()).st_size
            header = _header(path, start[8:] + file.read(header_length(path, start, size) - 1))
            if size - MAX_HEADER > (most := limit(MAX_ARRAYS)):
                raise ModelFileError(
                    f"{path}: has {size:,} bytes, more than the {most:,} allowed; set {MAX_ARRAYS} if that is right"
                )
            file.seek(0)
            tensors = read_tensors(file.read(size))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None
    except (SafetensorError, KeyError, ValueError):
        raise ModelFileError(f"{path}: its arrays cannot be read, or the file was cut short; {ELSEWHERE}") from None
    if any(value.dtype == np.bool_ and (value.view(np.uint8) > 1).any() for value in tensors.values()):
        raise ModelFileError(f"{path}: its arrays cannot be read (a truth value is neither 0 nor 1); {ELSEWHERE}")
    return header, tensors


def header_length(path: Path, start: bytes, size: int) -> int:
    """The length of the header, by the first nine bytes of a file of `size` bytes."""
    length = int.from_bytes(start[:8], "little")
    if len(start) < 9 or length < 2 or (length > size - 8 and start[8:] != b"{"):
        raise ModelFileError(f"{path}: not a model file ({size:,} bytes, no safetensors header); {GIVE}")
    if length > MAX_HEADER:
        raise ModelFileError(
            f"{path}: claims a header of {length:,} bytes, more than the {MAX_HEADER:,} allowed; not opened"
        )
    if length > size - 8:
        raise ModelFileError(f"{path}: cut short within its header; {ELSEWHERE}")
    return length


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        inner = json.loads(text)["__metadata__"][_KEY]
    except (TypeError, KeyError, ValueError, RecursionError):
        raise ModelFileError(f"{path}: not a model that whatelse saved; {GIVE}") from None
    try:
        header: dict[str, Any] = json.loads(inner)
    except (ValueError, TypeError, RecursionError):
        raise ModelFileError(f"{path}: its header is damaged; {ELSEWHERE}") from None
    schema = header.get("schema") if isinstance(header, dict) else None
    if type(schema) is not int or schema < 1:
        raise ModelFileError(f"{path}: its header has no schema version; {ELSEWHERE}")
    if schema > SCHEMA:
        raise ModelFileError(
            f"{path}: saved in schema {schema} by a newer whatelse; this one ({__version__}) reads schema {SCHEMA} and "
            "older: upgrade whatelse, or save the model with this version"
        )
    if unknown := sorted(header.keys() ^ _FIELDS):
        what = "lacks" if unknown[0] in _FIELDS else "has the unknown entry"
        raise ModelFileError(f"{path}: its header {what} {unknown[0]!r}; {ELSEWHERE}")
    kinds = {"conditions": list, "findings": list, "vocabulary": dict, "learned": dict, "digest": str, "version": str}
    for name, kind in kinds.items():
        if not isinstance(header[name], kind):
            raise ModelFileError(f"{path}: {name!r} in its header is not a {kind.__name__}; {ELSEWHERE}")
    return header


def _digest(path: Path, header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> str:
    """SHA-256 over the canonical header less the digest, then each array's name, dtype, shape and bytes by name."""
    hashed = hashlib.sha256(_canonical(path, {k: v for k, v in header.items() if k != "digest"}).encode())
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        hashed.update(f"\0{name}\0{value.dtype.str}\0{value.shape}\0".encode())
        hashed.update(value.data if value.size else b"")
    return hashed.hexdigest()


def _canonical(path: Path, header: dict[str, Any]) -> str:
    try:
        return json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: vocabulary and learned must be plain JSON ({error})") from None
