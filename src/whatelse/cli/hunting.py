"""Further anchors: `anchors suggest`, `try`, `accept`, `refuse` and `new`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from whatelse.cli.bar import progress_bar, track
from whatelse.cli.printing import print_note
from whatelse.errors import CohortError

if TYPE_CHECKING:
    from whatelse.cohort import Cohort
    from whatelse.teaching.bench.judged import Subject
    from whatelse.teaching.hunting.suggest import Suggestion
    from whatelse.teaching.hunting.trial import Answer, Excerpt, Worth
    from whatelse.visits import Visit

EXAMPLES = 3
KEYS: dict[str, Answer] = {"y": "yes", "n": "no", "s": "skip", "u": "undo", "q": "stop"}


def register(anchors: typer.Typer) -> None:
    """Add the commands of this module to `whatelse anchors`."""
    anchors.command("suggest")(suggest)
    anchors.command("try")(try_)
    anchors.command("accept")(accept)
    anchors.command("refuse")(refuse)
    anchors.command("new")(new)


def suggest(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    condition: list[str] | None = typer.Option(None, "--condition", help="Only for this condition; may be repeated."),
    visits: list[Path] | None = typer.Option(
        None, "--visits", help="The cohort's records: examples are shown. [read where they were, and not shown]"
    ),
    most: int = typer.Option(10, "--most", min=1, help="Suggestions for each condition."),
    refused: Path | None = typer.Option(None, "--refused", help="YAML file of phrases refused before."),
    lexicon: Path | None = typer.Option(None, "--lexicon", help="Your own lexicon, added to the shipped one."),
    model: Path | None = typer.Option(None, "--model", help="A model of this cohort: what it is sure of counts too."),
    as_json: bool = typer.Option(False, "--json", help="Print a list of objects instead of tables."),
) -> None:
    """Phrases, drugs and codes that could be further anchors, and why. Conditions that would gain most come first."""
    from whatelse.cohort import Cohort
    from whatelse.tagger import Tagger
    from whatelse.teaching.hunting.edit import read_refused
    from whatelse.teaching.hunting.lexicon import Lexicon
    from whatelse.teaching.hunting.phrases import from_cohort, from_visits
    from whatelse.teaching.hunting.suggest import suggest as find

    opened = Cohort.open(cohort)
    probability = None
    if model is not None:
        tagger = Tagger.load(model)
        if tagger.vocabulary_.names != opened.vocabulary.names or tagger.conditions_ != opened.conditions:
            raise CohortError(f"{model} has other findings or conditions than {cohort}: give a model learned from it")
        probability = tagger.predict_proba(opened)
    if visits or _records_at_hand(opened):
        table = from_visits(opened, _records(opened, visits))
    else:
        print_note("the records are not where they were: only the cohort's own findings are candidates; give --visits")
        table = from_cohort(opened)
    found = find(
        opened,
        table,
        lexicon=Lexicon.shipped(lexicon),
        conditions=condition,
        probability=probability,
        refused=read_refused(refused) if refused is not None and refused.exists() else None,
        most=most,
    )
    examples = _examples(opened, found, _records(opened, visits)) if visits else {}
    if as_json:
        ids = {at: [e.visit for e in shown] for at, shown in examples.items()}
        typer.echo(json.dumps([s.to_json() | {"examples": ids.get(at, [])} for at, s in enumerate(found)], indent=1))
        return
    print_suggestions(found, examples)


def try_(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    condition: str = typer.Option(..., "--condition", help="The condition."),
    phrase: str = typer.Option(..., "--phrase", help="The phrase, drug or code to try."),
    visits: list[Path] | None = typer.Option(None, "--visits", help="The cohort's records. [where they were]"),
    key: str = typer.Option("notes", "--key", help="Where it is looked for, as in a conditions file."),
    system: str | None = typer.Option(None, "--system", help="For --key coded: the code system."),
    looks: int = typer.Option(10, "--looks", min=0, help="Visits to judge; 0 for none."),
    seed: int = typer.Option(0, "--seed", min=0, help="The same seed shows the same visits."),
    judged: Path | None = typer.Option(
        None, "--judged", help="CSV file to keep the answers in, as the workbench does."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the numbers as JSON; nothing is asked."),
) -> None:
    """What a phrase would be worth as an anchor: visits gained, overlap, and precision by ten visits that you judge."""
    from whatelse.cohort import Cohort
    from whatelse.teaching.hunting.trial import judge, try_phrase, with_judgements

    opened = Cohort.open(cohort)
    records = _records(opened, visits)
    worth, excerpts = try_phrase(opened, condition, phrase, records, key=key, system=system, looks=looks, seed=seed)
    if as_json:
        typer.echo(json.dumps(worth.to_json(), indent=1))
        return
    print_worth(worth)
    if excerpts:
        typer.echo(f"does the patient have {condition}?  y yes, n no, s skip, u undo, q stop")
        said = judge(excerpts, _ask)
        worth = with_judgements(worth, said)
        if judged is not None:
            _keep(judged, (condition, " ".join(phrase.split()), key, system or ""), excerpts, said)
    if worth.precision is not None:
        share, low, high = worth.precision
        typer.echo(f"{worth.yes} of {worth.judged} have it: precision {share:.2f} (95%: {low:.2f} to {high:.2f})")
        typer.echo(f"next: whatelse anchors {'accept' if share >= 0.7 else 'refuse'} FILE {condition!r} {phrase!r}")


def _keep(file: Path, subject: Subject, excerpts: list[Excerpt], said: list[bool | None]) -> None:
    """Add what was said to a file of judged visits."""
    from whatelse.teaching.bench.judged import judge_visit

    for excerpt, answer in zip(excerpts, said, strict=True):
        if answer is not None:
            judge_visit(file, subject, excerpt.visit, answer)


def accept(
    conditions: Path = typer.Argument(..., help="The conditions file to add to (YAML)."),
    condition: str = typer.Argument(..., help="The condition."),
    phrase: str = typer.Argument(..., help="The phrase, drug or code."),
    key: str = typer.Option("notes", "--key", help="Where it is looked for: notes, dispensed, coded …"),
    system: str | None = typer.Option(None, "--system", help="For --key coded: the code system."),
    learn: Path | None = typer.Option(
        None, "--learn", help="A cohort folder: learn with and without the change, and show what it was worth."
    ),
    most: int = typer.Option(10_000, "--most", min=500, help="For --learn: visits at most, for an answer in seconds."),
) -> None:
    """Add an anchor to a conditions file; the rest of the file stays as it is."""
    from whatelse.teaching.hunting.edit import add_phrase

    add_phrase(conditions, condition, phrase, key, system)
    typer.echo(f"added {phrase!r} to {condition} in {conditions}; build the cohort again to use it")
    if learn is not None:
        _what_changed(conditions, learn, most)


def _what_changed(conditions: Path, cohort: Path, most: int) -> None:
    """Learn from some of a cohort's visits with its own anchors and with those of a file; show the difference."""
    from whatelse.anchors import AnchorSet
    from whatelse.cli.bench import print_outcome
    from whatelse.cohort import Cohort
    from whatelse.teaching.bench.course import learn, some_of
    from whatelse.teaching.bench.overview import own_labels

    opened, visits = some_of(Cohort.open(cohort), _records(Cohort.open(cohort), None), most)
    with progress_bar() as told:
        outcome, _, _ = learn(opened, visits, AnchorSet.load(conditions), own_labels, progress=told)
    print_outcome(outcome)


def refuse(
    refused: Path = typer.Argument(..., help="The file of refused phrases (YAML); made if it is not there."),
    condition: str = typer.Argument(..., help="The condition."),
    phrase: str = typer.Argument(..., help="The phrase, drug or code."),
) -> None:
    """Remember that a phrase is no anchor of a condition, for 'anchors suggest --refused'."""
    from whatelse.teaching.hunting.edit import refuse_phrase

    refuse_phrase(refused, condition, phrase)
    typer.echo(f"{phrase!r} will not be suggested for {condition} with --refused {refused}")


def new(
    conditions: Path = typer.Argument(..., help="The conditions file (YAML); made if it is not there."),
    name: str = typer.Argument(..., help="The name of the condition."),
    phrase: str = typer.Argument(..., help="One phrase of the notes that stands for it."),
    title: str | None = typer.Option(None, "--title", help="What a person reads. [the name]"),
) -> None:
    """Start a condition from nothing but a name and one phrase."""
    from whatelse.teaching.hunting.edit import new_condition

    new_condition(conditions, name, phrase, title)
    typer.echo(f"started {name!r} in {conditions}")
    typer.echo(f"next: whatelse build table VISITS --conditions {conditions} --out COHORT, and anchors suggest COHORT")


# ---- records


def _records_at_hand(cohort: Cohort) -> bool:
    files = cohort.about.get("files") or ()
    return bool(files) and all(Path(file).exists() for file in files)


def _records(cohort: Cohort, files: list[Path] | None) -> Iterable[Visit]:
    """The cohort's records, read as they were when it was built; rows that cannot be used are passed over."""
    from whatelse.cohort.again import records_of

    return track(records_of(cohort, files), "reading visits")


def _examples(cohort: Cohort, found: list[Suggestion], visits: Iterable[Visit]) -> dict[int, list[Excerpt]]:
    """The first mentions of each suggestion in visits where its condition's anchor is silent."""
    from whatelse.teaching.hunting.trial import as_anchor, mentions

    row_of = {str(visit): row for row, visit in enumerate(cohort.ids)}
    column = [cohort.conditions.index(s.condition) for s in found]
    shown: dict[int, list[Excerpt]] = {}
    known = (visit for visit in visits if visit.id in row_of)
    anchors = [as_anchor(s.phrase, s.key, s.system) for s in found]
    for at, excerpt in mentions(known, anchors, cohort.vocabulary.rules) if anchors else ():
        if len(shown.get(at, ())) < EXAMPLES and not cohort.A[row_of[excerpt.visit], column[at]]:
            shown.setdefault(at, []).append(excerpt)
    return shown


def _ask(number: int, excerpt: Excerpt) -> Answer:
    """Ask at the terminal; one key is enough."""
    Console().print(Text(f"{number + 1:>3}  ") + _marked(excerpt))
    while True:
        typer.echo("     [y/n/s/u/q] ", nl=False)
        key = typer.getchar().lower() if _has_keys() else typer.prompt("", prompt_suffix="").strip().lower()[:1]
        typer.echo(key if _has_keys() else "")
        if key in KEYS:
            return KEYS[key]


def _has_keys() -> bool:
    import sys

    return sys.stdin.isatty()


# ---- printing


def _marked(excerpt: Excerpt) -> Text:
    text = Text(" ".join(excerpt.text[: excerpt.start].split()) + " " if excerpt.start else "")
    text.append(excerpt.text[excerpt.start : excerpt.end], style="bold reverse")
    rest = excerpt.text[excerpt.end :]
    return text + Text((" " if rest[:1].isspace() else "") + " ".join(rest.split()))


def print_suggestions(found: list[Suggestion], examples: dict[int, list[Excerpt]]) -> None:
    """A table for each condition, the examples under it."""
    from whatelse.teaching.hunting.suggest import by_condition

    console = Console() if Console().is_terminal else Console(width=180)
    if not found:
        typer.echo("nothing to suggest")
    number = {id(s): at for at, s in enumerate(found)}
    for condition, group in by_condition(found).items():
        table = Table("phrase", "under", "precision", "fires", "gained", "overlaps", "why", title=escape(condition))
        for s in group:
            under = s.key if s.system is None else f"{s.key}: {s.system}"
            overlap = ", ".join(f"{o.condition} ({o.both:,}, x{o.lift:.1f})" for o in s.overlaps[:2])
            why = "; ".join(f"{r.source} {r.log_odds:+.1f}: {r.says}" for r in s.why[:4])
            name = f"{s.phrase} ({s.label})" if s.label else s.phrase
            cells = [name, under, f"{s.precision:.2f}", f"{s.fires:,}", f"{s.gained:,}", overlap, why]
            table.add_row(*map(escape, cells))
        console.print(table)
        for s in group:
            for excerpt in examples.get(number[id(s)], ()):
                console.print(Text(f"  {s.phrase}: ", style="italic") + _marked(excerpt))


def print_worth(worth: Worth) -> None:
    """The numbers of a trial."""
    typer.echo(
        f"{worth.phrase!r} fires in {worth.fires:,} visits; in {worth.gained:,} of them the anchor of "
        f"{worth.condition} is silent (it fires in {worth.anchored:,})"
    )
    for o in worth.overlaps:
        typer.echo(f"overlaps with the anchor of {o.condition} in {o.both:,} visits, {o.lift:.1f} times chance")
    if worth.labelled:
        typer.echo(f"{worth.true:,} of {worth.labelled:,} labelled visits with it have the condition")
