"""Asks a language model about many visits: bounded concurrency, a budget, a count of everything that went wrong."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from whatelse.annotators.language_model.answers import MALFORMED, REFUSED, Answer, looks_refused, read_answers
from whatelse.annotators.language_model.endpoint import CHARACTERS, Client, EndpointError, NoAnswer
from whatelse.annotators.language_model.journal import Journal
from whatelse.annotators.language_model.prompt import Message, Prompt
from whatelse.visits import Visit

ASKED = 2  # times a question is put whose answer cannot be read
FAILED_IN_A_ROW = 5  # visits without an answer after which the run stops
ANSWER_TOKENS = 25  # of one condition, about
SPEED = 40.0  # tokens of an answer in a second, about


@dataclass
class Count:
    """What a run did.

    visits      asked about with an answer, also one that could not be used
    failed      visits without an answer; the next run asks about them again
    reasons     why visits failed
    statuses    answers by status (`answers.STATUSES`), a condition of a visit each
    both, same  answers of first and second pass that are both votes, and those that agree
    either      of `both`, those with a yes in either pass
    stopped     "" or why the run stopped before the end
    """

    visits: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    both: int = 0
    same: int = 0
    either: int = 0
    asked: int = 0
    answered: int = 0
    retries: int = 0
    seconds: float = 0.0
    stopped: str = ""


Report = Callable[[Count], None]


def estimate(prompt: Prompt, visits: Sequence[Visit], second: float, concurrency: int) -> tuple[int, int, float]:
    """About how many tokens questions and answers will have, and how many seconds it will take. A guess."""
    some = visits[:: max(len(visits) // 50, 1)]
    characters = sum(
        len(message["content"])
        for visit in some
        for _, messages in prompt.questions(prompt.record(visit))
        for message in messages
    )
    passes = len(visits) * (1 + second)
    asked = int(passes * characters / max(len(some), 1) / CHARACTERS)
    answered = int(passes * len(prompt.conditions) * ANSWER_TOKENS)
    return asked, answered, answered / SPEED / concurrency


async def annotate(
    visits: Iterable[Visit],
    client: Client,
    prompt: Prompt,
    journal: Journal,
    *,
    weights: dict[str, float] | None = None,
    concurrency: int = 4,
    second: float = 0.0,
    most_tokens: int | None = None,
    most_seconds: float | None = None,
    report: Report = lambda count: None,
    clock: Callable[[], float] = time.monotonic,
) -> Count:
    """Ask about every visit that the journal does not have yet.

    second        share of the visits that are asked about twice, chosen by their ids
    most_tokens, most_seconds   where the run stops; tokens are those of questions and answers

    EndpointError if the server cannot be used or FAILED_IN_A_ROW visits get no answer.
    """
    count, began, in_a_row = Count(), clock(), 0
    waiting = iter(visit for visit in visits if visit.id not in journal.done)

    async def work() -> None:
        nonlocal in_a_row
        for visit in waiting:
            if most_tokens is not None and client.asked + client.answered >= most_tokens:
                count.stopped = count.stopped or f"the budget of {most_tokens:,} tokens is spent"
            elif most_seconds is not None and clock() - began >= most_seconds:
                count.stopped = count.stopped or f"the budget of {most_seconds / 60:g} minutes is spent"
            if count.stopped:
                return
            record = prompt.record(visit)
            try:
                first = await _ask(client, prompt, record)
                again = await _ask(client, prompt, record, seed=1) if chosen(visit.id, second) else None
            except NoAnswer as problem:
                in_a_row += 1
                count.failed += 1
                count.reasons[problem.reason] += 1
                if in_a_row >= FAILED_IN_A_ROW:
                    advice = "answers so far are kept; run the same command again when the server is back"
                    raise EndpointError(
                        f"{in_a_row} visits in a row got no answer ({problem.reason}): {advice}"
                    ) from None
                continue
            in_a_row = 0
            journal.add(visit.id, (weights or {}).get(visit.id, 1.0), first, again)
            _add(count, first, again)
            count.asked, count.answered, count.retries = client.asked, client.answered, client.retries
            count.seconds = clock() - began
            report(count)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except* EndpointError as several:
        raise several.exceptions[0] from None
    return count


async def _ask(client: Client, prompt: Prompt, record: str, seed: int = 0) -> dict[str, Answer]:
    """Answers to all questions about one record; the second pass (seed 1) asks in the opposite order."""
    found: dict[str, Answer] = {}
    for conditions, messages in prompt.questions(record, backwards=bool(seed)):
        found |= await _ask_until_read(client, conditions, messages, record, seed)
    return found


async def _ask_until_read(
    client: Client, conditions: tuple[str, ...], messages: list[Message], record: str, seed: int
) -> dict[str, Answer]:
    status = MALFORMED
    for attempt in range(ASKED):
        reply = await client.ask(messages, seed=seed + 2 * attempt)
        answers = None if reply.refused else read_answers(reply.text, conditions, record)
        if answers is not None:
            return answers
        status = REFUSED if reply.refused or looks_refused(reply.text) else MALFORMED
    return dict.fromkeys(conditions, Answer(None, "", status))


def chosen(visit: str, share: float) -> bool:
    """Whether a visit is among the share that is asked about twice. Depends on the id alone."""
    return int.from_bytes(sha256(visit.encode()).digest()[:4], "big") < share * 2**32


def _add(count: Count, first: dict[str, Answer], again: dict[str, Answer] | None) -> None:
    count.visits += 1
    count.statuses.update(answer.status for answer in first.values())
    for name, answer in (again or {}).items():
        one, other = first[name].value, answer.value
        if one is not None and other is not None:
            count.both += 1
            count.same += one == other
            count.either += one or other
