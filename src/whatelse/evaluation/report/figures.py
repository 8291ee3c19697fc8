"""Figures of the report as SVG text: scores of all rows, courses of NVIL, calibration. Nothing is written to a file.

Text stays text, in the page's own font, and lines drawn in INK take the page's text colour, so that a figure is
readable in light, in dark and in print.
"""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from whatelse.evaluation.plots import COLOURS, plot_burden, plot_heldout, plot_reliability, plot_updates
from whatelse.evaluation.rows import METRICS, row_of

INK = "#0a0b0c"  # replaced by the page's own colour
STYLE = Path(__file__).with_name("figures.mplstyle")


def scores(rows: list[dict[str, Any]]) -> str:
    """Accuracy, top 5 and MRR of every model with intervals; hollow diamonds are the paper's own figures."""
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(9.6, 0.36 * len(rows) + 1.1), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for k, (axes, metric) in enumerate(zip(panels, METRICS, strict=True)):
            plot_heldout(rows, axes, metric)
            for y, row in enumerate(rows):
                if paper := row_of(row["model"]).paper:
                    axes.plot(paper[k], y, "D", markerfacecolor="none", color=INK, alpha=0.55)
            axes.tick_params(length=0)
            axes.spines["left"].set_visible(False)
        return _svg(figure, "scores", "Held-out tag: every model with its 95% interval")


def course(courses: list[dict[str, Any]]) -> str:
    """The paper's figure: by epoch, bound, likelihood of held-out visits and held-out tag, one line per weight decay.

    A large dot marks the selected model; dashed: without the supervised term (lambda 0); dotted: random start.
    """
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(9.6, 3.9), layout="constrained")
        bound, *watched = figure.subplots(1, 3)
        burn_in = max((c["burn_in"] for c in courses), default=0)
        for k, run in enumerate(courses):
            style, colour = _line(run), COLOURS[k % len(COLOURS)]
            epochs = range(1, len(run["bound"]) + 1)
            bound.plot(epochs, run["bound"], style, color=colour, linewidth=1.5, label=_name(run))
            if run["selected"] and run["best_epoch"]:
                _mark(bound, run["best_epoch"], run["bound"][run["best_epoch"] - 1])
            for axes, name in zip(watched, ("likelihood", "tag"), strict=True):
                looks = [(e, t) for e, t in zip(run["checked"], run["watched"][name], strict=True) if t is not None]
                if run["selected"] and run["best_epoch"] in dict(looks):
                    _mark(axes, run["best_epoch"], dict(looks)[run["best_epoch"]])
                if looks and looks[0][0] == 0 and 0 < run["burn_in"] <= len(run["bound"]):
                    looks.insert(1, (run["burn_in"], looks[0][1]))  # theta rests, so the model is still the start
                axes.plot(*zip(*looks, strict=True), style, color=colour, linewidth=1.5)
        _clip_early(bound, [run["bound"] for run in courses])
        _clip_early(watched[0], [[v for v in run["watched"]["likelihood"][1:] if v is not None] for run in courses])
        titles = ("Variational bound, per visit", "Likelihood of held-out visits", "Held-out tag, accuracy")
        for axes, title in zip((bound, *watched), titles, strict=True):
            axes.set_title(title)
            axes.set_xlabel("epoch")
            axes.grid()
            if burn_in:
                axes.axvspan(0, burn_in, color=INK, alpha=0.06, linewidth=0)
        figure.legend(loc="outside lower center", ncols=3)
        return _svg(figure, "course", "The course of optimisation")


def _mark(axes: Axes, epoch: float, value: float) -> None:
    axes.plot(epoch, value, "o", color="#d00000", markersize=12, zorder=5)


def trust(ours: dict[str, Any], all_: list[dict[str, Any]]) -> str:
    """Reliability on linear axes, what moves do to the other tags, and the burden of each threshold."""
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(9.6, 8.0), layout="constrained")
        (left, right), (below, _) = figure.subplots(2, 2)
        plot_reliability(ours, left)
        left.set_title(f"Reliability, {ours['model']}")
        plot_updates({found["model"]: found for found in all_}, right)
        right.set_title("Does knowing one tag help the others?")
        plot_burden(ours, below)
        below.set_title(f"Burden, {ours['model']}")
        figure.delaxes(_)
        return _svg(figure, "trust", "How far answers come true")


def _line(run: dict[str, Any]) -> str:
    return ":" if run["start"] == "random" else "--" if not run["supervised"] else "-"


def _name(run: dict[str, Any]) -> str:
    if run["start"] == "random":
        return "random initialisation"
    name = f"L2 {run['l2']:g}" if run["supervised"] else "λ 0: likelihood alone"
    return name + (" (selected)" if run["selected"] else "")


def _clip_early(axes: Axes, lines: list[list[float]]) -> None:
    """Leave the first tenth of the lines out of the axis' range: early epochs would flatten all the rest."""
    later = [value for line in lines for value in line[len(line) // 10 :] if math.isfinite(value)]
    if later:
        margin = 0.05 * (max(later) - min(later)) or 1.0
        axes.set_ylim(min(later) - margin, max(later) + margin)


def _svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an <svg> element whose ids begin with its name, so that several fit in one page."""
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):  # the same figure gives the same bytes
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\b(id="|url\(#|xlink:href="#)', rf"\g<1>{name}-", svg)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    opening = rf'<svg \1 {spaces} role="img" aria-label="{title}">'
    svg = re.sub(r'<svg[^>]*?(viewBox="[^"]*")[^>]*>', opening, svg, count=1)
    return re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", svg)
