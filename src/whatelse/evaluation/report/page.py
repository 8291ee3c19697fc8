"""The page: sections in the order a reader asks for them, nothing loaded from anywhere. Its text is in `templates/`."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from whatelse.evaluation.report import figures
from whatelse.evaluation.rows import FINAL, INIT, METRICS, NAIVE, ORACLE, OURS, ordered, row_of
from whatelse.io.files import write_whole
from whatelse.io.templates import html, templates

SECTIONS = {
    "results": "Held-out tag",
    "differences": "Is the difference real?",
    "course": "The course of optimisation",
    "conditions": "Condition by condition",
    "terms": "Top weighted terms per tag",
    "anchors": "How noisy the anchors are",
    "trust": "Do answers come true?",
    "protocol": "Data and protocol",
}


def write_report(results: dict[str, Any], folder: Path, command: str = "") -> Path:
    """Write `results.json` and `index.html` into a folder; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results | {"command": command}, indent=1, allow_nan=False)
    write_whole(folder / "results.json", text.encode())
    page = folder / "index.html"
    write_whole(page, render(results, command).encode())
    return page


def render(results: dict[str, Any], command: str = "") -> str:
    """The whole page, figures and style inside it."""
    rows, curves = ordered(results["rows"]), ordered(results["trust"])
    terms = {m: results["terms"][m] for m in (FINAL, INIT, OURS) if m in results["terms"]}
    if FINAL in terms:
        terms.pop(INIT, None)
    missing = {"course": not results["courses"], "terms": not terms, "trust": not curves}
    shown = [curve for curve in curves if curve["model"] in (NAIVE, FINAL, OURS, ORACLE)]
    ours = next((found for found in shown if found["model"] == OURS), shown[-1] if shown else None)
    free = [row for row in rows if not row_of(row["model"]).labels]
    best = {metric: max((row[metric] for row in free), default=0.0) for metric in METRICS}
    pages = templates("whatelse.evaluation.report")
    pages.filters["count_of"] = "{:,}".format
    return pages.get_template("page.html").render(
        results=results,
        command=command,
        style=html((files("whatelse.evaluation.report") / "style.css").read_text("utf-8")),
        sections={name: title for name, title in SECTIONS.items() if not missing.get(name)},
        facts=_facts(results),
        rows=rows,
        pairs=dict.fromkeys((entry["from"], entry["to"]) for entry in results["comparisons"]),
        metrics=METRICS,
        models=row_of,
        best={row["model"]: best for row in free},
        terms=terms,
        shown=shown,
        ours=ours,
        figures={
            "scores": html(figures.scores(rows)),
            "course": html(figures.course(results["courses"])) if results["courses"] else None,
            "reliability": html(figures.trust(ours, shown)) if ours else None,
        },
    )


def _facts(results: dict[str, Any]) -> list[tuple[str, str]]:
    """The few figures at the head of the page: (value, what it is)."""
    rows = {row["model"]: row for row in results["rows"]}
    shown = [name for name in (OURS, FINAL, NAIVE, ORACLE) if name in rows]
    facts = [(f"{rows[name]['accuracy']:.3f}", f"accuracy, {name}") for name in shown]
    return facts + [
        (f"{entry['share']:.0%}", f"of naive to oracle, {entry['model']}")
        for entry in results["closed"]
        if entry["metric"] == "accuracy"
        and entry["model"] in (OURS, FINAL)
        and entry["interval"][1] - entry["interval"][0] <= 1  # where naive and oracle are close, the share says nothing
    ]
