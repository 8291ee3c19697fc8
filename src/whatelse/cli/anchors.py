"""Anchors: `anchors check`, `label-next`, `suggest`, `edit`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

import whatelse
from whatelse.cli.anchor_tables import marked, print_checks, print_suggestions, print_uses, print_worth
from whatelse.cli.options import COHORT, JSON, KEY, RECORDS, SYSTEM
from whatelse.cli.tables import print_json, print_note, progress_bar, track
from whatelse.errors import CohortError, ConditionError, InputError
from whatelse.visits import Visit

if TYPE_CHECKING:
    from whatelse.annotators.anchor_uses import AnchorUse, Excerpt
    from whatelse.annotators.discovery.suggest import Suggestion
    from whatelse.annotators.discovery.trial import Answer

EXAMPLES = 3  # mentions to show of each suggestion
KEYS: dict[str, Answer] = {"y": "yes", "n": "no", "s": "skip", "u": "undo", "q": "stop"}


def check(
    cohort: Path = COHORT,
    as_json: bool = JSON,
    fdr: float = typer.Option(0.01, "--fdr", help="Share of false warnings to allow."),
    min_odds: float = typer.Option(2.0, "--min-odds", help="Warn from this odds ratio on, or its inverse."),
    phrases: bool = typer.Option(True, help="Read the records again and show where each anchor fired, with excerpts."),
    visits: list[Path] = RECORDS,
) -> None:
    """Coverage, overlap, precision and recall of anchors; findings that depend on them; what fired. JSON: no text.

    Example: whatelse anchors check cohort
    """
    from whatelse.annotators.anchor_checks import check_anchors
    from whatelse.annotators.data_checks import doubts

    opened = whatelse.Cohort.open(cohort)
    checks = check_anchors(opened, fdr=fdr, min_odds=min_odds)
    uses = _uses(opened, visits) if phrases else []
    if as_json:
        entries = [asdict(c) for c in checks]
        for entry in entries:
            entry["anchors"] = [use.to_json() for use in uses if use.condition == entry["condition"]]
        print_json(entries)
        return
    print_checks(checks, labelled=opened.Y is not None)
    print_uses(uses)
    found = doubts(opened)
    for doubt in found:
        print_note(str(doubt))
    hopeless = sum(doubt.hopeless for doubt in found)
    if hopeless:
        typer.echo(f"verdict: {hopeless} of {len(checks)} conditions cannot be learned")
    else:
        typer.echo(f"verdict: {'usable, with the notes above' if found else 'ready to learn from'}")


def _uses(cohort: whatelse.Cohort, files: list[Path]) -> list[AnchorUse]:
    """Where each anchor fired in the cohort's records; a note and an empty list if the records cannot be read."""
    from whatelse.annotators.anchor_uses import anchor_uses
    from whatelse.lifecycle.rebuild import records_of

    own = set(cohort.ids.tolist())
    try:
        records = (record for record in records_of(cohort, files) if record.id in own)
        return anchor_uses(cohort.vocabulary, track(records, "looking for anchors", total=len(own)))
    except (InputError, CohortError) as problem:
        if files:
            raise
        print_note(f"single anchors are not shown: the records cannot be read again ({problem}); give --visits")
        return []


def suggest(
    cohort: Path = COHORT,
    condition: list[str] = typer.Option([], "--condition", help="Only for this condition; may be repeated."),
    phrase: str | None = typer.Option(
        None, "--phrase", help="Preview this phrase, drug or code of one condition: what it would be worth."
    ),
    visits: list[Path] = typer.Option(
        [], "--visits", help="Files of the cohort's records; excerpts are shown. [where they were, without excerpts]"
    ),
    most: int = typer.Option(10, "--most", min=1, help="Suggestions for each condition."),
    refused: Path | None = typer.Option(None, "--refused", help="YAML file of phrases refused before."),
    knowledge: Path | None = typer.Option(None, "--knowledge", help="Knowledge file of your own (YAML), used too."),
    model: Path | None = typer.Option(None, "--model", help="A model of this cohort; its probabilities are used too."),
    key: str = KEY,
    system: str | None = SYSTEM,
    judged: Path | None = typer.Option(None, "--judged", help="For --phrase: CSV file to keep the answers in."),
    as_json: bool = JSON,
) -> None:
    """Phrases, drugs and codes that could be further anchors, and why. Conditions that would gain most come first.

    With --phrase: visits that the phrase would gain, overlap, and its precision in ten visits that you judge.

    Example: whatelse anchors suggest cohort --condition headache --refused refused.yaml

    Example: whatelse anchors suggest cohort --condition headache --phrase h/a
    """
    from whatelse.annotators.discovery.edit import read_refused
    from whatelse.annotators.discovery.meanings import Meanings
    from whatelse.annotators.discovery.phrases import from_visits
    from whatelse.annotators.discovery.suggest import suggest as find

    opened = whatelse.Cohort.open(cohort)
    if phrase is not None:
        if len(condition) != 1:
            raise InputError("--phrase is previewed for one condition: give --condition once")
        where = condition[0], phrase, key, system
        return _preview(opened, where, _records(opened, visits), judged, as_json)
    probability = None
    if model is not None:
        tagger = whatelse.Tagger.load(model)
        if tagger.vocabulary_.names != opened.vocabulary.names or tagger.conditions_ != opened.conditions:
            raise CohortError(f"{model} has other findings or conditions than {cohort}: give a model learned from it")
        probability = tagger.predict_proba(opened)
    found = find(
        opened,
        from_visits(opened, _records(opened, visits)),
        meanings=Meanings.of(knowledge),
        conditions=condition or None,
        probability=probability,
        refused=read_refused(refused) if refused is not None and refused.exists() else None,
        most=most,
    )
    examples = _examples(opened, found, _records(opened, visits)) if visits else {}
    if as_json:
        ids = {at: [e.visit for e in shown] for at, shown in examples.items()}
        print_json([asdict(s) | {"examples": ids.get(at, [])} for at, s in enumerate(found)])
        return
    print_suggestions(found, examples)


def _preview(
    cohort: whatelse.Cohort,
    where: tuple[str, str, str, str | None],
    records: Iterable[Visit],
    judged: Path | None,
    as_json: bool,
) -> None:
    """Preview a phrase as an anchor: visits gained, overlap, and precision in visits that somebody judges.

    where: condition, phrase, key, code system
    """
    from whatelse.annotators.discovery.trial import judge, try_phrase, with_judgements
    from whatelse.workbench.folder import judge_visit

    condition, phrase, key, system = where
    if condition not in cohort.conditions:
        raise CohortError(f"{condition!r} is not a condition of this cohort; it has {', '.join(cohort.conditions)}")
    worth, excerpts = try_phrase(cohort, condition, phrase, records, key=key, system=system)
    if as_json:
        return print_json(asdict(worth))
    print_worth(worth)
    if excerpts:
        typer.echo(f"does the patient have {condition}?  y yes, n no, s skip, u undo, q stop")
        said = judge(excerpts, _ask)
        worth = with_judgements(worth, said)
        for excerpt, answer in zip(excerpts, said, strict=True):
            if judged is not None and answer is not None:
                judge_visit(judged, (condition, " ".join(phrase.split()), key, system or ""), excerpt.visit, answer)
    if worth.precision is not None:
        share, low, high = worth.precision
        typer.echo(f"{worth.yes} of {worth.judged} have it: precision {share:.2f} (95%: {low:.2f} to {high:.2f})")
        what = "--add" if share >= 0.7 else "--refuse"
        typer.echo(f"next: whatelse anchors edit FILE {condition!r} {what} {phrase!r}")


def edit(
    file: Path = typer.Argument(..., help="Conditions file (YAML); for --refuse, --unrefuse: file of refused phrases."),
    condition: str = typer.Argument(..., help="The condition."),
    add: list[str] = typer.Option([], "--add", help="Add this phrase, drug or code as an anchor; repeat."),
    remove: list[str] = typer.Option([], "--remove", help="Remove this anchor; repeat."),
    change: tuple[str, str] = typer.Option(("", ""), "--change", metavar="OLD NEW", help="Replace an anchor."),
    refuse: list[str] = typer.Option([], "--refuse", help="Do not suggest this phrase again; repeat."),
    unrefuse: list[str] = typer.Option([], "--unrefuse", help="Suggest this phrase again; repeat."),
    new: bool = typer.Option(False, "--new", help="Start the condition, with the phrase of --add."),
    key: str = KEY,
    system: str | None = SYSTEM,
    learn: Path | None = typer.Option(
        None, "--learn", help="Cohort folder: learn with and without the edit, and show the difference."
    ),
    most: int = typer.Option(10_000, "--most", min=500, help="For --learn: use at most this many visits."),
) -> None:
    """Edit the anchors of a condition. Everything else in the file stays as it is.

    Example: whatelse anchors edit conditions.yaml headache --add h/a --remove head
    """
    from whatelse.annotators.discovery import edit as work

    again = f"{condition} in {file}; build the cohort again to use it"
    if not (add or remove or any(change) or refuse or unrefuse):
        raise InputError("nothing to edit: give --add, --remove, --change, --refuse or --unrefuse")
    if new:
        if len(add) != 1:
            raise ConditionError("--new starts a condition with one phrase: give one --add")
        work.new_condition(file, condition, add[0])
        typer.echo(f"started {condition!r} in {file}")
        typer.echo(f"next: whatelse build VISITS --conditions {file} --out COHORT, and anchors suggest COHORT")
    for phrase in [] if new else add:
        work.add_phrase(file, condition, phrase, key, system)
        typer.echo(f"added {phrase!r} to {again}")
    for phrase in remove:
        work.take_out(file, condition, phrase, key, system)
        typer.echo(f"removed {phrase!r} from {again}")
    if any(change):
        work.change_phrase(file, condition, *change, key)
        typer.echo(f"{change[0]!r} is now {change[1]!r}, of {again}")
    for phrase in refuse:
        work.refuse_phrase(file, condition, phrase)
        typer.echo(f"{phrase!r} will not be suggested for {condition} with --refused {file}")
    for phrase in unrefuse:
        work.allow_phrase(file, condition, phrase)
        typer.echo(f"{phrase!r} may be suggested for {condition} again")
    if learn is not None:
        _print_difference(file, learn, most)


def _print_difference(conditions: Path, cohort: Path, most: int) -> None:
    """Learn from some visits of a cohort with its own anchors and with those of a file; print the difference."""
    from whatelse.cli.refit import print_outcome
    from whatelse.workbench.overview import own_labels
    from whatelse.workbench.training import learn, some_of

    opened, visits = some_of(whatelse.Cohort.open(cohort), _records(whatelse.Cohort.open(cohort), []), most)
    with progress_bar() as told:
        outcome, _, _ = learn(opened, visits, whatelse.AnchorSet.load(conditions), own_labels, progress=told)
    print_outcome(outcome)


def _records(cohort: whatelse.Cohort, files: list[Path]) -> Iterable[Visit]:
    """The cohort's records, read as when the cohort was built. Rows that cannot be used are skipped."""
    from whatelse.lifecycle.rebuild import records_of

    return track(records_of(cohort, files), "reading visits")


def _examples(cohort: whatelse.Cohort, found: list[Suggestion], visits: Iterable[Visit]) -> dict[int, list[Excerpt]]:
    """The first mentions of each suggestion in visits where its condition's anchor is silent."""
    from whatelse.annotators.anchor_uses import as_anchor, mentions

    row_of = {str(visit): row for row, visit in enumerate(cohort.ids)}
    column = [cohort.conditions.index(s.condition) for s in found]
    shown: dict[int, list[Excerpt]] = {}
    known = (visit for visit in visits if visit.id in row_of)
    anchors = [as_anchor(s.phrase, s.key, s.system) for s in found]
    there = mentions(known, anchors, cohort.vocabulary.rules, cohort.vocabulary.lexicon)
    for at, excerpt in there:
        if len(shown.get(at, ())) < EXAMPLES and not cohort.A[row_of[excerpt.visit], column[at]]:
            shown.setdefault(at, []).append(excerpt)
    return shown


def _ask(number: int, excerpt: Excerpt) -> Answer:
    """Ask at the terminal; one key is enough."""
    Console().print(Text(f"{number + 1:>3}  ") + marked(excerpt))
    while True:
        typer.echo("     [y/n/s/u/q] ", nl=False)
        terminal = sys.stdin.isatty()
        key = typer.getchar().lower() if terminal else typer.prompt("", prompt_suffix="").strip().lower()[:1]
        typer.echo(key if terminal else "")
        if key in KEYS:
            return KEYS[key]
