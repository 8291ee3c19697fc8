"""How likely a tag must be to be worth a card: as configured, or so that cards are as few as somebody can bear."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from whatelse.server.ehr.cds.log import CardLog
from whatelse.server.ehr.settings import EhrSettings
from whatelse.server.worklist import Worklist

MOST = 3  # cards at once
ENOUGH = 50  # visits that a burden is judged by, at least
VISITS = 2_000
RENEWED = 60.0  # seconds
LEAST = 0.02  # no card is worth saying below this, whatever the burden allows
HOLD = 0.5  # log odds below the threshold that a card which was shown stays


def by_burden(tops: Sequence[Sequence[float]], per_hundred: float) -> float | None:
    """The threshold at which visits like these give `per_hundred` cards per 100, or fewer; None if they are too few.

    tops: the probabilities of each visit's likeliest tags. With V visits, k = V per_hundred / 100 cards are allowed:
    the threshold lies just above the (k+1)-th largest of all.
    """
    if len(tops) < ENOUGH:
        return None
    pooled = np.sort([p for top in tops for p in sorted(top, reverse=True)[:MOST]])[::-1]
    allowed = int(len(tops) * per_hundred / 100)
    if allowed >= len(pooled):
        return LEAST
    return float(min(max(LEAST, np.nextafter(pooled[allowed], 1.0)), 1.0))


def stays(threshold: float) -> float:
    """Down to where a card that was shown goes on being shown: HOLD below the threshold in log odds."""
    if threshold >= 1:
        return threshold
    return 1 / (1 + math.exp(-(math.log(threshold / (1 - threshold)) - HOLD)))


class Threshold:
    """The threshold of a service, renewed now and then if it goes by burden."""

    def __init__(self, settings: EhrSettings, log: CardLog, worklist: Worklist) -> None:
        self._settings, self._log, self._worklist = settings, log, worklist
        self._known: tuple[float, float] = (-RENEWED - 1, settings.cds_threshold)

    def value(self) -> float:
        """The threshold now. Cost: a look at the log once a minute."""
        if not self._settings.cds_burden:
            return self._settings.cds_threshold
        then, value = self._known
        if time.monotonic() - then > RENEWED:
            found = by_burden(self._log.tops(VISITS), self._settings.cds_burden)
            if found is None:
                found = by_burden(self._scored(), self._settings.cds_burden)
            value = self._settings.cds_threshold if found is None else found
            self._known = (time.monotonic(), value)
        return value

    def _scored(self) -> list[list[float]]:
        """The worklist's own visits, where there is one and it is scored."""
        scores = self._worklist.scores
        if scores is None or not scores.done:
            return []
        top: list[list[float]] = np.sort(scores.probabilities[: scores.done], axis=1)[:, -MOST:].tolist()
        return top
