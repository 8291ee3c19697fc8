"""The department's content: the YAML files of `department/`, checked and made into arrays.

Rows are causes: the 23 conditions, then reasons for visit and illnesses beyond them. Columns are findings, section by
section. Probabilities are kept as rates z = -log(1 - p), which add where probabilities of noisy-or combine:

    P(X_j = 0 | y) = exp(-z_0j - sum_i y_i z_ij),       f_ij = exp(-z_ij),       1 - l_j = exp(-z_0j)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from importlib.resources import files
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from whatelse.visits import Code

Floats = NDArray[np.float64]
SECTIONS = ("symptom", "negative", "story", "history", "exam", "course", "home", "given")
AGES = (20.0, 50.0, 80.0)  # at which illnesses' prevalence is given
AGE_SHARES = (0.35, 0.35, 0.3)  # of visits near those ages, for prevalence regardless of age

SIGNAL, WORD_SIGNAL = 0.75, 0.35
"""Scale every rate with which a condition brings on a finding, in prose and in lists of words: the overall difficulty,
set once so that a model that is given the truth finds the held-out tag about as often as in the paper. Words of a list
are independent of one another, so they tell more than as many words of a note, and fewer of them must be shown."""

REASON_SIGNAL = 1.3
"""The same for reasons for visit beyond the 23."""

WORD_NOISE, WORD_FLOOR, WORD_CEILING = 3.0, 0.01, 0.4
"""Lists of words have this many times the leaks that the rest of the department explains, as rates between floor
and ceiling: about as many findings a visit as a note has, none too rare or too common to be in a vocabulary."""


@dataclass(frozen=True, eq=False)
class Department:
    """Everything the simulator knows.

    conditions   names of the m conditions; profiles of conditions, reasons and illnesses by name
    order        conditions with causes before what they bring on
    prior        (m,) share of visits;  acute (m,) bool
    reason_weight (r,), illness_at (i, 3): how common the rest are
    names        n findings as a vocabulary names them;  keys: as the YAML files do;  section (n,) index into SECTIONS
    edges        where each section begins, and the end
    rate         (m + r + i, n) and leak_rate (n,)
    phrases      per finding, how it is written; codes: the drug, for drugs
    billing      per cause, ICD-9 codes and their cumulative shares
    sensitivity, false_alarm  (m,) of the anchors;  mentions (m, m) rates with which row's notes
                 mention column's anchor;  hints (m, 2) columns of each condition's two commonest symptoms
    """

    conditions: tuple[str, ...]
    reasons: tuple[str, ...]
    illnesses: tuple[str, ...]
    profiles: Mapping[str, Mapping[str, Any]]
    order: tuple[int, ...]
    prior: Floats
    acute: NDArray[np.bool_]
    reason_weight: Floats
    illness_at: Floats
    names: tuple[str, ...]
    keys: tuple[str, ...]
    section: NDArray[np.intp]
    rate: Floats
    leak_rate: Floats
    phrases: tuple[tuple[str, ...], ...]
    codes: tuple[Code | None, ...]
    edges: tuple[int, ...]
    billing: tuple[tuple[tuple[Code, ...], tuple[float, ...]], ...]
    sensitivity: Floats
    false_alarm: Floats
    mentions: Floats
    hints: NDArray[np.intp]
    style: Mapping[str, Any]
    rules: Mapping[str, Sequence[Mapping[str, Any]]]

    def column(self, name: str) -> int:
        """The column of a finding's vocabulary name."""
        return self.names.index(name)


def read_yaml(name: str) -> Any:
    """One of the department's files."""
    return yaml.safe_load((files("whatelse.simulate") / "department" / name).read_text("utf-8"))


@lru_cache(maxsize=1)
def load() -> Department:
    """Read the files once."""
    conditions, outside = read_yaml("conditions.yaml"), read_yaml("outside.yaml")
    reasons, illnesses, leaks = outside["reasons"], outside["illnesses"], outside["leaks"]
    profiles = {**conditions, **{f"reason {k}": v for k, v in reasons.items()}}
    profiles |= {f"illness {k}": v for k, v in illnesses.items()}
    every = list(profiles.values())

    texts = read_yaml("findings.yaml")
    denied = {k for p in every for k in p.get("denies", ())} | set(leaks["negative"])
    columns: list[tuple[str, str, tuple[str, ...]]] = []  # section, key, phrases
    for section in SECTIONS:
        if section == "negative":
            plain = {k: [p for p in v or [k] if "{" not in p][:3] or [k] for k, v in texts["symptom"].items()}
            columns += [(section, k, tuple(v)) for k, v in plain.items() if k in denied]
        elif section in texts:
            columns += [(section, k, tuple(v or [k])) for k, v in texts[section].items()]
        else:
            drugs = {k: None for p in [*every, leaks] for k in p.get(section, ())}
            columns += [(section, k, (k,)) for k in sorted(drugs)]
    index = {(s if s in ("negative", "home", "given") else "findings", k): j for j, (s, k, _) in enumerate(columns)}

    rate = np.zeros((len(every), len(columns)))
    for row, profile in enumerate(every):
        scale = REASON_SIGNAL if len(conditions) <= row < len(conditions) + len(reasons) else 1.0
        for part, kind in (("findings", "findings"), ("denies", "negative"), ("home", "home"), ("given", "given")):
            for key, p in profile.get(part, {}).items():
                rate[row, index[kind, key]] = -np.log1p(-p) * scale
    leak = np.array([leaks["drug" if s in ("home", "given") else "default"] for s, _, _ in columns])
    leak[[index["findings", key] for key in leaks["senseless"]]] = leaks["rare"]
    for kind in ("findings", "negative", "home", "given"):
        for key, p in leaks[kind].items():
            leak[index[kind, key]] = p

    names = tuple(conditions)
    position = {name: i for i, name in enumerate(names)}
    causes = {name: tuple(p.get("causes", ())) for name, p in conditions.items()}
    anchor = [p["anchor"] for p in conditions.values()]
    symptoms = [j for j, (s, _, _) in enumerate(columns) if s == "symptom"]
    prefix = {"negative": "neg:", "home": "hx:", "given": "rx:"}
    return Department(
        conditions=names,
        reasons=tuple(reasons),
        illnesses=tuple(illnesses),
        profiles=profiles,
        order=tuple(position[name] for name in TopologicalSorter(causes).static_order()),
        prior=np.array([p["prior"] for p in conditions.values()]),
        acute=np.array([p["kind"] == "acute" for p in conditions.values()]),
        reason_weight=np.array([p["weight"] for p in reasons.values()], dtype=float),
        illness_at=np.array([p["at"] for p in illnesses.values()], dtype=float),
        names=tuple(prefix.get(s, "") + k for s, k, _ in columns),
        keys=tuple(k for _, k, _ in columns),
        section=np.array([SECTIONS.index(s) for s, _, _ in columns], dtype=np.intp),
        rate=rate,
        leak_rate=-np.log1p(-leak),
        phrases=tuple(v for _, _, v in columns),
        codes=tuple(Code("name", k, k) if s in ("home", "given") else None for s, k, _ in columns),
        edges=tuple(sum(s in SECTIONS[:k] for s, _, _ in columns) for k in range(len(SECTIONS) + 1)),
        billing=tuple(_billing(p.get("icd9", {})) for p in every),
        sensitivity=np.array([a["sensitivity"] for a in anchor]),
        false_alarm=np.array([a["false_alarm"] for a in anchor]),
        mentions=np.array([[-np.log1p(-a.get("mentioned", {}).get(k, 0.0)) for a in anchor] for k in names]),
        hints=np.array([sorted(symptoms, key=lambda j: -rate[i, j])[:2] for i in range(len(names))], dtype=np.intp),
        style=read_yaml("style.yaml"),
        rules=read_yaml("interactions.yaml"),
    )


def _billing(icd9: Mapping[str, float]) -> tuple[tuple[Code, ...], tuple[float, ...]]:
    """Codes and the cumulative shares in which they are used, the last left out: a search gives a code's place."""
    shares = np.cumsum(list(icd9.values())) / max(sum(icd9.values()), 1)
    return tuple(Code("icd9", code) for code in icd9), tuple(shares[:-1].tolist())


def spread(department: Department) -> Floats:
    """(n,) the leak rates when nothing exists beyond the 23: what the rest would bring on, independently of all else.

    1 - l'_j = (1 - l0_j) prod_k (1 - pi_k (1 - exp(-z_kj))), pi_k the share of visits with reason or illness k.
    """
    m = len(department.conditions)
    idle = np.prod(1 - department.prior[department.acute])
    reasons = idle * department.reason_weight / department.reason_weight.sum()
    illnesses = department.illness_at @ np.array(AGE_SHARES)
    share = np.concatenate([reasons, illnesses])[:, None]
    quiet = np.log1p(-share * -np.expm1(-department.rate[m:])).sum(axis=0)
    rate: Floats = department.leak_rate - quiet
    return rate


def word_leak(department: Department) -> Floats:
    """(n,) the leak rates of lists of words: `spread` times WORD_NOISE, between WORD_FLOOR and WORD_CEILING."""
    rate: Floats = np.clip(WORD_NOISE * spread(department), WORD_FLOOR, WORD_CEILING)
    return rate
