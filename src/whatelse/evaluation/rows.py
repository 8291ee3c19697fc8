"""The rows of the results table: the one list that `reproduce`, the report and the command line read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

METRICS = {"accuracy": "Accuracy", "top5": "Top 5", "mrr": "MRR"}


@dataclass(frozen=True)
class Row:
    """A model of the table.

    paper   its accuracy, top 5 and MRR on the visits of the paper's own hospital: a reference, not a target for others
    labels  whether it learns from labels, so that the others are not compared with it
    """

    name: str
    short: str
    paper: tuple[float, float, float] | None = None
    labels: bool = False


ROWS = (
    Row("Random init", "Random"),
    Row("Noise tolerant classifiers", "Noise tolerant", (0.54, 0.86, 0.67)),
    Row("Elkan-Noto classifiers", "Elkan-Noto"),
    Row("Naive labels", "Naive", (0.61, 0.85, 0.71)),
    Row("Noisy-or init", "Init", (0.64, 0.91, 0.76)),
    Row("Noisy-or final", "Final", (0.68, 0.92, 0.79)),
    Row("whatelse", "whatelse"),
    Row("whatelse, with labels", "With labels", labels=True),
    Row("Noisy-or oracle MLE", "Oracle", (0.71, 0.93, 0.81), labels=True),
)
"""As the table shows them: baselines, the paper's method, the default learner, the oracle."""
RANDOM, TOLERANT, ELKAN_NOTO, NAIVE, INIT, FINAL, OURS, TAUGHT, ORACLE = (row.name for row in ROWS)
_PLACE = {row.name: place for place, row in enumerate(ROWS)}


def row_of(name: str) -> Row:
    """The row of that name; one that is not in the table stands for itself."""
    return ROWS[_PLACE[name]] if name in _PLACE else Row(name, name)


def ordered(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries, each with the name of its `model`, in the order of ROWS."""
    return sorted(entries, key=lambda entry: _PLACE.get(entry["model"], len(ROWS)))
