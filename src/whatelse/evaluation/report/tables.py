"""The tables of the page as heads and cells, from the dictionary that `reproduce` gives; a template makes them HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whatelse.evaluation.rows import FINAL, INIT, METRICS, OURS, ordered, row_of


@dataclass(frozen=True)
class Cell:
    """One cell: text, and beside it in small type an interval.

    shade   0 to 1, for a coloured background
    words   (text, what pointing at it says), instead of `text`
    """

    text: str = ""
    small: str = ""
    bold: bool = False
    kind: str = ""
    shade: float | None = None
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Table:
    """A table; the first cell of each row is its heading. `kind` is a class of the style sheet."""

    head: list[str]
    rows: list[list[Cell]]
    kind: str = "numbers"


NOTHING = Cell("–")


def results(rows: list[dict[str, Any]]) -> Table:
    """The results with their intervals; the best without labels in bold; the paper's figures beside."""
    free = [row for row in rows if not row_of(row["model"]).labels]
    best = {metric: max(row[metric] for row in free) for metric in METRICS} if free else {}
    body = []
    for row in ordered(rows):
        cells = [Cell(row["model"])]
        for metric in METRICS:
            low, high = row[f"{metric}_interval"]
            bold = row in free and row[metric] == best[metric]
            cells.append(Cell(f"{row[metric]:.3f}", f"{low:.3f}–{high:.3f}", bold))
        cells.append(Cell(f"{row['seconds']:.1f} s"))
        paper = row_of(row["model"]).paper
        cells += [Cell(f"{value:.2f}", kind="ref") for value in paper] if paper else [Cell("–", kind="ref")] * 3
        body.append(cells)
    titles = list(METRICS.values())
    return Table(["Model", *titles, "Learning", *(f"Paper: {title}" for title in titles)], body, "numbers results")


def comparisons(entries: list[dict[str, Any]]) -> Table:
    """Differences between two models on the same visits and draws."""
    found = {(e["from"], e["to"], e["metric"]): e for e in entries}
    body = []
    for a, b in dict.fromkeys((e["from"], e["to"]) for e in entries):
        cells = [Cell(b, f"against {a}")]
        for metric in METRICS:
            e = found[a, b, metric]
            low, high = e["interval"]
            p = "p < 0.001" if e["p_value"] < 0.001 else f"p = {e['p_value']:.3f}"
            cells.append(Cell(f"{e['difference']:+.3f}", f"{low:+.3f} to {high:+.3f}, {p}"))
        body.append(cells)
    return Table(["Difference", *METRICS.values()], body)


def closed(entries: list[dict[str, Any]]) -> Table:
    """How much of the distance from naive labels to the oracle is covered without labels."""
    found = {(e["model"], e["metric"]): e for e in entries}
    body = []
    for row in ordered({"model": m} for m in dict.fromkeys(e["model"] for e in entries)):
        cells = [Cell(row["model"])]
        for metric in METRICS:
            if e := found.get((row["model"], metric)):
                cells.append(Cell(f"{e['share']:.0%}", f"{e['interval'][0]:.0%} to {e['interval'][1]:.0%}"))
            else:
                cells.append(NOTHING)
        body.append(cells)
    return Table(["Model", *METRICS.values()], body)


def by_condition(conditions: list[str], rows: list[dict[str, Any]]) -> Table:
    """Accuracy for each hidden condition, shaded; how often it was hidden."""
    models = ordered(rows)
    body = []
    for i, condition in enumerate(conditions):
        cells = [Cell(nice(condition)), Cell(f"{models[0]['by_condition'][i]['times_hidden']:,}")]
        for row in models:
            value = row["by_condition"][i]["accuracy"]
            cells.append(NOTHING if value is None else Cell(f"{value:.2f}", kind="heat", shade=value))
        body.append(cells)
    return Table(["Condition hidden", "times", *(row_of(row["model"]).short for row in models)], body)


def terms(terms_by_model: dict[str, list[dict[str, Any]]]) -> Table | None:
    """The highly weighted words of the learned noisy-or, and of the default learner's evidence where it has any."""
    paper = next((m for m in (FINAL, INIT) if m in terms_by_model), None)
    shown = [m for m in (paper, OURS) if m in terms_by_model]
    if not shown:
        return None
    body = []
    for i, entry in enumerate(terms_by_model[shown[0]]):
        cells = [Cell(nice(entry["condition"]))]
        for model in shown:
            own = terms_by_model[model][i]
            cells.append(Cell(words=tuple(_word(word) for word in own.get("evidence") or own["terms"])))
        body.append(cells)
    evidence = any(e.get("evidence") for e in terms_by_model.get(OURS, ()))
    titles = [f"{m}: {'strongest evidence' if m == OURS and evidence else 'lowest failure'}" for m in shown]
    return Table(["Tag", *titles], body, "words")


def rates(entries: dict[str, dict[str, Any]]) -> Table:
    """How noisy the anchors are, with intervals where they were estimated."""
    names = {"prior": "P(Y)", "sensitivity": "P(A | Y)", "false_positive": "P(A | not Y)"}
    body = []
    for condition, entry in entries.items():
        cells = [Cell(nice(condition))]
        limits = entry.get("intervals", {})
        for name in names:
            text = f"{entry[name]:.3f}" if entry[name] >= 0.01 else f"{entry[name]:.4f}"
            cells.append(Cell(text, f"{limits[name][0]:.3f}–{limits[name][1]:.3f}" if name in limits else ""))
        prior, hit, false = (entry[name] for name in names)
        fired = prior * hit + (1 - prior) * false
        cells.append(Cell(f"{prior * hit / fired:.2f}") if fired else NOTHING)
        body.append(cells)
    return Table(["Anchor of", *names.values(), "P(Y | A)"], body)


def updates(found: list[dict[str, Any]]) -> Table:
    """What confirming and rejecting do to the other tags: log loss after over before, and expected over observed."""
    body = []
    for entry in found:
        cells = [Cell(entry["model"]), Cell(f"{entry['log_loss']:.4f}")]
        for name in ("confirmed", "likeliest rejected"):
            move = entry["updates"][name]
            cells += [_ratio(move["loss"], 3), _ratio(move["expected"], 2)]
        body.append(cells)
    head = ["Model", "Log loss", "Confirmed: after / before", "expected / observed"]
    return Table([*head, "Rejected: after / before", "expected / observed"], body)


def parts(found: list[dict[str, Any]]) -> Table:
    """Expected over observed number of conditions: of all visits, short and long records, the worst conditions."""
    body = []
    for entry in found:
        known = [c for c in entry["by_condition"] if c["value"] is not None and c["observed"] >= 10]
        worst = [min(known, key=lambda c: c["value"]), max(known, key=lambda c: c["value"])] if known else []
        lengths = [_ratio(entry["by_length"][name], 2) for name in ("shortest tenth", "longest tenth")]
        named = [Cell(f"{c['value']:.2f}", nice(c["condition"])) for c in worst] or [NOTHING, NOTHING]
        body.append([Cell(entry["model"]), _ratio(entry["expected"], 2), *lengths, *named])
    return Table(["Model", "All visits", "Shortest tenth", "Longest tenth", "Lowest condition", "Highest"], body)


def burden(entry: dict[str, Any]) -> Table:
    """What each threshold costs and brings."""
    body = [
        [
            Cell(f"{line['threshold']:g}"),
            Cell(f"{line['per_100_visits']:.1f}"),
            *(
                NOTHING if line[key] is None else Cell(f"{line[key]:.0%}")
                for key in ("true", "reached", "reached_unnamed")
            ),
        ]
        for line in entry["burden"]
    ]
    head = ["Threshold", "Suggestions per 100 visits", "of them true", "True tags reached"]
    return Table([*head, "… not named in the record"], body)


def _ratio(ratio: dict[str, Any], digits: int) -> Cell:
    if ratio["value"] is None:
        return NOTHING
    return Cell(f"{ratio['value']:.{digits}f}", f"{ratio['low']:.{digits}f}–{ratio['high']:.{digits}f}")


def nice(name: str) -> str:
    """A condition's name for people."""
    return name.replace("_", " ")


def _word(word: dict[str, Any]) -> tuple[str, str]:
    said = f"failure {word['fail']:.2f}" if "fail" in word else f"weight {word['weight']:.2f}"
    return word["finding"], f"{said}, in {word['visits']:,} visits"
