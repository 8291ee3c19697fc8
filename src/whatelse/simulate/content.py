"""The content of the simulator as arrays: the YAML files of `department/` and the rates of the survey.

Rows are causes: the 23 conditions, then reasons for visit and illnesses beyond them. Columns are findings, section by
section. Probabilities are kept as rates z = -log(1 - p), which add where probabilities of noisy-or combine:

    P(X_j = 0 | y) = exp(-z_0j - sum_i y_i z_ij),       f_ij = exp(-z_ij),       1 - l_j = exp(-z_0j)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whatelse.io.limits import shipped_yaml
from whatelse.simulate.rates import Rates, read_rates
from whatelse.types import Bools, Floats, Ints

SECTIONS = ("symptom", "negative", "story", "history", "exam", "course", "home", "given")
AGES = (20.0, 50.0, 80.0)  # at which illnesses' prevalence is given
AGE_SHARES = (0.35, 0.35, 0.3)  # of visits near those ages, for prevalence regardless of age
ADULT = 18

SIGNAL, WORD_SIGNAL = 0.75, 0.35
"""Scale every rate with which a condition brings on a finding, in prose and in lists of words: the overall difficulty,
set once so that a model that is given the truth finds the held-out tag about as often as in the paper. Words of a list
are independent of one another, so they tell more than as many words of a note, and fewer of them must be shown."""

REASON_SIGNAL = 1.0
"""The same for reasons for visit beyond the 23."""

WORD_NOISE, WORD_FLOOR, WORD_CEILING = 3.0, 0.01, 0.4
"""Lists of words have this many times the leaks that the rest of the department explains, as rates between floor
and ceiling: about as many findings a visit as a note has, none too rare or too common to be in a vocabulary."""


@dataclass(frozen=True, eq=False)
class Limits:
    """Who can have each of k things: least and highest age, and sex (0 any, 1 women, 2 men), each (k,)."""

    low: Floats
    high: Floats
    sex: Ints

    def fits(self, age: Floats, male: Bools) -> Bools:
        """(N, k)."""
        a = age[:, None]
        sex = (self.sex == 0) | (self.sex == np.where(male, 2, 1)[:, None])
        return np.asarray((a >= self.low) & (a <= self.high) & sex)


@dataclass(frozen=True, eq=False)
class Department:
    """The content of the simulator: m conditions, r reasons and i illnesses beyond them, n findings."""

    conditions: tuple[str, ...]
    reasons: tuple[str, ...]
    illnesses: tuple[str, ...]
    profiles: Mapping[str, Mapping[str, Any]]  # of conditions, "reason NAME" and "illness NAME"
    rates: Rates
    prior: Floats  # (m,) share of visits when notes obey the model
    acute: Bools  # (m,)
    names: tuple[str, ...]  # n findings as a vocabulary names them
    keys: tuple[str, ...]  # n findings as the YAML files name them
    section: NDArray[np.intp]  # (n,) index into SECTIONS
    rate: Floats  # (m + r + i, n)
    leak_rate: Floats  # (n,)
    phrases: tuple[tuple[str, ...], ...]  # n: how a finding is written
    limits: Limits  # who can have each finding
    edges: tuple[int, ...]  # the first finding of each section, and n
    said: tuple[Mapping[str, Any], ...]  # entries of reasons.yaml
    reason_key: Ints  # (reasons for visit,) the finding of each
    reason_limits: Limits
    drug_limits: Limits
    sensitivity: Floats  # (m,) of the anchors in lists of words
    false_alarm: Floats  # (m,)
    named: Floats  # (m,) rates with which notes name a condition
    mention: Floats  # (m,) rates with which notes mention a condition that the patient does not have
    mention_from: Floats  # (m,) least age of a mention
    mentioned: Floats  # (m, m) rates with which notes about the row's condition mention the column's anchor
    hints: NDArray[np.intp]  # (m, 2) the two commonest symptoms of each condition
    style: Mapping[str, Any]
    rules: Mapping[str, Sequence[Mapping[str, Any]]]
    consistency: Mapping[str, Sequence[Mapping[str, Any]]]
    mentions: Mapping[str, Mapping[str, Any]]


def read_yaml(name: str) -> Any:
    """One of the department's files."""
    return shipped_yaml("whatelse.simulate", f"department/{name}")


@lru_cache(maxsize=4)
def load(survey: Path | None = None) -> Department:
    """Read the files once. survey: a folder of rates; None: the shipped rates."""
    conditions, outside, style = read_yaml("conditions.yaml"), read_yaml("outside.yaml"), read_yaml("style.yaml")
    said, mentions = read_yaml("reasons.yaml"), read_yaml("mentions.yaml")
    reasons, illnesses, leaks = outside["reasons"], outside["illnesses"], outside["leaks"]
    rates = read_rates(survey, tuple(conditions), tuple(reasons), tuple(said))
    profiles = {**conditions, **{f"reason {k}": v for k, v in reasons.items()}}
    profiles |= {f"illness {k}": v for k, v in illnesses.items()}
    every = list(profiles.values())
    m, r = len(conditions), len(reasons)

    columns = _columns(every, leaks, rates, {d for p in conditions.values() for d in p["anchor"].get("given", ())})
    index = {(s if s in ("negative", "home", "given") else "findings", k): j for j, (s, k, _) in enumerate(columns)}
    rate = np.zeros((len(every), len(columns)))
    for row, profile in enumerate(every):
        scale = REASON_SIGNAL if m <= row < m + r else 1.0
        for part, kind in (("findings", "findings"), ("denies", "negative"), ("home", "home")):
            for key, p in profile.get(part, {}).items():
                rate[row, index[kind, key]] = -np.log1p(-p) * scale
    usual = -np.log1p(-np.minimum(rates.drug_rate, 0.95))
    leak = np.array([leaks["drug" if s in ("home", "given") else "default"] for s, _, _ in columns])
    for k, drug in enumerate(rates.drugs):
        if (j := index.get(("given", drug))) is not None:
            rate[: m + r, j] = np.maximum(usual[:-1, k] - usual[-1, k], 0.0)
            leak[j] = 0.5 * rates.drug_rate[-1, k]
    leak[[index["findings", key] for key in leaks["senseless"]]] = leaks["rare"]
    for kind in ("findings", "negative", "home"):
        for key, p in leaks[kind].items():
            leak[index[kind, key]] = p

    names = tuple(conditions)
    anchor = [p["anchor"] for p in conditions.values()]
    symptoms = [j for j, (s, _, _) in enumerate(columns) if s == "symptom"]
    prefix = {"negative": "neg:", "home": "hx:", "given": "rx:"}
    return Department(
        conditions=names,
        reasons=tuple(reasons),
        illnesses=tuple(illnesses),
        profiles=profiles,
        rates=rates,
        prior=np.array([p["prior"] for p in conditions.values()]),
        acute=np.array([p["kind"] == "acute" for p in conditions.values()]),
        names=tuple(prefix.get(s, "") + k for s, k, _ in columns),
        keys=tuple(k for _, k, _ in columns),
        section=np.array([SECTIONS.index(s) for s, _, _ in columns], dtype=np.intp),
        rate=rate,
        leak_rate=-np.log1p(-leak),
        phrases=tuple(v for _, _, v in columns),
        limits=_limits([(s, k) for s, k, _ in columns], style),
        edges=tuple(sum(s in SECTIONS[:k] for s, _, _ in columns) for k in range(len(SECTIONS) + 1)),
        said=tuple(said.values()),
        reason_key=np.array([index["findings", entry["key"]] for entry in said.values()]),
        reason_limits=_whose([entry.get("who", ("A", 0, 120)) for entry in said.values()]),
        drug_limits=_limits([("given", drug) for drug in rates.drugs], style),
        sensitivity=np.array([a["sensitivity"] for a in anchor]),
        false_alarm=np.array([a["false_alarm"] for a in anchor]),
        named=-np.log1p(-np.array([a.get("named", 0.1) for a in anchor])),
        mention=-np.log1p(-np.array([mentions[name]["rate"] for name in names])),
        mention_from=np.array([mentions[name]["from"] for name in names], dtype=float),
        mentioned=np.array([[-np.log1p(-a.get("mentioned", {}).get(k, 0.0)) for a in anchor] for k in names]),
        hints=np.array([sorted(symptoms, key=lambda j: -rate[i, j])[:2] for i in range(m)], dtype=np.intp),
        style=style,
        rules=read_yaml("interactions.yaml"),
        consistency=read_yaml("consistency.yaml"),
        mentions=mentions,
    )


def _columns(
    every: Sequence[Mapping[str, Any]], leaks: Mapping[str, Any], rates: Rates, anchors: set[str]
) -> list[tuple[str, str, tuple[str, ...]]]:
    """(section, key, phrases) of every finding. Drugs given are drugs of the survey that are no anchors."""
    texts = read_yaml("findings.yaml")
    denied = {k for p in every for k in p.get("denies", ())} | set(leaks["negative"])
    columns: list[tuple[str, str, tuple[str, ...]]] = []
    for section in SECTIONS:
        if section == "negative":
            plain = {k: [p for p in v or [k] if "{" not in p][:3] or [k] for k, v in texts["symptom"].items()}
            columns += [(section, k, tuple(v)) for k, v in plain.items() if k in denied]
        elif section in texts:
            columns += [(section, k, tuple(v or [k])) for k, v in texts[section].items()]
        elif section == "given":
            columns += [(section, k, (k,)) for k in rates.drugs if k not in anchors]
        else:
            drugs = {k: None for p in [*every, leaks] for k in p.get(section, ())}
            columns += [(section, k, (k,)) for k in sorted(drugs)]
    return columns


def _limits(things: Sequence[tuple[str, str]], style: Mapping[str, Any]) -> Limits:
    """Limits of findings by (section, key): the groups of style.yaml; drugs at home are for adults unless named."""
    who = {(s, k): ["A", 0, 120] for s, k in things}
    for s, k in things:
        if s == "home":
            who[s, k][1] = style["child_drugs"].get(k, ADULT)
    for group in style["limits"]:
        for key in group["keys"]:
            for s in ("given",) if key.startswith("given ") else SECTIONS:
                k = key.removeprefix("given ")
                if (limit := who.get((s, k))) is not None and (s != "given" or key.startswith("given ")):
                    limit[0] = group["sex"] if group["sex"] != "A" else limit[0]
                    limit[1], limit[2] = max(limit[1], group["from"]), min(limit[2], group["to"])
    return _whose([who[thing] for thing in things])


def _whose(who: Sequence[Sequence[Any]]) -> Limits:
    sex = np.array([{"A": 0, "F": 1, "M": 2}[w[0]] for w in who])
    return Limits(np.array([w[1] for w in who], dtype=float), np.array([w[2] for w in who], dtype=float), sex)


def spread(department: Department) -> Floats:
    """(n,) leak rates without causes beyond the 23: the leaks then include the findings of those causes, on average.

    1 - l'_j = (1 - l0_j) prod_k (1 - pi_k (1 - exp(-z_kj))), pi_k the share of visits with reason or illness k.
    """
    m, rates = len(department.conditions), department.rates
    illnesses = [
        float(rates.flag_rate[rates.flags.index(p["flag"])]) if "flag" in p else float(np.dot(p["at"], AGE_SHARES))
        for p in (department.profiles[f"illness {name}"] for name in department.illnesses)
    ]
    share = np.concatenate([rates.reason_share, illnesses])[:, None]
    quiet = np.log1p(-share * -np.expm1(-department.rate[m:])).sum(axis=0)
    rate: Floats = department.leak_rate - quiet
    return rate


def word_leak(department: Department) -> Floats:
    """(n,) the leak rates of lists of words: `spread` times WORD_NOISE, between WORD_FLOOR and WORD_CEILING."""
    rate: Floats = np.clip(WORD_NOISE * spread(department), WORD_FLOOR, WORD_CEILING)
    return rate
