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

from whatelse.annotators import Anchor, AnchorSet, NoiseRates
from whatelse.annotators import Condition as AnchoredCondition
from whatelse.cohort import Vocabulary
from whatelse.cohort.proposal import anchored_condition
from whatelse.errors import ConditionError, WhatelseError
from whatelse.io.files import write_whole
from whatelse.knowledge import Knowledge, load_knowledge
from whatelse.knowledge.base import asked_of
from whatelse.knowledge.entries import Condition, plain
from whatelse.knowledge.matching import merged, stands_for
from whatelse.learning.knowledge_model import (
    NAMED,
    NAMED_SYMPTOM,
    KnowledgeNetwork,
    compile_knowledge,
    knowledge_model,
    wider_findings,
)
from whatelse.noisyor.joint import JointModel
from whatelse.text.lexicon import Lexicon
from whatelse.visits import TEXT_FIELDS

NAMES = ("emergency", "emergency-23")
VISITS = 1_000_000  # visits that the rates of the base are counts of
CACHE = "WHATELSE_CACHE"
COMPILED_BY = ("knowledge_model.py", "shipped.py", "lexicon.py", "base.py")
ASKED_KINDS = ("symptom", "sign", "quality", "exposure", "history", "mechanism", "result")
NAMED_IN = (*TEXT_FIELDS, "coded")  # where a condition's name is looked for: in notes, and in the labels of codes
MATRICES = ("fail", "linear", "silence", "company")


@dataclass(frozen=True, slots=True)
class Profile:
    """What the page shows of a condition besides its probability."""

    title: str
    kind: str
    danger: int
    share: float
    settle: str = ""
    wider: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()  # findings that its entry names and that can be asked, examined or tested


@dataclass(frozen=True, eq=False)
class ShippedModel:
    """A model made of knowledge alone: joint model, vocabulary, noise rates of the conditions' names, profiles."""

    model: JointModel
    vocabulary: Vocabulary
    rates: NoiseRates
    profiles: Mapping[str, Profile]
    titles: Mapping[str, str]
    wider: Mapping[str, tuple[str, ...]]
    ages: Mapping[str, tuple[float, float]]  # finding -> ages between which it is asked about
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


def the_23(base: Knowledge) -> Knowledge:
    """The paper's 23 conditions, each merged of the entries that its name or codes stand for."""
    return matched(base, AnchorSet.shipped())[0]


def matched(base: Knowledge, wanted: AnchorSet) -> tuple[Knowledge, tuple[str, ...]]:
    """The base with conditions of one's own, each merged of the entries that its name, title, codes or phrases stand
    for; and the names of those that the base does not know."""
    conditions, unknown = {}, []
    for condition in wanted.conditions:
        if parts := stands_for(base, condition.name, condition.phrases, condition.codes, condition.title):
            own = merged(base, condition.name, condition.title, parts)
            called = [name for name in (plain(condition.name),) if name in base.phrases]
            names = tuple(dict.fromkeys([*map(plain, parts), *called, *own.names]))  # so that its phrases find it again
            conditions[condition.name] = replace(own, codes=dict(condition.codes), names=names)
        else:
            unknown.append(condition.name)
    if not conditions:
        raise ConditionError("the knowledge base knows none of these conditions; see 'whatelse conditions list'")
    return replace(base, conditions=conditions), tuple(unknown)


def model_for(wanted: AnchorSet) -> tuple[ShippedModel, tuple[str, ...]]:
    """The model of conditions of one's own, made of knowledge alone; and the names of those that the base does not
    know. Anchors of one's own count as names. Conditions that `model_for` made before are matched with the same
    entries again."""
    base = load_knowledge()
    asked, unknown = matched(base, wanted)
    return _assemble(_content(base, asked, {c.name: c.anchors for c in wanted.conditions}), ""), unknown


def _content(base: Knowledge, asked: Knowledge, more: Mapping[str, tuple[Anchor, ...]] | None = None) -> dict[str, Any]:
    """Everything that the model is made of, as JSON values; matrices by their entries that say something.

    more  further anchors of conditions, by name
    """
    net = compile_knowledge(base, list(asked.conditions.values()))
    arrays: dict[str, Any] = {}
    for part in fields(net):
        value = getattr(net, part.name)
        if part.name in MATRICES:
            filled = sparse.coo_array(1.0 - value if part.name == "fail" else value)
            arrays[part.name] = [filled.row.tolist(), filled.col.tolist(), filled.data.tolist()]
        else:
            arrays[part.name] = list(value) if isinstance(value, tuple) else value.tolist()
    named = [anchored_condition(asked, name, NAMED_IN) for name in net.conditions]
    anchors = AnchorSet(tuple(_with_anchors(condition, (more or {}).get(condition.name, ())) for condition in named))
    profiles = {
        c.name: asdict(Profile(c.title, c.kind, c.danger, c.share, c.settle, asked.wider(c.name), asks(base, c)))
        for c in asked.conditions.values()
    }
    titles = {name: base.title(name) for name in net.names if not name.startswith("anchor:")}
    wider = {name: [w for w in wider_findings(base, name) if w in titles] for name in titles if ":" not in name}
    return {
        "arrays": arrays,
        "anchors": anchors.to_json(),
        "lexicon": Lexicon.from_knowledge(base).to_json(),
        "profiles": profiles,
        "titles": titles,
        "wider": {name: some for name, some in wider.items() if some},
        "ages": {name: ages for name, ages in asked_of().items() if name in titles},
    }


def _with_anchors(condition: AnchoredCondition, more: tuple[Anchor, ...]) -> AnchoredCondition:
    """The condition with further anchors; a phrase that is an anchor already is not added again."""
    known = {plain(anchor.value) for anchor in condition.anchors}
    new = [anchor for anchor in more if anchor.how != "phrase" or plain(anchor.value) not in known]
    return replace(condition, anchors=(*condition.anchors, *new))


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
        name: Profile(**profile | {part: tuple(profile[part]) for part in ("wider", "asks")})
        for name, profile in content["profiles"].items()
    }
    wider = {name: tuple(some) for name, some in content["wider"].items()}
    vocabulary = Vocabulary(
        net.names,
        np.round(net.rates * VISITS).astype(np.int64),
        VISITS,
        AnchorSet.from_json(content["anchors"], source="knowledge"),
        lexicon=Lexicon.from_json(content["lexicon"]),
    )
    m = shape[0]
    share = np.array([profiles[name].share for name in net.conditions])
    named = np.array([NAMED_SYMPTOM if profiles[name].kind == "symptom" else NAMED for name in net.conditions])
    leak = net.leak[shape[1] - m :].copy()
    rates = NoiseRates.from_given(vocabulary.conditions, prior=share, sensitivity=named, false_positive=leak)
    model, titles = knowledge_model(net), content["titles"]
    ages = {name: (low, high) for name, (low, high) in content["ages"].items()}
    return ShippedModel(model, vocabulary, rates, profiles, titles, wider, ages, digest)


def asks(base: Knowledge, condition: Condition) -> tuple[str, ...]:
    """Findings of an entry that a person can be asked about, examined or tested for, and exposures that put at risk."""
    own = [*condition.findings, *condition.proof]
    kinds = {name: concept.kind for name in (*own, *condition.risk) if (concept := base.concept(name)) is not None}
    asked = [name for name in own if kinds.get(name) in ASKED_KINDS]
    asked += [name for name in condition.risk if kinds.get(name) in ("exposure", "history")]
    return tuple(name for name in dict.fromkeys(asked) if not name.startswith("lasting_") and name != "asymptomatic")


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
