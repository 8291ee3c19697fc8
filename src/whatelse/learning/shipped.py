"""The shipped model: the knowledge base, compiled to a joint model with the vocabulary that reads its findings.

`emergency` has all conditions of the base; `emergency-23` the 23 of the paper, each with the entries it stands for.
Compiling takes seconds, so the result is kept in a cache folder (`WHATELSE_CACHE`, else the user's), under a digest of
the YAML files and of this version; a cache that cannot be read or written is passed over.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from whatelse.annotators import AnchorSet
from whatelse.annotators.anchors import Anchor
from whatelse.annotators.anchors import Condition as AnchoredCondition
from whatelse.cohort import Vocabulary
from whatelse.errors import WhatelseError
from whatelse.io.files import write_whole
from whatelse.knowledge import Knowledge, load_knowledge
from whatelse.knowledge.matching import match, merged
from whatelse.learning.knowledge_model import NAMED, KnowledgeNetwork, compile_knowledge, knowledge_model
from whatelse.noisyor.joint import JointModel
from whatelse.text.lexicon import Lexicon
from whatelse.types import Floats
from whatelse.visits import TEXT_FIELDS

NAMES = ("emergency", "emergency-23")
VISITS = 1_000_000  # visits that the rates of the base are counts of
CACHE = "WHATELSE_CACHE"
COMPILED_BY = ("knowledge_model.py", "shipped.py", "lexicon.py", "base.py")
MATRICES = ("fail", "linear", "silence", "company")


@dataclass(frozen=True, slots=True)
class Profile:
    """What people are told of a condition besides its probability."""

    title: str
    kind: str
    danger: int
    share: float
    settle: str = ""
    wider: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ShippedModel:
    """A model made of knowledge alone: joint model, vocabulary, noise rates of the conditions' names, profiles."""

    model: JointModel
    vocabulary: Vocabulary
    prior: Floats
    sensitivity: Floats
    false_positive: Floats
    profiles: Mapping[str, Profile]
    titles: Mapping[str, str]
    digest: str


@lru_cache(maxsize=2)
def load_shipped(name: str) -> ShippedModel:
    """`emergency` or `emergency-23`, from the cache if it is there."""
    digest = _digest(name)
    path = _cache_folder() / f"{digest[:24]}.json.gz"
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        return _assemble(content, digest)
    except (OSError, ValueError, KeyError, TypeError, WhatelseError):
        base = load_knowledge()
        content = _content(base, the_23(base) if name == "emergency-23" else base)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, gzip.compress(json.dumps(content).encode(), 6))
    except (OSError, WhatelseError):
        pass  # nobody's home folder need be writable
    return _assemble(content, digest)


def shipped_model(base: Knowledge, asked: Knowledge) -> ShippedModel:
    """The model of the conditions of `asked`, reading notes with all concepts of `base`. Not cached."""
    return _assemble(_content(base, asked), "")


def the_23(base: Knowledge) -> Knowledge:
    """The paper's 23 conditions, each merged of the entries that its name or codes stand for."""
    conditions = {}
    for condition in AnchorSet.shipped().conditions:
        phrases = [anchor.value for anchor in condition.anchors if anchor.how == "phrase"]
        parts = match(base, condition.name, phrases, condition.codes)
        conditions[condition.name] = merged(base, condition.name, condition.title, parts)
    return replace(base, conditions=conditions)


def _content(base: Knowledge, asked: Knowledge) -> dict[str, Any]:
    """Everything that the model is made of, as JSON values; matrices by their entries that say something."""
    net = compile_knowledge(asked)
    arrays: dict[str, Any] = {}
    for part in fields(net):
        value = getattr(net, part.name)
        if part.name in MATRICES:
            filled = sparse.coo_array(1.0 - value if part.name == "fail" else value)
            arrays[part.name] = [filled.row.tolist(), filled.col.tolist(), filled.data.tolist()]
        else:
            arrays[part.name] = list(value) if isinstance(value, tuple) else value.tolist()
    anchors = AnchorSet(tuple(_anchored(asked, name) for name in net.conditions))
    profiles = {
        c.name: asdict(Profile(c.title, c.kind, c.danger, c.share, c.settle, asked.wider(c.name)))
        for c in asked.conditions.values()
    }
    titles = {name: base.title(name) for name in net.names if not name.startswith("anchor:")}
    lexicon = Lexicon.from_knowledge(base).to_json()
    return {"arrays": arrays, "anchors": anchors.to_json(), "lexicon": lexicon, "profiles": profiles, "titles": titles}


def _assemble(content: dict[str, Any], digest: str) -> ShippedModel:
    arrays = dict(content["arrays"])
    shape = (len(arrays["conditions"]), len(arrays["names"]))
    for name in MATRICES:
        row, column, data = arrays[name]
        square = (shape[0], shape[0]) if name == "company" else shape
        matrix = np.zeros(square)
        matrix[row, column] = data
        arrays[name] = 1.0 - matrix if name == "fail" else matrix
    parts: dict[str, Any] = {name: np.array(value) for name, value in arrays.items()}
    net = KnowledgeNetwork(**(parts | {name: tuple(arrays[name]) for name in ("conditions", "names")}))
    profiles = {
        name: Profile(**profile | {"wider": tuple(profile["wider"])}) for name, profile in content["profiles"].items()
    }
    vocabulary = Vocabulary(
        net.names,
        np.round(net.rates * VISITS).astype(np.int64),
        VISITS,
        AnchorSet.from_json(content["anchors"], source="knowledge"),
        lexicon=Lexicon.from_json(content["lexicon"]),
    )
    m = shape[0]
    share = np.array([profiles[name].share for name in net.conditions])
    named = np.full(m, NAMED)
    false_positive = net.leak[shape[1] - m :].copy()
    model = knowledge_model(net)
    return ShippedModel(model, vocabulary, share, named, false_positive, profiles, content["titles"], digest)


def _anchored(base: Knowledge, name: str) -> AnchoredCondition:
    """A condition with its own names as anchors."""
    condition = base.conditions[name]
    concept = base.concepts.get(name)
    phrases = dict.fromkeys((*condition.names, *(concept.same if concept else ())))
    anchors = tuple(Anchor("phrase", phrase, TEXT_FIELDS) for phrase in phrases)
    kind = "history" if condition.kind in ("chronic", "social") else "acute"
    return AnchoredCondition(name, condition.title, kind, condition.codes, anchors)  # type: ignore[arg-type]


def _digest(name: str) -> str:
    """SHA-256 of all that the shipped model is made of: YAML, rules and the code that compiles them."""
    total = hashlib.sha256(name.encode())
    for package in ("whatelse.knowledge", "whatelse.text", "whatelse.learning"):
        waiting = sorted(files(package).iterdir(), key=lambda entry: entry.name)
        while waiting:
            entry = waiting.pop(0)
            if entry.is_dir():
                waiting += sorted(entry.iterdir(), key=lambda inner: inner.name)
            elif entry.name.endswith(".yaml") or entry.name in COMPILED_BY:
                total.update(entry.name.encode())
                total.update(entry.read_bytes())
    return total.hexdigest()


def _cache_folder() -> Path:
    given = os.environ.get(CACHE)
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whatelse"
