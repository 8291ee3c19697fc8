"""`demo`: a department that never existed, the shipped model on it, what learning adds, three visits, and the page."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console

import whatelse
from whatelse.cli.tag import answer, print_answer
from whatelse.errors import InputError
from whatelse.visits import Visit

T = TypeVar("T")
SEED = 1
LABELLED = 500  # visits with labels
FIRST = 3  # suggestions among which a true condition counts as found
LOOKED_AT = 200  # visits among which three are chosen
NODS = (
    ("fall", "intracranial hemorrhage"), ("pneumonia", "severe sepsis"), ("alcohol", "fall"),
    ("kidney stone", "hematuria"), ("vehicle collision", "back pain"), ("asthma-copd", "pneumonia"),
)  # fmt: skip
"""What a clinician thinks of next: confirmed, and what to look for then."""
MADE = ("train.parquet", "test.parquet", "model.safetensors", "decisions.db")


def demo(
    out: Path = typer.Option(Path("demo"), "--out", help="Folder for everything that is made."),
    serve: bool | None = typer.Option(
        None, "--serve/--no-serve", help="End by serving the tagging page. [if a terminal is attached]"
    ),
    visits: int = typer.Option(2_000, "--visits", min=2_000, help="Visits to learn from; a quarter as many to test."),
) -> None:
    """Simulate a department, ask the shipped model, learn from anchors and few labels, ask: what else?

    Example: whatelse demo --visits 5000 --no-serve
    """
    began, run = time.perf_counter(), _Steps()
    if out.exists() and any(path.name.partition(".")[0] not in _STEMS for path in out.iterdir()):
        raise InputError("exists and is not a demo's folder: choose another with --out", file=out)
    out.mkdir(parents=True, exist_ok=True)
    learn_from, test = run("simulate an emergency department that never existed", lambda: _simulate(out, visits))
    shipped = run("load the shipped model: knowledge, no record seen", lambda: whatelse.Tagger.load("emergency-23"))
    before = run(f"ask it about {len(test):,} visits", lambda: _found(shipped, test))
    title = f"learn from {visits:,} visits by their anchors, {LABELLED} of them labelled"
    learned = run(title, lambda: _learn(learn_from, out / MADE[2]))
    after = _found(learned, test)
    shares = f"{before:.0%} before learning, {after:.0%} after"
    typer.echo(f"   true conditions among the first {FIRST} suggestions: {shares}")
    run("ask what else, for three visits", lambda: _ask(shipped, test))
    typer.echo(f"\ndone in {time.perf_counter() - began:.0f} s.")
    _serve(out, serve)


_STEMS = {name.partition(".")[0] for name in MADE}


class _Steps:
    """Numbers the steps; says what is done and how long it took."""

    number = 0

    def __call__(self, title: str, work: Callable[[], T]) -> T:
        self.number += 1
        console, began = Console(highlight=False), time.perf_counter()
        console.print(f"[bold]{self.number}. {title}[/bold]")
        made = work()
        console.print(f"   {time.perf_counter() - began:.1f} s", style="dim")
        return made


def _simulate(out: Path, visits: int) -> tuple[list[Visit], list[Visit]]:
    from whatelse.simulate import simulate
    from whatelse.sources.write import write_visits

    made = list(simulate(visits, SEED)), list(simulate(visits // 4, SEED + 1))
    for name, some in zip(MADE, made, strict=False):
        write_visits(iter(some), out / name)
        typer.echo(f"   {len(some):,} visits in {out / name}")
    return made


def _learn(visits: list[Visit], path: Path) -> whatelse.Tagger:
    """A model of the paper's conditions from anchors and the labels of LABELLED visits at random."""
    import numpy as np

    cohort = whatelse.build_cohort(visits)
    assert cohort.Y is not None
    known = np.zeros(cohort.Y.shape, bool)
    known[np.random.default_rng(SEED).permutation(len(cohort))[:LABELLED]] = True
    few = whatelse.Cohort(cohort.X, cohort.vocabulary, cohort.ids, cohort.Y & known, known, cohort.about)
    tagger = whatelse.Tagger().fit(few)
    tagger.save(path)
    return tagger


def _found(tagger: whatelse.Tagger, visits: list[Visit]) -> float:
    """Share of the true conditions of visits that are among their FIRST likeliest."""
    ranked = (-tagger.predict_proba(visits)).argsort(axis=1)[:, :FIRST].tolist()
    names = [{tagger.conditions_[i] for i in first} for first in ranked]
    hits = [name in first for visit, first in zip(visits, names, strict=True) for name in visit.truth or ()]
    return sum(hits) / max(1, len(hits))


def _ask(tagger: whatelse.Tagger, visits: list[Visit]) -> None:
    """Three visits before and after a condition is confirmed: the pair of NODS that rises most, then the next."""
    import numpy as np

    pairs = [(tagger.conditions_.index(first), tagger.conditions_.index(then)) for first, then in NODS]
    some = [visit for visit in visits if visit.truth][:LOOKED_AT]
    asked = [(visit, i, j) for visit in some for i, j in pairs if tagger.conditions_[i] in (visit.truth or ())]
    confirmed = np.zeros((len(asked), len(tagger.conditions_)), bool)
    confirmed[np.arange(len(asked)), [i for _, i, _ in asked]] = True
    before = tagger.predict_proba([visit for visit, _, _ in asked])
    after = tagger.predict_proba([visit for visit, _, _ in asked], confirmed)
    moves = sorted((before[k, j] - after[k, j], k, i, j) for k, (_, i, j) in enumerate(asked))
    shown: set[int] = set()
    for _, k, i, j in moves:
        if len(shown) == 3 or i in shown:
            continue
        shown.add(i)
        visit, first, then = asked[k][0], tagger.conditions_[i], tagger.conditions_[j]
        typer.echo("")
        print_answer(visit, answer(tagger, visit, [], [], top=4))
        print_answer(visit, answer(tagger, visit, [first], [], top=4), note=False)
        change, moves_ = f"{before[k, j]:.1%} -> {after[k, j]:.1%}", "lifts" if after[k, j] > before[k, j] else "lowers"
        typer.secho(f"confirming {first} {moves_} {then}: {change}", bold=True)


def _serve(out: Path, wanted: bool | None) -> None:
    """Serve the page with the shipped model of all conditions, or print the one command that does."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "whatelse" else "whatelse"
    options = ["--model", "emergency", "--visits", str(out / MADE[1]), "--database", f"sqlite:///{out / MADE[3]}"]
    command = shlex.join([program, "serve", *options])
    if wanted is None:
        wanted = sys.stdin.isatty() and sys.stdout.isatty()
    if not wanted:
        typer.echo(f"to see the tagging page: {command}")
        return
    typer.echo(f"serving the tagging page: {command}")
    from whatelse.cli import app

    app(["serve", *options], standalone_mode=False)
