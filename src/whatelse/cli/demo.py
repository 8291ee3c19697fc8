"""`demo`: simulate, build, learn, compare and ask, in a few minutes."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from whatelse.cli.model_tables import answer, print_answer, print_results
from whatelse.cli.progress import progress_bar, track
from whatelse.errors import InputError

if TYPE_CHECKING:
    from whatelse.cohort import Cohort
    from whatelse.evaluation.showcase import Example
    from whatelse.tagger import Tagger

SEED = 1
LABELLED = 1_000  # visits with labels


def demo(
    out: Path = typer.Option(Path("demo"), "--out", help="Folder for everything that is made."),
    serve: bool | None = typer.Option(
        None, "--serve/--no-serve", help="End by serving the tagging page. [if a terminal is attached]"
    ),
    visits: int = typer.Option(20_000, "--visits", min=500, help="Visits to learn from; two fifths as many to test."),
) -> None:
    """Simulate a department, learn from its anchors and few labels, compare with the paper's baselines, ask: what else?

    Steps that an earlier run has finished are not repeated.

    Example: whatelse demo --visits 5000 --no-serve
    """
    began = time.perf_counter()
    run = _Run(out, visits)
    run.step("simulate an emergency department that never existed", run.simulate)
    run.step("make cohorts: findings and anchors of every visit", run.build)
    run.step("learn every model that needs no labels, and an oracle that has them", run.compare)
    run.step(f"learn the model to use, from anchors and {LABELLED:,} labelled visits", run.fit)
    print_results(json.loads(run.results.read_text("utf-8")))
    run.step("ask what else, for three visits", run.ask, always=True)
    typer.echo(f"\ndone in {time.perf_counter() - began:.0f} s. The report is {run.report / 'index.html'}")
    _serve(run, serve)


class _Run:
    """The steps, each with what it leaves in the folder. `done.json` says which are finished, and for what settings."""

    def __init__(self, out: Path, visits: int) -> None:
        from whatelse import __version__
        from whatelse.learning import learners as learning

        self.out, self.visits, self.tests = out, visits, visits * 2 // 5
        self.report, self.model, self.results = out / "report", out / "model.safetensors", out / "report/results.json"
        self.settings = {"whatelse": __version__, "visits": visits, "seed": SEED, "learner": learning.DEFAULT}
        self.number = 0
        if out.exists() and any(out.iterdir()) and not (out / "done.json").is_file():
            raise InputError("exists and is not a demo's folder: choose another with --out", file=out)
        out.mkdir(parents=True, exist_ok=True)
        self.done = self._read_done()

    def step(self, title: str, work: Callable[[], None], always: bool = False) -> None:
        """Say what is done, do it unless it is done already, say how long it took."""
        self.number += 1
        console = Console(highlight=False)
        console.print(f"[bold]{self.number}. {title}[/bold]")
        if not always and self.number in self.done:
            console.print("   done before", style="dim")
            return
        began = time.perf_counter()
        work()
        console.print(f"   {time.perf_counter() - began:.1f} s", style="dim")
        if not always:
            self.done.append(self.number)
            text = json.dumps({"settings": self.settings, "done": self.done})
            (self.out / "done.json").write_text(text, encoding="utf-8")

    def _read_done(self) -> list[int]:
        """The finished steps, as far as what they left is still there and they were made with the same settings."""
        try:
            kept = json.loads((self.out / "done.json").read_text("utf-8"))
            made, now = kept["settings"], self.settings
            if any(made[name] != now[name] for name in now if name != "learner"):
                return []
            left = {1: [self._visits("train"), self._visits("test")], 2: [self.out / "train", self.out / "test"]}
            if made["learner"] == now["learner"]:
                left |= {3: [self.results, self.report / "index.html"], 4: [self.model]}
            done: list[int] = []
            for number, paths in left.items():
                if number not in kept["done"] or not all(path.exists() for path in paths):
                    break
                done.append(number)
            return done
        except (OSError, ValueError, KeyError, TypeError):
            (self.out / "done.json").write_text("{}", encoding="utf-8")
            return []

    # ---- steps

    def simulate(self) -> None:
        from whatelse.simulate import simulate
        from whatelse.sources.write import write_visits

        for name, count, seed in (("train", self.visits, SEED), ("test", self.tests, SEED + 1)):
            write_visits(track(simulate(count, seed), f"simulating {name}", total=count), self._visits(name))
            typer.echo(f"   {count:,} visits in {self._visits(name)}")

    def build(self) -> None:
        from whatelse.cohort import build_cohort
        from whatelse.sources import read_visits

        like = None
        for name in ("train", "test"):
            path = self._visits(name)
            about = {"source": "table", "files": [str(path.absolute())]}
            built = build_cohort(track(read_visits(path), f"reading {name}"), like=like, about=about)
            built.save(self.out / name)
            like = built
            typer.echo(f"   {len(built):,} visits x {len(built.vocabulary.names):,} findings in {self.out / name}")

    def compare(self) -> None:
        from whatelse.evaluation.report import write_report
        from whatelse.evaluation.reproduce import Plan, reproduce

        with progress_bar() as told:
            plan = Plan(without=("nvil",), keep=self.report)
            results = reproduce(self._cohort("train"), self._cohort("test"), plan, told)
        command = f"whatelse reproduce --train {self.out}/train --test {self.out}/test --without nvil"
        write_report(results, self.report, f"{command} --out {self.report}")

    def fit(self) -> None:
        from whatelse.learning import learners as learning
        from whatelse.tagger import Tagger

        with progress_bar() as told:
            tagger = Tagger(learning.DEFAULT).fit(_few_labels(self._cohort("train")), progress=told)
        tagger.save(self.model)
        typer.echo(f"   {len(tagger.conditions_)} conditions in {self.model}")

    def ask(self) -> None:
        from whatelse.evaluation.showcase import find_examples
        from whatelse.sources import read_visits
        from whatelse.tagger import Tagger

        tagger = Tagger.load(self.model)
        examples = find_examples(tagger, self._cohort("test"))
        wanted = {example.visit: example for example in examples}
        records = {v.id: v for v in read_visits(self._visits("test")) if v.id in wanted}
        for example in examples:
            _show(tagger, records[example.visit], example)

    # ---- folders

    def _visits(self, name: str) -> Path:
        return self.out / f"{name}.parquet"

    def _cohort(self, name: str) -> Cohort:
        from whatelse.cohort import Cohort

        return Cohort.open(self.out / name)


def _few_labels(cohort: Cohort) -> Cohort:
    """The cohort with the labels of LABELLED visits at random, and no other."""
    import numpy as np

    from whatelse.cohort import Cohort

    assert cohort.Y is not None
    known = np.zeros(cohort.Y.shape, bool)
    known[np.random.default_rng(SEED).permutation(len(cohort))[:LABELLED]] = True
    return Cohort(cohort.X, cohort.vocabulary, cohort.ids, cohort.Y & known, known, cohort.about)


def _show(tagger: Tagger, visit: Any, example: Example) -> None:
    """A visit before and after a tag is confirmed."""
    typer.echo("")
    print_answer(visit, answer(tagger, visit, [], [], top=4, reasons=4))
    print_answer(visit, answer(tagger, visit, [example.confirmed], [], top=4, reasons=4), note=False)
    moved = "lifts" if example.after > example.before else "explains away"
    truth = "the visit does have it" if example.true else "the visit does not have it"
    change = f"{example.before:.1%} -> {example.after:.1%}"
    typer.secho(f"confirming {example.confirmed} {moved} {example.other}: {change} ({truth})", bold=True)


def _serve(run: _Run, wanted: bool | None) -> None:
    """Serve the page, or print the one command that does."""
    database = f"sqlite:///{run.out / 'decisions.db'}"
    program = sys.argv[0] if Path(sys.argv[0]).name == "whatelse" else "whatelse"
    options = ["--model", str(run.model), "--visits", str(run._visits("test")), "--database", database]
    command = shlex.join([program, "serve", *options])
    if wanted is None:
        wanted = sys.stdin.isatty() and sys.stdout.isatty()
    if not wanted:
        typer.echo(f"to see the tagging page: {command}")
        return
    typer.echo(f"serving the tagging page: {command}")
    from whatelse.cli import app

    app(["serve", *options], standalone_mode=False)
