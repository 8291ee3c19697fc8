"""The tables of the page, from the dictionary that `reproduce` gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

METRICS = (("accuracy", "Accuracy"), ("top5", "Top 5"), ("mrr", "MRR"))
PAPER = {
    "Noise tolerant classifiers": (0.54, 0.86, 0.67),
    "Naive labels": (0.61, 0.85, 0.71),
    "Noisy-or init": (0.64, 0.91, 0.76),
    "Noisy-or final": (0.68, 0.92, 0.79),
    "Noisy-or oracle MLE": (0.71, 0.93, 0.81),
}
"""The paper's own table, from its own hospital's visits: a reference, not a target for other data."""
ORDER = (
    "Random init",
    "Noise tolerant classifiers",
    "Naive labels",
    "Noisy-or init",
    "Noisy-or final",
    "whatelse",
    "Noisy-or oracle MLE",
)
SHORT = {
    "Noise tolerant classifiers": "Noise tolerant",
    "Noisy-or oracle MLE": "Oracle",
    "Naive labels": "Naive",
    "Noisy-or init": "Init",
    "Noisy-or final": "Final",
}


def ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the paper's table has them: baselines, the method, the oracle."""
    return sorted(rows, key=lambda row: ORDER.index(row["model"]) if row["model"] in ORDER else len(ORDER))


def table(head: Sequence[str], body: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of cells that are HTML already; the first of each row is its heading."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = []
    for first, *rest in body:
        cells = "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>\n')
    filled = f"<thead><tr>{top}</tr></thead><tbody>\n{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table class="{kind}">{filled}</table></div>'


def results(rows: list[dict[str, Any]]) -> str:
    """The results with their intervals; the best without labels in bold; the paper's figures beside."""
    free = [row for row in rows if row["model"] != "Noisy-or oracle MLE"]
    best = {metric: max(row[metric] for row in free) for metric, _ in METRICS} if free else {}
    body = []
    for row in ordered(rows):
        cells = [escape(row["model"])]
        for metric, _ in METRICS:
            value, (low, high) = row[metric], row[f"{metric}_interval"]
            top = row in free and value == best[metric]
            cells.append(f"{_bold(f'{value:.3f}', top)} <small>{low:.3f}–{high:.3f}</small>")
        cells.append(f"{row['seconds']:.1f} s")
        paper = PAPER.get(row["model"])
        cells += [f'<td class="ref">{v:.2f}</td>' for v in paper] if paper else ['<td class="ref">–</td>'] * 3
        body.append(cells)
    head = ["Model", *(title for _, title in METRICS), "Learning", *(f"Paper: {title}" for _, title in METRICS)]
    return table(head, body, "numbers results")


def comparisons(entries: list[dict[str, Any]]) -> str:
    """Differences on the same visits and draws."""
    pairs = dict.fromkeys((e["from"], e["to"]) for e in entries)
    found = {(e["from"], e["to"], e["metric"]): e for e in entries}
    body = []
    for a, b in pairs:
        cells = [f"{escape(b)} <small>against</small> {escape(a)}"]
        for metric, _ in METRICS:
            e = found[a, b, metric]
            low, high = e["interval"]
            p = "p &lt; 0.001" if e["p_value"] < 0.001 else f"p = {e['p_value']:.3f}"
            cells.append(f"{e['difference']:+.3f} <small>{low:+.3f} to {high:+.3f}, {p}</small>")
        body.append(cells)
    return table(["Difference", *(title for _, title in METRICS)], body, "numbers")


def closed(entries: list[dict[str, Any]]) -> str:
    """How much of the distance from naive labels to the oracle is covered without labels."""
    found = {(e["model"], e["metric"]): e for e in entries}
    body = []
    for row in ordered({"model": m} for m in dict.fromkeys(e["model"] for e in entries)):
        cells = [escape(row["model"])]
        for metric, _ in METRICS:
            e = found.get((row["model"], metric))
            limits = "" if e is None else f"<small>{e['interval'][0]:.0%} to {e['interval'][1]:.0%}</small>"
            cells.append("–" if e is None else f"{e['share']:.0%} {limits}")
        body.append(cells)
    return table(["Model", *(title for _, title in METRICS)], body, "numbers")


def by_condition(conditions: list[str], rows: list[dict[str, Any]]) -> str:
    """Accuracy for each hidden condition, shaded; how often it was hidden."""
    models = ordered(rows)
    body = []
    for i, condition in enumerate(conditions):
        times = models[0]["by_condition"][i]["times_hidden"]
        cells = [escape(nice(condition)), f"{times:,}"]
        for row in models:
            value = row["by_condition"][i]["accuracy"]
            cells.append("–" if value is None else f'<td class="heat" style="--v:{value:.2f}">{value:.2f}</td>')
        body.append(cells)
    names = [escape(SHORT.get(row["model"], row["model"])) for row in models]
    return table(["Condition hidden", "times", *names], body, "numbers")


def terms(terms_by_model: dict[str, list[dict[str, Any]]]) -> str:
    """The highly weighted words of the learned noisy-or, and of the default learner's evidence where it has any."""
    paper = next((m for m in ("Noisy-or final", "Noisy-or init") if m in terms_by_model), None)
    shown = [m for m in (paper, "whatelse") if m in terms_by_model]
    if not shown:
        return ""
    body = []
    for i, entry in enumerate(terms_by_model[shown[0]]):
        cells = [escape(nice(entry["condition"]))]
        for model in shown:
            own = terms_by_model[model][i]
            words = own.get("evidence") or own["terms"]
            cells.append(" · ".join(_word(word) for word in words))  # names may have commas
        body.append(cells)
    evidence = any(e.get("evidence") for e in terms_by_model.get("whatelse", ()))
    titles = {"whatelse": "whatelse: strongest evidence" if evidence else "whatelse: lowest failure"}
    return table(["Tag", *(escape(titles.get(m, f"{m}: lowest failure")) for m in shown)], body, "words")


def rates(entries: dict[str, dict[str, Any]]) -> str:
    """How noisy the anchors are, with intervals where they were estimated."""
    names = (("prior", "P(Y)"), ("sensitivity", "P(A | Y)"), ("false_positive", "P(A | not Y)"))
    body = []
    for condition, entry in entries.items():
        cells = [escape(nice(condition))]
        limits = entry.get("intervals", {})
        for name, _ in names:
            text = f"{entry[name]:.3f}" if entry[name] >= 0.01 else f"{entry[name]:.4f}"
            if name in limits:
                text += f" <small>{limits[name][0]:.3f}–{limits[name][1]:.3f}</small>"
            cells.append(text)
        prior, hit, false = (entry[name] for name, _ in names)
        fired = prior * hit + (1 - prior) * false
        cells.append(f"{prior * hit / fired:.2f}" if fired else "–")
        body.append(cells)
    return table(["Anchor of", *(title for _, title in names), "P(Y | A)"], body, "numbers")


def calibration(curves: list[dict[str, Any]]) -> str:
    """Expected calibration error and Brier score."""
    body = [
        [escape(c["model"]), f"{c['ece']:.4f}", f"{c['brier']:.4f}", f"{c['certified']:.1%}"] for c in ordered(curves)
    ]
    return table(["Model", "Calibration error", "Brier score", "Certified to 0.01"], body, "numbers")


def nice(name: str) -> str:
    """A condition's name for people."""
    return name.replace("_", " ")


def _word(word: dict[str, Any]) -> str:
    said = f"failure {word['fail']:.2f}" if "fail" in word else f"weight {word['weight']:.2f}"
    return f'<span title="{said}, in {word["visits"]:,} visits">{escape(word["finding"])}</span>'


def _bold(text: str, bold: bool) -> str:
    return f"<strong>{text}</strong>" if bold else text
