"""How like the national survey the simulated department is, tested on a year that its tables were not counted from.

    python benchmarks/realism.py FOLDER [--test 2018] [--visits 20000] [--seed 5]

FOLDER holds the survey (see scripts/survey_rates.py). The tables are counted anew from the other years; then

- gradient boosting is to tell simulated from surveyed visits, by age, sex and the 23 conditions, and by these and drugs
  given, vital signs, triage level and reasons for visit: the area under its ROC curve on half of the visits, held out;
- log lifts of pairs of conditions, log((n_ij + 1/2) / (n_i n_j / n + 1/2)), are correlated with the survey's over the
  pairs that at least five of its visits have, and over all pairs; the same between survey years is what chance allows;
- implausible findings for an age or sex are counted by the rules of benchmarks/plausibility.yaml;
- anchors' sensitivity and precision are put beside those of reasons and drugs in the survey.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from survey_rates import Record, survey, value_of

from benchmarks.plausibility import implausibilities
from whatelse.cohort import build_cohort
from whatelse.simulate import simulate
from whatelse.simulate.content import Department, load
from whatelse.simulate.departures import Departures
from whatelse.simulate.engine import BLOCK
from whatelse.simulate.patients import draw_patients
from whatelse.simulate.presentation import draw_presentation
from whatelse.simulate.rates import MEASURES, read_table

Floats = NDArray[np.float64]
YEARS = (2016, 2017, 2018)
SHOWN = ("temperature", "pulse", "respirations", "systolic", "diastolic", "saturation", "pain", "triage")
COMMON_REASONS, COMMON_DRUGS = 60, 80


def surveyed(records: list[Record], department: Department) -> tuple[Floats, Floats, Floats, Floats]:
    """(age and sex, conditions, measures, reasons and drugs) of surveyed visits."""
    rates, m = department.rates, len(department.conditions)
    said = {name: k for k, name in enumerate(rates.reasons)}
    drug = {name: k for k, name in enumerate(rates.drugs)}
    people = np.array([(r.age, r.male) for r in records], dtype=float)
    conditions, lists = np.zeros((len(records), m)), np.zeros((len(records), len(said) * 2 + len(drug)))
    measures = np.full((len(records), len(SHOWN)), np.nan)
    for k, r in enumerate(records):
        conditions[k, list(r.conditions)] = 1
        for place, reason in enumerate(r.reasons):
            lists[k, said[reason] + (len(said) if place else 0)] = 1
        for name in r.drugs:
            if name in drug:
                lists[k, 2 * len(said) + drug[name]] = 1
        for v, name in enumerate(SHOWN):
            value = value_of(r, name, ())
            measures[k, v] = np.nan if value is None else value
    return people, conditions, measures, lists


def simulated(department: Department, visits: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """The same of simulated visits, before they are written down."""
    rates, m = department.rates, len(department.conditions)
    parts: list[tuple[Floats, ...]] = []
    for block in range(-(-visits // BLOCK)):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
        patients = draw_patients(department, Departures(), block * BLOCK, BLOCK, rng)
        presentation = draw_presentation(department, patients, np.arange(BLOCK), rng)
        size = len(rates.reasons)
        lists = np.zeros((BLOCK, 2 * size + len(rates.drugs)))
        for k in range(presentation.reasons.shape[1]):
            rows = np.flatnonzero(presentation.reasons[:, k] >= 0)
            lists[rows, presentation.reasons[rows, k] + (size if k else 0)] = 1
        for k in range(presentation.drugs.shape[1]):
            rows = np.flatnonzero(presentation.drugs[:, k] >= 0)
            lists[rows, 2 * size + presentation.drugs[rows, k]] = 1
        measures = presentation.measure[:, [MEASURES.index(name) for name in SHOWN]]
        parts.append(
            (np.column_stack([patients.age, patients.male]), patients.on[:, :m].astype(float), measures, lists)
        )
    people, conditions, measures, lists = (np.concatenate(part)[:visits] for part in zip(*parts, strict=True))
    return people, conditions, measures, lists


def told_apart(a: Floats, b: Floats, seed: int) -> float:
    """The area under the ROC curve of gradient boosting that learned from half of both, on the other half."""
    X, y = np.vstack([a, b]), np.repeat([0, 1], [len(a), len(b)])
    order = np.random.default_rng(seed).permutation(len(y))
    half = len(y) // 2
    model = HistGradientBoostingClassifier(max_iter=200, learning_rate=0.1, random_state=seed, early_stopping=True)
    model.fit(X[order[:half]], y[order[:half]])
    return float(roc_auc_score(y[order[half:]], model.predict_proba(X[order[half:]])[:, 1]))


def lifts(Y: Floats) -> tuple[Floats, Floats]:
    """(pairs,) counts and log lifts of pairs of conditions."""
    n, pair = Y.sum(axis=0), Y.T @ Y
    above = np.triu_indices(Y.shape[1], 1)
    expected = np.outer(n, n) / len(Y)
    return pair[above], np.log((pair[above] + 0.5) / (expected[above] + 0.5))


def likeness(found: Floats, target: Floats) -> tuple[float, float]:
    """Correlations of log lifts, over pairs with five visits of `target` or more, and over all."""
    _, ours = lifts(found)
    count, theirs = lifts(target)
    seen = count >= 5
    return float(np.corrcoef(ours[seen], theirs[seen])[0, 1]), float(np.corrcoef(ours, theirs)[0, 1])


def common(a: tuple[Floats, ...], b: tuple[Floats, ...], department: Department) -> tuple[Floats, Floats]:
    """Both with the commonest reasons and drugs of the survey only, so that learning is quick."""
    size = len(department.rates.reasons)
    share = b[3].mean(axis=0)
    first, other = (
        np.argsort(-share[:size])[:COMMON_REASONS],
        np.argsort(-share[size : 2 * size])[:COMMON_REASONS] + size,
    )
    drugs = np.argsort(-share[2 * size :])[:COMMON_DRUGS] + 2 * size
    columns = np.concatenate([first, other, drugs])
    return tuple(np.hstack([part[0], part[1], part[2], part[3][:, columns]]) for part in (a, b))  # type: ignore[return-value]


def anchors(seed: int) -> None:
    """Print sensitivity and precision of the anchors in simulated visits, and of reasons and drugs in the survey."""
    cohort = build_cohort(simulate(20_000, seed), max_terms=20, bigrams=False)
    A, Y = cohort.A, cohort.Y
    assert Y is not None
    print(f"{'anchors':26s} sensitivity     precision   (simulated, survey)")
    for i, row in enumerate(read_table("anchors")):
        true, fired, both = int(row["true"]), int(row["fired"]), int(row["both"])
        here = (A & Y)[:, i].sum()
        ours = here / max(Y[:, i].sum(), 1), here / max(A[:, i].sum(), 1)
        print(f"{row['condition']:26s} {ours[0]:.2f}  {both / true:.2f}      {ours[1]:.2f}  {both / fired:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--test", type=int, default=2018)
    parser.add_argument("--visits", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--tables", type=Path, help="tables of the other years that were counted before")
    options = parser.parse_args()
    others = [year for year in YEARS if year != options.test]
    with tempfile.TemporaryDirectory() as scratch:
        tables = options.tables or Path(scratch)
        if options.tables is None or not (tables / "people.csv").exists():
            script = Path(__file__).parents[1] / "scripts" / "survey_rates.py"
            command = [
                sys.executable,
                str(script),
                str(options.folder),
                "--out",
                str(tables),
                "--years",
                *map(str, others),
            ]
            subprocess.run(command, check=True)
        department = load(tables)
        records, _ = survey(options.folder, [options.test])
        real, made = surveyed(records, department), simulated(department, options.visits, options.seed)
        print(f"tables of {others}, tested on {options.test}: {len(records):,} surveyed, {options.visits:,} simulated")
        few = told_apart(np.hstack(made[:2]), np.hstack(real[:2]), options.seed)
        print(f"AUC by age, sex and the 23 conditions                  {few:.3f}")
        all_of_it = told_apart(*common(made, real, department), options.seed)
        print(f"AUC by these, drugs, vital signs, triage level, reasons {all_of_it:.3f}")
        many = simulated(department, 5 * options.visits, options.seed + 1)[1]
        seen, every = likeness(many, real[1])
        print(f"correlation of log lifts: pairs of 5 visits or more {seen:.3f}, all pairs {every:.3f}")
        earlier = surveyed(survey(options.folder, others)[0], department)
        seen, every = likeness(earlier[1], real[1])
        print(f"  the other years of the survey itself:              {seen:.3f}            {every:.3f}")
        few = told_apart(np.hstack(earlier[:2]), np.hstack(real[:2]), 1)
        most = told_apart(*common(earlier, real, department), 1)
        print(f"  AUC of the other years of the survey itself: {few:.3f}, {most:.3f}")
    anchors(options.seed)
    found = [a for visit in simulate(20_000, options.seed) for a in implausibilities(visit)]
    print(f"absurd findings in 20,000 visits: {len(found)} {sorted(set(found))[:10]}")


if __name__ == "__main__":
    main()
