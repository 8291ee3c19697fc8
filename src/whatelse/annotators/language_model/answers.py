"""Answers of a language model: read leniently, checked against the record, counted where they cannot be used.

A vote must rest on words: a "yes" whose words do not stand in the record becomes an abstention. Only conditions that
were asked about are read, so an answer can say nothing about any other condition or visit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

MEANING: dict[str, bool | None] = {
    **dict.fromkeys(("yes", "true", "1", "present"), True),
    **dict.fromkeys(("no", "false", "0", "absent"), False),
    **dict.fromkeys(("unknown", "cannot be told", "cannot tell", "unclear", "uncertain", "null", "none"), None),
}
REFUSALS = re.compile(
    r"\b(i'?m sorry|i am sorry|i can ?no?t|i am unable|i'm unable|i won'?t|as an ai)\b", re.IGNORECASE
)
LONGEST_WORDS = 300  # characters of words that are kept

ANSWERED, UNKNOWN, UNSUPPORTED = "answered", "unknown", "unsupported"
CONTRADICTED, MISSING, MALFORMED, REFUSED = "contradicted", "missing", "malformed", "refused"
STATUSES = (ANSWERED, UNKNOWN, UNSUPPORTED, CONTRADICTED, MISSING, MALFORMED, REFUSED)


class Answer(NamedTuple):
    """What was said of one condition.

    value   True, False, or None: an abstention
    words   of the record, that the answer rests on; empty where they do not stand in it
    status  one of STATUSES: why there is a vote, or why there is none
    """

    value: bool | None
    words: str
    status: str


def read_answers(text: str, conditions: Sequence[str], record: str) -> dict[str, Answer] | None:
    """The answer to each condition that was asked about; None if the text holds no answers at all."""
    entries = _entries(repaired(text))
    if entries is None:
        return None
    by_name = {_plain(name): name for name in conditions}
    blank = _blank(record)
    found: dict[str, Answer] = {}
    for condition, said, words in entries:
        name = by_name.get(_plain(condition))
        meaning = _plain(str(said)) if isinstance(said, str | bool | int) else "null" if said is None else ""
        if name is None or meaning not in MEANING:
            continue
        value = MEANING[meaning]
        quoted = words[:LONGEST_WORDS] if isinstance(words, str) and _stands(words, blank) else ""
        answer = Answer(value, quoted, UNKNOWN if value is None else ANSWERED)
        if value and not quoted:
            answer = Answer(None, "", UNSUPPORTED)
        before = found.get(name)
        if before is not None and (before.status == CONTRADICTED or before.value != answer.value):
            answer = Answer(None, "", CONTRADICTED)
        found[name] = answer
    if not found:
        return None
    return {name: found.get(name, Answer(None, "", MISSING)) for name in conditions}


def looks_refused(text: str) -> bool:
    """Whether a text without answers is a refusal."""
    return bool(REFUSALS.search(text[:400]))


def _stands(words: str, record: str) -> bool:
    """Whether a quotation stands in a record (as `_blank` has it); parts that "..." separates are looked up each."""
    parts = [_blank(part).strip(" '\"“”.,;") for part in re.split(r"\.\.\.|…", words)]
    return any(parts) and all(part in record for part in parts)


def _blank(text: str) -> str:
    return " ".join(text.lower().split())


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[\W_]+", " ", name.lower()).split())


def repaired(text: str) -> Any:
    """The JSON value in a text, mended where that is simple; None if there is none.

    Mended: a "thought" before it, fences and words around it, commas before a closing bracket, an end that was cut.
    """
    text = re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL)
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        return None
    body = re.sub(r",\s*([}\]])", r"\1", text[start:])
    whole = body[: body.rfind("}") + 1]  # up to the last entry that is whole
    for attempt in (body, whole + "]}", whole + "]", whole + "}"):
        try:
            return json.JSONDecoder().raw_decode(attempt)[0]
        except (ValueError, RecursionError):
            continue
    return None


def _entries(found: Any) -> list[tuple[str, Any, Any]] | None:
    """(condition, answer, words) of a list of objects, or of an object by condition; None if it is neither."""
    if isinstance(found, dict) and isinstance(found.get("answers"), list | dict):
        found = found["answers"]
    if isinstance(found, dict):
        found = [{"condition": name, **(v if isinstance(v, dict) else {"answer": v})} for name, v in found.items()]
    if not isinstance(found, list):
        return None
    return [
        (each["condition"], each.get("answer"), each.get("words"))
        for each in found
        if isinstance(each, dict) and isinstance(each.get("condition"), str)
    ]
