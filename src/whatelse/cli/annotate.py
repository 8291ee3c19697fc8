"""`annotate`: votes of a language model on the conditions of visits."""

from __future__ import annotations

import getpass
import json
import os
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import whatelse
from whatelse.cli.options import MAP, OPTION, RECORDS, SEED, SOURCE, read
from whatelse.cli.tables import print_note, progress_bar
from whatelse.errors import InputError
from whatelse.visits import Visit

if TYPE_CHECKING:
    from whatelse.annotators.language_model.endpoint import Endpoint
    from whatelse.annotators.language_model.journal import Journal
    from whatelse.annotators.language_model.prompt import Prompt
    from whatelse.annotators.language_model.run import Count

KEY_VARIABLE = "WHATELSE_LLM_KEY"
COHORT_FILE = "cohort.json"  # what tells a cohort folder from files of visits


def annotate(
    what: list[Path] = typer.Argument(..., metavar="COHORT|VISITS…", help="A cohort folder, or files of visits."),
    endpoint: str = typer.Option(..., "--endpoint", help="The server's address, such as http://127.0.0.1:8000/v1."),
    model: str = typer.Option(..., "--model", help="The language model's name, as the server calls it."),
    out: Path = typer.Option(..., "--out", help="Parquet file of votes to write, or to go on with."),
    count: int | None = typer.Option(None, "--count", min=1, help="How many visits, as 'label-next' chooses. [all]"),
    ids: Path | None = typer.Option(
        None, "--ids", help="File with a column 'visit', such as a sheet of 'anchors label-next'. [all visits]"
    ),
    visits: list[Path] = RECORDS,
    conditions: Path | None = typer.Option(
        None, "--conditions", help="For files of visits: the conditions to ask about. [the shipped ones]"
    ),
    source: str | None = SOURCE,
    columns: Path | None = MAP,
    option: list[str] = OPTION,
    remove: bool = typer.Option(
        False, "--remove-identifiers", help="Remove names, dates and numbers by rules before sending."
    ),
    second_pass: float = typer.Option(0.1, "--second-pass", min=0, max=1, help="Share of visits to ask about twice."),
    concurrency: int = typer.Option(4, "--concurrency", min=1, max=256, help="Questions at a time."),
    timeout: float = typer.Option(120.0, "--timeout", min=0.1, help="Seconds for an answer."),
    max_tokens: int | None = typer.Option(None, "--max-tokens", min=1, help="Stop this run after so many tokens."),
    max_minutes: float | None = typer.Option(None, "--max-minutes", min=0, help="Stop this run after so many minutes."),
    allow_remote: str | None = typer.Option(
        None, "--allow-remote", metavar="HOST", help="Send records to this host outside; asks for confirmation."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show the first question and the estimate; send nothing."),
    seed: int = SEED,
) -> None:
    """Let a language model vote on the conditions of visits: yes, no or cannot be told, with the words it rests on.

    A run that was stopped goes on where it was: run the same command again. A key of the server is taken from the
    environment variable WHATELSE_LLM_KEY.

    Example: whatelse annotate cohort --endpoint http://127.0.0.1:8000/v1 --model llama --count 500 --out votes.parquet
    """
    from whatelse.annotators.language_model.endpoint import Endpoint
    from whatelse.annotators.language_model.journal import Journal
    from whatelse.annotators.language_model.prompt import Prompt, describe, known_words
    from whatelse.annotators.language_model.redaction import Redactor
    from whatelse.annotators.language_model.run import estimate

    server = Endpoint.of(endpoint, allow_remote)
    asked_about, records, weights = _visits(what, conditions, count, ids, visits, seed, (source, columns, option))
    prompt = Prompt(describe(asked_about), Redactor(known_words(whatelse.load_knowledge())) if remove else None)
    journal = Journal(out, model, prompt.version)
    records = [visit for visit in records if visit.id not in journal.done]
    done_before = f"{len(journal.done):,} visits are done"
    if not records:
        if not dry_run:
            with journal:
                journal.fold()
        typer.echo(f"{done_before}: there is nothing left to ask")
        return
    typer.echo(f"{len(records):,} visits to ask about {len(prompt.conditions)} conditions; {done_before}")
    question, answer, seconds = estimate(prompt, records, second_pass, concurrency)
    tokens = f"{question:,} tokens of questions, {answer:,} of answers"
    typer.echo(f"estimate: {tokens}, {seconds / 60:,.0f} minutes if an answer comes at 40 tokens a second")
    if dry_run:
        for _, messages in prompt.questions(prompt.record(records[0])):
            for message in messages:
                typer.echo(f"--- {message['role']}\n{message['content']}")
        typer.echo(f"--- prompt {prompt.version}; nothing was sent")
        return
    if server.remote:
        typer.confirm(f"Send the records of {len(records):,} visits to {server.host}, outside?", abort=True)
    budget = {"most_tokens": max_tokens, "most_seconds": None if max_minutes is None else 60 * max_minutes}
    settings = {**budget, "concurrency": concurrency, "second": second_pass, "weights": weights}
    done = _run(records, server, model, prompt, journal, timeout, redacted=remove, settings=settings)
    _print_count(done)
    typer.echo(f"{len(journal.done):,} visits have votes in {out}; it quotes records: keep it where records are kept")
    if done.stopped or done.failed:
        print_note(f"{done.stopped or f'{done.failed:,} visits got no answer'}: run the same command again to go on")
    if (what[0] / COHORT_FILE).exists():
        folder, votes = shlex.quote(str(what[0])), shlex.quote(str(out))
        typer.echo(f"next: whatelse annotators {folder} --votes {votes}")
        typer.echo(f"      whatelse fit {folder} --votes {votes} --out model")


def _run(
    records: list[Visit],
    server: Endpoint,
    model: str,
    prompt: Prompt,
    journal: Journal,
    timeout: float,
    redacted: bool,
    settings: dict[str, Any],
) -> Count:
    """Ask, with a progress bar, and write two lines of audit. Votes so far are kept whatever ends the run."""
    import asyncio

    from whatelse.annotators.language_model.endpoint import Client
    from whatelse.annotators.language_model.run import annotate as ask_all

    about = {"host": server.host, "model": model, "prompt": prompt.version, "visits": len(records)}
    _audit(journal.out, "began", about | {"remote": server.remote, "identifiers_removed": redacted})

    async def work() -> Count:
        async with Client(server, model, key=os.environ.get(KEY_VARIABLE), seconds=timeout) as client:
            with progress_bar() as bar:

                def report(so_far: Count) -> None:
                    bar(f"{so_far.asked + so_far.answered:,} tokens", so_far.visits, len(records))

                return await ask_all(records, client, prompt, journal, report=report, **settings)

    outcome: dict[str, Any] = {"outcome": "stopped"}
    try:
        with journal:
            try:
                done = asyncio.run(work())
            finally:
                journal.fold()
        outcome = {"outcome": done.stopped or "done", **vars(done)}
        return done
    except KeyboardInterrupt:
        kept = f"votes on {len(journal.done):,} visits are kept in {journal.out}"
        raise KeyboardInterrupt(f"stopped; {kept}: run the same command again to go on") from None
    finally:
        _audit(journal.out, "ended", about | outcome)


def _audit(out: Path, event: str, about: dict[str, Any]) -> None:
    """Append a line to OUT.audit.jsonl: who sent how many records where. It holds nothing of a record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = "unknown"
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, "user": user}
    with out.with_name(out.name + ".audit.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line | about) + "\n")


def _visits(
    what: list[Path],
    conditions: Path | None,
    count: int | None,
    ids: Path | None,
    files: list[Path],
    seed: int,
    reading: tuple[str | None, Path | None, list[str]],
) -> tuple[whatelse.AnchorSet, list[Visit], dict[str, float]]:
    """Conditions, the visits to ask about, and how many visits each stands for."""
    from whatelse.lifecycle.label_next import guess_probabilities, label_next
    from whatelse.lifecycle.rebuild import records_of

    if count is not None and ids is not None:
        raise InputError("--count chooses visits and --ids names them: give one of them")
    weights = _ids(ids) if ids is not None else None
    if (what[0] / COHORT_FILE).exists():
        cohort = whatelse.Cohort.open(what[0])
        if count is not None:
            chosen = label_next(cohort.A, guess_probabilities(cohort), count, seed=seed)
            rows = (str(cohort.ids[row]) for row in chosen.rows)
            weights = dict(zip(rows, chosen.weights.tolist(), strict=True))
        inside = dict.fromkeys(map(str, cohort.ids), 1.0)
        weights = inside if weights is None else {visit: w for visit, w in weights.items() if visit in inside}
        anchors, stream = cohort.vocabulary.anchors, records_of(cohort, files)
    else:
        if count is not None:
            raise InputError("--count needs a cohort, made by 'whatelse build'")
        anchors = whatelse.AnchorSet.shipped() if conditions is None else whatelse.AnchorSet.load(conditions)
        source, columns, option = reading
        stream = read(what, option, source=source, columns=columns)
    found = {visit.id: visit for visit in stream if weights is None or visit.id in weights}
    if weights is not None and (missing := len(weights) - len(found)):
        print_note(f"{missing:,} of the chosen visits are not among the records")
    if not found:
        raise InputError("there is no visit to ask about: check --ids and the files of visits")
    return anchors, list(found.values()), weights or {}


def _ids(path: Path) -> dict[str, float]:
    """Ids and weights of a file."""
    from whatelse.annotators.vote_files import IDS, table_rows

    def pairs() -> Iterator[tuple[str, float]]:
        for number, row in enumerate(table_rows(path), start=1):
            name = next((name for name in IDS if name in row), None)
            if name is None:
                raise InputError(f"needs a column of visit ids named {', '.join(IDS)}", file=path)
            try:
                yield str(row[name]).strip(), float(row.get("weight") or 1.0)
            except ValueError:
                raise InputError("must be a number", file=path, row=number, column="weight") from None

    return dict(pairs())


def _print_count(done: Count) -> None:
    tokens = f"{done.asked:,} + {done.answered:,} tokens"
    typer.echo(f"{done.visits:,} visits in {done.seconds:.0f} s, {tokens}, {done.retries:,} tries again")
    typer.echo("answers: " + ", ".join(f"{status} {number:,}" for status, number in done.statuses.most_common()))
    if done.both:
        yes = 1 - (done.both - done.same) / max(done.either, 1)
        of_yes = f", {yes:.1%} of {done.either:,} with a yes" if done.either else ""
        typer.echo(f"self-agreement: {done.same / done.both:.1%} of {done.both:,} answers given twice{of_yes}")
    for reason, number in done.reasons.items():
        print_note(f"{number:,} visits got no answer: {reason}")
