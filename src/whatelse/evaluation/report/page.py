"""The page: sections in the order a reader asks for them, nothing loaded from anywhere."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from whatelse.evaluation.report import figures, tables

ASKED = (
    "Every model is shown a visit with all of its true tags but one, and ranks the tags that could be the missing "
    "one. Accuracy: it comes first. Top 5: it is among the first five. MRR: the mean of one over its rank."
)
COURSE = (
    "Left, the variational bound that NVIL raises; right, the held-out tag, which no choice was made by. One line for "
    "each weight decay of the recognition model; the large red dot is the model chosen by held-out anchors. Dashed: "
    "the supervised term switched off (λ 0). Dotted: random initialisation. Shaded: burn-in, in which only the "
    "recognition model changes."
)
CURVE = (
    "Probabilities of at least 1%, in groups of equal size, on logarithmic axes. On the diagonal, one in ten of those "
    "given 10% has the condition. The figures below are over all probabilities."
)


def write_report(results: dict[str, Any], folder: Path, command: str = "") -> Path:
    """Write `results.json` and `index.html` into a folder; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results | {"command": command}, indent=1, allow_nan=False)
    (folder / "results.json").write_text(text, encoding="utf-8")
    page = folder / "index.html"
    page.write_text(render(results, command), encoding="utf-8")
    return page


def render(results: dict[str, Any], command: str = "") -> str:
    """The whole page, figures and style inside it."""
    sections = [section for section in _sections(results, command) if section[2]]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    body = "\n".join(f'<section id="{name}"><h2>{title}</h2>\n{text}</section>' for name, title, text in sections)
    style = (files("whatelse.evaluation.report") / "style.css").read_text("utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>What else? Held-out tags of {results["data"]["test"]["used"]:,} visits</title>
<style>{style}</style></head><body>
<h1>What else might the patient have?</h1>
<p class="lead">{_lead(results)}</p>
{_facts(results)}
<nav aria-label="Sections">{links}</nav>
{body}
<footer>Made by whatelse {escape(results["whatelse"])}. This page asks nothing of the network.</footer>
</body></html>
"""


def _lead(results: dict[str, Any]) -> str:
    data, plan = results["data"], results["plan"]
    which = "visits with two or more conditions" if plan["protocol"] == "paper" else "visits of every kind"
    return (
        f"A joint model of {len(results['conditions'])} conditions, learned from anchors instead of labels on "
        f"{data['train']['used']:,} {which}, asked for the missing tag of {data['test']['used']:,} others."
    )


def _facts(results: dict[str, Any]) -> str:
    rows = {row["model"]: row for row in results["rows"]}
    facts = [
        (f"{rows[name]['accuracy']:.3f}", f"accuracy, {name}")
        for name in ("whatelse", "Noisy-or final", "Naive labels", "Noisy-or oracle MLE")
        if name in rows
    ]
    facts += [
        (f"{entry['share']:.0%}", f"of naive to oracle, {entry['model']}")
        for entry in results["closed"]
        if entry["metric"] == "accuracy" and entry["model"] in ("whatelse", "Noisy-or final")
    ]
    items = "".join(f"<li><b>{value}</b><span>{escape(text)}</span></li>" for value, text in facts)
    return f'<ul class="facts">{items}</ul>'


def _sections(results: dict[str, Any], command: str) -> list[tuple[str, str, str]]:
    rows, curves = results["rows"], tables.ordered(results["calibration"])
    missing = "".join(
        f'<p class="note"><strong>{escape(e["model"])}</strong> is not in the table: {escape(e["why"])}.</p>'
        for e in results["left_out"]
    )
    shown = [c for c in curves if c["model"] in ("Naive labels", "Noisy-or final", "whatelse", "Noisy-or oracle MLE")]
    return [
        (
            "results",
            "Held-out tag",
            f"<p>{ASKED} Small figures are 95% bootstrap intervals over visits; the best result without labels is "
            "bold. In italics, what the paper reports for its own hospital: a reference, not the same visits.</p>"
            + tables.results(rows)
            + _figure(figures.scores(tables.ordered(rows), tables.PAPER), "Hollow diamonds: the paper's figures.")
            + missing,
        ),
        (
            "differences",
            "Is the difference real?",
            "<p>Differences on the same visits and the same hidden tags, with 95% intervals; p-values by random sign "
            "flips, two-sided.</p>"
            + tables.comparisons(results["comparisons"])
            + (
                "<p>How much of the distance from naive labels to the oracle is covered:</p>"
                + tables.closed(results["closed"])
                if results["closed"]
                else ""
            ),
        ),
        (
            "course",
            "The course of optimisation",
            _figure(figures.course(results["courses"]), COURSE) if results["courses"] else "",
        ),
        (
            "conditions",
            "Condition by condition",
            "<p>Accuracy where that condition was the hidden one.</p>"
            + tables.by_condition(results["conditions"], rows),
        ),
        (
            "terms",
            "Top weighted terms per tag",
            "<p>Words marked <code>neg:</code> are negated in the note, <code>rx:</code> drugs given, "
            "<code>hx:</code> drugs taken at home. Point at a word for its weight and how many visits have it.</p>"
            + tables.terms(results["terms"]),
        ),
        (
            "anchors",
            "How noisy the anchors are",
            f"<p>{_rates_from(results)}</p>" + tables.rates(results["rates"]),
        ),
        (
            "calibration",
            "Do probabilities mean what they say?",
            f"<p>Every condition of {curves[0]['visits']:,} test visits, nothing confirmed.</p>"
            + _figure(figures.reliability(shown), CURVE, "small")
            + tables.calibration(curves)
            if curves
            else "",
        ),
        ("protocol", "Data and protocol", _protocol(results, command)),
    ]


def _rates_from(results: dict[str, Any]) -> str:
    few = results["plan"]["few_labels"]
    if few:
        return f"Estimated from {few:,} labelled visits and the anchors of all; small figures are 95% intervals."
    return "Counted in the labels of the visits learned from, as the paper does; small figures are 95% intervals."


def _protocol(results: dict[str, Any], command: str) -> str:
    data, plan = results["data"], results["plan"]
    nvil = plan["nvil"]
    which = "only those with two or more true conditions" if plan["protocol"] == "paper" else "all of them"
    lines = [
        f"Learned from {_files(data['train'])}: {data['train']['visits']:,} visits, {which}, less {data['select']:,} "
        f"kept apart to select by, which leaves {data['train']['used']:,}; {data['train']['findings']:,} findings.",
        f"Tested on {_files(data['test'])}: the {data['test']['used']:,} of {data['test']['visits']:,} visits with two "
        f"or more conditions, one of them hidden at random in each of {plan['draws']} draws, the same for every model.",
        "No model but the oracle sees labels; all are told the anchors' noise rates.",
        f"<em>whatelse</em> is the default learner, <code>{escape(results['default_learner'])}</code>.",
        f"Seed {plan['seed']}. {results['seconds']:,.0f} seconds in all.",
    ]
    if results["courses"]:
        lines.append(
            f"NVIL: {nvil['epochs']} epochs, {nvil['burn_in']} of burn-in, {nvil['samples']} samples, learning rate "
            f"{nvil['learning_rate']:g}, minibatches of {nvil['minibatch']}, λ {nvil['supervised']:g}, weight decay "
            f"among {', '.join(f'{v:g}' for v in nvil['l2'])}. Random initialisation: the weight decay chosen from the "
            "moments, no burn-in."
        )
    ran = f"<pre>{escape(command)}</pre>" if command else ""
    return "".join(f"<p>{line}</p>" for line in lines) + ran


def _files(about: dict[str, Any]) -> str:
    return escape(", ".join(about["files"])) or "a cohort"


def _figure(svg: str, caption: str, kind: str = "") -> str:
    return f'<figure class="{kind}">{svg}<figcaption>{caption}</figcaption></figure>'
