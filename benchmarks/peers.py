"""Other ways to the same question, side by side: held-out tag, log loss, time and memory (BENCHMARKS 1, 1c to 1g).

    python -m benchmarks.peers DATA WORK [--sets nhamcs vaers neiss] [--peers NAME ...] [--labels 0 200 1000]
        [--draws 3] [--plot FILE]

DATA is the folder of the public data sets. WORK keeps cohorts, embeddings and `rows.json`: a row that stands there is
not measured again, so a run can be stopped, and rows measured elsewhere can be merged. `--again` measures again.

All visits of the training years are learned from by their anchors; N of them, at random, are labelled. Peers that
cannot use what is confirmed rank without it. Held-out tag on test visits with two conditions or more, with a 95%
interval over visits; log loss of all conditions with nothing known, on 5,000 test visits. Each peer is measured in a
process of its own: processor seconds and memory above what the data take. Times and memory leave out the embeddings of
test notes, which are made once. A peer whose package is missing is named as not installed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.label_curve import labelled
from benchmarks.peer_learners import EMBEDDINGS, PEERS, Task
from whatelse.cohort import Cohort
from whatelse.io.files import writing
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores

TESTED = 5_000  # test visits that the log loss is measured on
SETS = {"nhamcs": "NHAMCS 2018", "vaers": "`vaers` 1995", "neiss": "`neiss` 2020"}
CURVE = ("whatelse", "regressions on findings", "regressions on words and embeddings", "Snorkel, then regressions")


def build(data: Path, work: Path, name: str) -> None:
    """Make the cohorts WORK/NAME-train and WORK/NAME-test, unless they are there."""
    if (work / f"{name}-test" / "cohort.json").exists():
        return
    folder, conditions, options = data / name, data / name / "seed_anchors.yaml", list[str]()
    if name == "nhamcs":
        parts = [[folder / f"ed{year}_sas.zip" for year in years] for years in ((2016, 2017), (2018,))]
        conditions, options = folder / "conditions.json", ["--source", "nhamcs", "--option", f"labels={folder}"]
    else:
        parts = [[work / f"{name}-{part}.jsonl.gz"] for part in ("train", "test")]
        if name == "vaers":
            for years, (out,) in zip((("1992", "1993", "1994"), ("1995",)), parts, strict=True):
                _run(sys.executable, folder / "reports_to_visits.py", folder, *years, out)
        else:
            with gzip.open(folder / "visits_2003_2020.jsonl.gz", "rt") as lines:
                records = list(lines)
            for last, (out,) in zip((False, True), parts, strict=True):
                with gzip.open(out, "wt") as file:
                    file.writelines(x for x in records if json.loads(x)["time"].startswith("2020") == last)
    made = ["--conditions", conditions], ["--vocabulary-from", work / f"{name}-train"]
    for files, how, part in zip(parts, made, ("train", "test"), strict=True):
        _run(sys.executable, "-m", "whatelse", "build", *files, *options, *how, "--out", work / f"{name}-{part}")


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def measure(work: Path, name: str, who: str, rows: Sequence[str]) -> None:
    """Print a JSON line for each of `rows`, as labels:draw, of a peer on a data set."""
    train, test = Cohort.open(work / f"{name}-train"), Cohort.open(work / f"{name}-test")
    test = test.rows(test.labelled)
    assert test.Y is not None
    draws, several = heldout_tag_draws(test.Y, draws=3), test.Y.sum(1) >= 2
    tested = np.random.default_rng(0).permutation(len(test))[:TESTED]
    for count, draw in (map(int, row.split(":")) for row in rows):
        task = Task(work, name, labelled(train, str(count), draw), test, draw)
        if EMBEDDINGS in PEERS[who].needs:
            task.test_embeddings  # noqa: B018  made before the clock starts
        memory, began = _memory(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores, p = PEERS[who].run(task)
        row: dict[str, Any] = {"labels": count, "draw": draw, "seconds": time.process_time() - began}
        row["megabytes"] = _memory() - memory
        scorer = scores if callable(scores) else lambda X, confirmed, scores=scores: scores[several]
        found = heldout_tag_scores(scorer, test.X, test.Y, draws, resamples=1000)
        row["heldout"] = [found.accuracy.value, found.top5.value, found.mrr.value]
        row["interval"] = [found.accuracy.low, found.accuracy.high]
        if p is not None:
            p, Y = np.clip(p[tested], 1e-6, 1 - 1e-6), test.Y[tested]
            row["log_loss"] = float(-np.where(Y, np.log(p), np.log1p(-p)).mean())
        print(json.dumps(row), flush=True)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(rows: list[dict[str, Any]], name: str, counts: Sequence[int]) -> str:
    """A line a peer: means over draws."""
    head = ["peer", *(f"{count:,} labels" for count in counts), "log loss", "s", "MB"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for who in PEERS:
        own = [row for row in rows if (row["set"], row["peer"]) == (name, who) and row["labels"] in counts]
        cells, losses = list[str](), list[str]()
        for count in counts:
            at = [row for row in own if row["labels"] == count and "heldout" in row]
            cells.append("{:.3f} / {:.3f} / {:.3f}".format(*np.mean([r["heldout"] for r in at], 0)) if at else "")
            known = [row["log_loss"] for row in at if "log_loss" in row]
            losses.append(f"{np.mean(known):.4f}" if known else "–")
        if problems := {row["problem"] for row in own if "problem" in row}:
            cells[0] = ", ".join(sorted(problems))
        used = [f"{max((row.get(n, 0) for row in own), default=0):,.0f}" for n in ("seconds", "megabytes")]
        if own:
            lines.append("| " + " | ".join([who, *cells, ", ".join(losses), *used]) + " |")
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Held-out tag by number of labels: whatelse, regressions and Snorkel."""
    import matplotlib.pyplot as plt

    sets = [name for name in SETS if any(row["set"] == name for row in rows)]
    figure, all_axes = plt.subplots(1, len(sets), figsize=(4.2 * len(sets), 3.8), layout="constrained", squeeze=False)
    counts = sorted({row["labels"] for row in rows})
    for axes, name in zip(all_axes[0], sets, strict=True):
        for who in CURVE:
            own = [row for row in rows if (row["set"], row["peer"]) == (name, who) and "heldout" in row]
            at = sorted({row["labels"] for row in own})
            means = [np.mean([row["heldout"][0] for row in own if row["labels"] == count]) for count in at]
            axes.plot([counts.index(count) for count in at], means, marker="o", label=who)
        axes.set_xticks(range(len(counts)), [f"{count:,}" for count in counts])
        axes.set(xlabel="labelled visits", title=SETS[name].replace("`", ""))
        axes.grid(alpha=0.2)
    all_axes[0][0].set(ylabel="held-out tag, accuracy")
    all_axes[0][-1].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--labels", nargs="+", type=int, default=[0, 200, 1000])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="measure rows that rows.json has already")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--rows", nargs="+", help=argparse.SUPPRESS)  # labels:draw, measured in this process
    options = parser.parse_args()
    if options.rows:
        return measure(options.work, options.sets[0], options.peers[0], options.rows)
    options.work.mkdir(parents=True, exist_ok=True)
    kept = options.work / "rows.json"
    for name in options.sets:
        build(options.data, options.work, name)
        for who in options.peers:
            if PEERS[who].notes and name == "nhamcs":
                continue  # it has no notes
            there = [] if options.again else [_key(row) for row in _read(kept) if "heldout" in row]
            wanted = [
                (count, draw)
                for count in options.labels
                if (count > 0) in PEERS[who].labels
                for draw in range(options.draws if count else 1)
                if (name, who, count, draw) not in there
            ]
            for row in _measured(options, name, who, wanted):
                row |= {"set": name, "peer": who}
                rows = [each for each in _read(kept) if _key(each) != _key(row)]
                with writing(kept) as place:
                    place.write(json.dumps([*rows, row]).encode())
                print(json.dumps(row), file=sys.stderr, flush=True)
        print(f"\n{SETS[name]}\n\n{table(_read(kept), name, options.labels)}", flush=True)
    if options.plot:
        plot(_read(kept), options.plot)


def _read(kept: Path) -> list[dict[str, Any]]:
    return json.loads(kept.read_text()) if kept.exists() else []


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("set", "peer", "labels", "draw"))


def _measured(
    options: argparse.Namespace, name: str, who: str, wanted: Sequence[tuple[int, int]]
) -> Iterator[dict[str, Any]]:
    """Rows of `measure` in a process of its own; `problem` says why one has no result."""
    missing = [module for module in PEERS[who].needs if find_spec(module) is None]
    waiting = dict.fromkeys(wanted, f"not installed: {', '.join(missing)}" if missing else "failed")
    if wanted and not missing:
        words = [options.data, options.work, "--sets", name, "--peers", who, "--rows", *(f"{c}:{d}" for c, d in wanted)]
        command = [sys.executable, "-m", "benchmarks.peers", *map(str, words)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):  # packages print lines of their own
                    row = json.loads(line)
                    del waiting[row["labels"], row["draw"]]
                    yield row
    for (count, draw), problem in waiting.items():
        yield {"labels": count, "draw": draw, "problem": problem}


if __name__ == "__main__":
    sys.exit(main())
