"""Summary of a model file as JSON values: `whatelse show MODEL`.

The log odds that finding j brings to condition i: the difference between a record with and without the finding, the
other conditions at their priors:

    w_j (logit(1 - (1 - q_ij) f_ij) - logit(q_ij)) + W_ij,      q_ij = 1 - (1 - l_j) prod_{k != i} (1 - pi_k (1 - f_kj))

with the noisy-or's weight w, prior pi, failures f and leak l, and the evidence's weight W. What bending the whole sum
adds (`noisyor/recalibration.py`) belongs to no finding, and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit

from whatelse.model_file.file import ModelFile
from whatelse.noisyor.joint import JointModel
from whatelse.types import Floats

FEWEST = 10  # visits that must have a finding for it to be listed: a rarer one is a stranger that happened to be there
INSIDE = (1e-9, 1 - 1e-9)  # probabilities of finite log odds
SMALL = 0.05  # log odds of a pair of conditions not worth a line


def brings(model: JointModel) -> Floats:
    """(m, n) log odds that each finding brings to each condition, over its absence. O(m n)."""
    noisyor = model.noisyor
    quiet = 1 - noisyor.prior[:, None] * (1 - noisyor.fail)  # (m, n) that condition k does not bring finding j on
    log_quiet = np.log(np.maximum(quiet, 1e-300))
    silent = np.exp(np.log1p(-np.minimum(noisyor.leak, 1 - 1e-12)) + log_quiet.sum(0) - log_quiet)  # 1 - q
    told = logit(np.clip(1 - silent * noisyor.fail, *INSIDE)) - logit(np.clip(1 - silent, *INSIDE))
    out: Floats = noisyor.weight * told + model.evidence.weight
    return out


def model_summary(file: ModelFile, top: int = 8) -> dict[str, Any]:
    """A model file: from what it was learned, and, condition by condition, noise rates and `top` findings."""
    learned, notes, source = file.learned, _part(file.learned, "notes"), _part(file.vocabulary, "source")
    data = _part(notes, "data")
    return {
        "digest": file.digest,
        "version": file.version,
        "learner": _word(learned.get("learner")),
        "settings": _part(learned, "settings"),
        "converged": learned.get("converged") is True,
        "learned": {
            "visits": _count(data.get("visits", file.vocabulary.get("visits"))),
            "labelled": _count(data.get("labelled")),
            "source": _word(source.get("source")),
            "columns": sorted(name for name in source if name not in ("source", "options", "delimiter", "encoding")),
        },
        "rates_from": _word(notes.get("noise_rates")),
        "findings": len(file.findings),
        "conditions": _conditions(file, top),
        "couplings": _couplings(file),
    }


def _conditions(file: ModelFile, top: int) -> list[dict[str, Any]]:
    kept = file.vocabulary.get("counts")
    whole = isinstance(kept, list) and len(kept) == len(file.findings) and all(type(count) is int for count in kept)
    counts = np.array(kept if whole else [FEWEST] * len(file.findings))
    listed = counts >= FEWEST
    listed[file.anchor_columns[file.anchor_columns >= 0]] = False
    told, out = brings(file.model), []
    for i, name in enumerate(file.conditions):
        prior, sensitivity, wrong = (float(file.noise[key][i]) for key in ("prior", "sensitivity", "false_positive"))
        fires = sensitivity * prior + wrong * (1 - prior)
        order = np.argsort(-np.where(listed, told[i], -np.inf), kind="stable")[:top]
        out.append(
            {
                "condition": name,
                "prior": prior,
                "sensitivity": sensitivity,
                "false_positive": wrong,
                "right_when_it_fires": sensitivity * prior / fires if fires > 0 else None,
                "findings": [
                    {"finding": file.findings[j], "log_odds": float(told[i, j]), "visits": int(counts[j])}
                    for j in order.tolist()
                    if listed[j] and told[i, j] > 0
                ],
            }
        )
    return out


def _couplings(file: ModelFile) -> list[dict[str, Any]]:
    """Pairs of conditions that go together, or apart, beyond what their findings say; largest first."""
    coupling = np.triu(file.model.noisyor.coupling, 1)
    pairs = [(i, k) for i, k in np.argwhere(np.abs(coupling) >= SMALL).tolist()]
    pairs.sort(key=lambda pair: -abs(coupling[pair]))
    return [
        {"conditions": [file.conditions[i], file.conditions[k]], "log_odds": float(coupling[i, k])} for i, k in pairs
    ]


# The header of a model file is whole, but what `learned` and `vocabulary` hold is for people: any JSON may stand there.


def _part(of: dict[str, Any], name: str) -> dict[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
