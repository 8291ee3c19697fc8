"""Plots of results, each drawn on an axis that is handed in: for notebooks and reports.

figure, axes = plt.subplots()
plot_reliability(trust(tagger.model_, cohort), axes)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes

from whatelse.evaluation.rows import METRICS, ordered

# Okabe and Ito's colours, told apart by people who see colours differently; markers differ too
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MOVE_NAMES = {
    "confirmed": "a true tag confirmed",
    "likeliest confirmed": "the likeliest confirmed",
    "likeliest rejected": "the likeliest rejected",
}


def plot_reliability(measured: Mapping[str, Any], axes: Axes) -> None:
    """Observed share against predicted probability on linear axes, with counts: nothing known, and after each move.

    On the diagonal, probabilities mean what they say. `measured` is what `trust` gives.
    """
    curves = {"nothing known": measured["reliability"], "anchor silent": measured["reliability_silent"]}
    curves |= {MOVE_NAMES[name]: move["bins"] for name, move in measured["updates"].items()}
    axes.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
    for k, (name, bins) in enumerate(curves.items()):
        shown = [b for b in bins if b["count"] >= 20]
        axes.plot(
            [b["predicted"] for b in shown], [b["observed"] for b in shown], marker=MARKERS[k], markersize=4.5,
            linewidth=1.2, color=COLOURS[k], label=name,
        )  # fmt: skip
        if k == 0:
            for b in shown:
                axes.annotate(f"{b['count']:,}", (b["predicted"], b["observed"]), xytext=(4, -9), fontsize=7,
                              textcoords="offset points", alpha=0.7)  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share that had the condition")
    axes.grid(alpha=0.2)
    axes.legend(loc="upper left", fontsize=8, frameon=False)


def plot_updates(measured: Mapping[str, Mapping[str, Any]], axes: Axes) -> None:
    """Log loss of the other tags after each move over before, with intervals, for each model; left of one is better."""
    step = 0.8 / max(len(measured), 1)
    for k, (model, found) in enumerate(measured.items()):
        for place, name in enumerate(MOVE_NAMES):
            loss = found["updates"][name]["loss"]
            if loss["value"] is None:
                continue
            y = place + step * (k - (len(measured) - 1) / 2)
            colour = COLOURS[k % len(COLOURS)]
            axes.plot([loss["low"], loss["high"]], [y, y], color=colour, linewidth=2.2, alpha=0.55)
            axes.plot(loss["value"], y, MARKERS[k % len(MARKERS)], color=colour, label=model if place == 0 else None)
    axes.axvline(1.0, color="0.5", linewidth=0.8)
    axes.set_yticks(range(len(MOVE_NAMES)), list(MOVE_NAMES.values()))
    axes.set_ylim(len(MOVE_NAMES) - 0.5, -0.5)
    axes.set_xlabel("log loss of the other tags, after / before")
    axes.grid(axis="x", alpha=0.2)
    axes.legend(fontsize=8, frameon=False)


def plot_burden(measured: Mapping[str, Any], axes: Axes) -> None:
    """What each threshold brings against what it costs: true tags reached by suggestions per 100 visits."""
    entries = measured["burden"]
    cost = [entry["per_100_visits"] for entry in entries]
    for k, (key, name) in enumerate(
        (("reached", "true tags reached"), ("reached_unnamed", "… that the record does not name"),
         ("true", "suggestions that are true"))
    ):  # fmt: skip
        axes.plot(
            cost, [entry[key] for entry in entries], marker=MARKERS[k], markersize=4.5, color=COLOURS[k], label=name
        )
    for entry, x in zip(entries, cost, strict=True):
        if entry["reached"] is not None:
            axes.annotate(f"{entry['threshold']:g}", (x, entry["reached"]), xytext=(3, 4), fontsize=7,
                          textcoords="offset points", alpha=0.7)  # fmt: skip
    axes.set(xlabel="suggestions per 100 visits", ylabel="share", ylim=(0, 1), xlim=(0, None))
    axes.grid(alpha=0.2)
    axes.legend(fontsize=8, frameon=False)


def plot_heldout(rows: Iterable[Mapping[str, Any]], axes: Axes, metric: str = "accuracy") -> None:
    """The held-out tag of each model with its interval; `rows` are those of `reproduce`."""
    entries = ordered([dict(row) for row in rows])
    for y, row in enumerate(entries):
        colour = COLOURS[1] if row["model"].startswith("whatelse") else COLOURS[0]
        low, high = row[f"{metric}_interval"]
        axes.plot([low, high], [y, y], color=colour, linewidth=2.2, alpha=0.55, solid_capstyle="round")
        axes.plot(row[metric], y, "o", color=colour, markersize=6)
    axes.set_yticks(range(len(entries)), [row["model"] for row in entries])
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.set_title(METRICS[metric])
    axes.grid(axis="x", alpha=0.2)


def plot_top_findings(entry: Mapping[str, Any], axes: Axes) -> None:
    """The findings that speak most for one condition; `entry` is one of those that `top_terms` gives."""
    words = entry.get("evidence") or entry["terms"]
    weight = [word["weight"] if "weight" in word else 1 - word["fail"] for word in words]
    axes.barh(range(len(words)), weight, color=COLOURS[0], alpha=0.8)
    axes.set_yticks(range(len(words)), [word["finding"] for word in words])
    axes.set_ylim(len(words) - 0.5, -0.5)
    axes.set_title(str(entry["condition"]))
    axes.set_xlabel("weight in log odds" if entry.get("evidence") else "chance that the condition brings it on")
