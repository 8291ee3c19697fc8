"""Silent mode against later diagnoses: what cards at each threshold would have been worth.

After a pilot in silent mode the coded discharges of the same visits are read back. A card is a tag of a visit that
was among the likeliest at some look; it counts once a visit, with its highest probability.

    precision   cards whose condition was diagnosed / cards with a known diagnosis
    recall      diagnosed conditions of the visits that had a card / all diagnosed conditions of the visits
    calibration mean probability and share diagnosed, by band of probability, of the tags among the likeliest
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TypeVar

from scipy.stats import binomtest

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BANDS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
Pair = tuple[str, str]
V = TypeVar("V")


@dataclass(frozen=True)
class Share:
    """A share of a count, with its 95% Wilson interval."""

    part: int
    whole: int

    @property
    def value(self) -> float | None:
        """part / whole; None of nothing."""
        return self.part / self.whole if self.whole else None

    def interval(self) -> tuple[float, float]:
        """Wilson's score interval; (0, 1) of nothing."""
        if not self.whole:
            return 0.0, 1.0
        found = binomtest(self.part, self.whole).proportion_ci(method="wilson")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.part}/{self.whole} ({low:.0%} to {high:.0%})" if self.whole else "none"


@dataclass(frozen=True)
class Row:
    """Cards at one threshold, of all conditions or of one."""

    name: str
    threshold: float
    per_100: float
    precision: Share
    recall: Share


@dataclass(frozen=True)
class SilentReport:
    """visits: with a look and a known diagnosis of any condition; bands: (mean probability, share diagnosed)."""

    visits: int
    thresholds: tuple[Row, ...]
    conditions: tuple[Row, ...]
    bands: tuple[tuple[float, Share], ...]

    def text(self) -> str:
        """The report as plain text."""
        lines = [f"{self.visits:,} visits with a look and coded diagnoses"]
        for title, rows in (("by threshold", self.thresholds), ("by condition", self.conditions)):
            lines += ["", f"{title:28} {'cards/100 visits':>16}  {'precision (95%)':26} recall (95%)"]
            lines += [f"{r.name:28} {r.per_100:16.1f}  {r.precision!s:26} {r.recall}" for r in rows]
        lines += ["", f"{'mean probability':28} {'diagnosed (95%)':26}"]
        lines += [f"{mean:<28.2f} {share!s:26}" for mean, share in self.bands]
        return "\n".join(lines)

    def page(self) -> str:
        """The report as one HTML page, with its plot inside."""
        picture = base64.b64encode(self.plot()).decode()
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Silent mode</title></head><body>'
            f"<h1>Silent mode against later diagnoses</h1><pre>{escape(self.text())}</pre>"
            f'<img alt="precision, recall and calibration" src="data:image/png;base64,{picture}"></body></html>'
        )

    def plot(self) -> bytes:
        """Precision and recall by cards per 100 visits, and calibration, as PNG."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for name in ("precision", "recall"):
            shares = [(row.per_100, getattr(row, name).value) for row in self.thresholds]
            points = [(x, y) for x, y in shares if y is not None]
            left.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
        left.set(xlabel="cards per 100 visits", ylabel="share", ylim=(0, 1))
        left.legend()
        right.plot([0, 1], [0, 1], color="grey", linestyle=":")
        shown = [(mean, share.value, *share.interval()) for mean, share in self.bands if share.value is not None]
        errors = [[y - low for _, y, low, _ in shown], [high - y for _, y, _, high in shown]]
        right.errorbar([x for x, *_ in shown], [y for _, y, *_ in shown], yerr=errors, marker="o", linestyle="")
        right.set(xlabel="probability", ylabel="share diagnosed", xlim=(0, 1), ylim=(0, 1))
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=120)
        return out.getvalue()


def silent_report(likely: Mapping[Pair, float], truth: Mapping[Pair, bool], threshold: float) -> SilentReport:
    """Cards of silent mode against diagnoses. O(tags + diagnoses).

    likely     (visit, condition) -> highest probability at any look, of the tags that could be cards
    truth      (visit, condition) -> whether it was diagnosed; what nobody knows is left out
    threshold  of the rows by condition
    """
    looked = {visit for visit, _ in likely}
    known = {pair: true for pair, true in truth.items() if pair[0] in looked}
    visits = {visit for visit, _ in known}
    cards = {pair: p for pair, p in likely.items() if pair[0] in visits}
    conditions = sorted({condition for _, condition in known})
    rows = [_row(name, threshold, _only(cards, name), _only(known, name), len(visits)) for name in conditions]
    return SilentReport(
        len(visits),
        tuple(_row(f"{t:.0%}", t, cards, known, len(visits)) for t in THRESHOLDS),
        tuple(row for row in rows if row.recall.whole or row.per_100),
        tuple(_bands(cards, known)),
    )


def _only(pairs: Mapping[Pair, V], condition: str) -> dict[Pair, V]:
    return {pair: value for pair, value in pairs.items() if pair[1] == condition}


def _row(name: str, threshold: float, cards: Mapping[Pair, float], known: Mapping[Pair, bool], visits: int) -> Row:
    alerts = {pair for pair, p in cards.items() if p >= threshold}
    judged = [known[pair] for pair in alerts if pair in known]
    found = [pair in alerts for pair, true in known.items() if true]
    per_100 = 100 * len(alerts) / max(1, visits)
    return Row(name, threshold, per_100, Share(sum(judged), len(judged)), Share(sum(found), len(found)))


def _bands(cards: Mapping[Pair, float], known: Mapping[Pair, bool]) -> list[tuple[float, Share]]:
    found = []
    for low, high in pairwise(BANDS):
        inside = {pair: p for pair, p in cards.items() if pair in known and (low <= p < high or p == high == 1.0)}
        if inside:
            share = Share(sum(known[pair] for pair in inside), len(inside))
            found.append((sum(inside.values()) / len(inside), share))
    return found
