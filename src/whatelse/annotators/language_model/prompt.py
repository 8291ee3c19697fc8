"""The questions that a language model is asked: templates of the package, conditions described by the knowledge base.

One question is about one visit, so that a record can change no votes but its own. The record stands between two lines
with a mark made from the record itself: a writer of the record cannot know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from whatelse.annotators.anchors import AnchorSet
from whatelse.annotators.record_text import record_text
from whatelse.io.templates import text_templates
from whatelse.knowledge import Knowledge, load_knowledge
from whatelse.knowledge.matching import merged, stands_for
from whatelse.visits import Visit

VERSION = 1  # of the templates: raise it with every change of their meaning
A_QUESTION = 30  # conditions in one question
MOST_NAMES, MOST_FINDINGS, LEAST_SHARE = 6, 8, 0.3
LONGEST_RECORD = 24_000  # characters; what is longer is cut in the middle
Message = dict[str, str]


@dataclass(frozen=True)
class Description:
    """A condition as a prompt describes it."""

    name: str
    title: str
    names: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    mistaken_for: tuple[str, ...] = ()


def describe(anchors: AnchorSet, base: Knowledge | None = None) -> tuple[Description, ...]:
    """The conditions, with names and findings of the entries of the knowledge base that they stand for."""
    base = base or load_knowledge()
    out = []
    for condition in anchors.conditions:
        parts = stands_for(base, condition.name, condition.phrases, condition.codes, condition.title)
        if not parts:
            out.append(Description(condition.name, condition.title, condition.phrases[:MOST_NAMES]))
            continue
        entry = merged(base, condition.name, condition.title, parts)
        common = sorted((f for f, share in entry.findings.items() if share >= LEAST_SHARE), key=entry.findings.get)  # type: ignore[arg-type]
        findings = tuple(base.title(name).lower() for name in reversed(common))
        mistaken = tuple(base.title(name).lower() for name in entry.mistaken_for if name not in parts)
        shown = entry.names[:MOST_NAMES], findings[:MOST_FINDINGS], mistaken[:3]
        out.append(Description(condition.name, condition.title, *shown))
    return tuple(out)


class Prompt:
    """Makes the questions about visits.

    conditions  what is asked about
    redact      applied to the record before anything else sees it
    version     of the templates, with a digest of the whole wording: two runs with the same version asked the same
    """

    def __init__(self, conditions: Sequence[Description], redact: Callable[[str], str] | None = None) -> None:
        self.conditions = tuple(conditions)
        self._redact = redact
        self._templates = text_templates("whatelse.annotators.language_model")
        wording = self._system(self.conditions) + self._user("", 0) + ("redacted" if redact else "")
        self.version = f"{VERSION}-{sha256(wording.encode()).hexdigest()[:8]}"

    def record(self, visit: Visit) -> str:
        """The record as it is sent."""
        text = record_text(visit)
        if len(text) > LONGEST_RECORD:
            half = LONGEST_RECORD // 2
            text = f"{text[:half]}\n[...]\n{text[-half:]}"
        return self._redact(text) if self._redact else text

    def questions(self, record: str, *, backwards: bool = False) -> Iterator[tuple[tuple[str, ...], list[Message]]]:
        """(conditions, messages) of each question about a record. backwards: conditions in the opposite order."""
        asked = self.conditions[::-1] if backwards else self.conditions
        for start in range(0, len(asked), A_QUESTION):
            part = asked[start : start + A_QUESTION]
            system = {"role": "system", "content": self._system(part)}
            user = {"role": "user", "content": self._user(record, len(part))}
            yield tuple(condition.name for condition in part), [system, user]

    def _system(self, conditions: Sequence[Description]) -> str:
        return self._templates.get_template("system.txt").render(conditions=conditions)

    def _user(self, record: str, count: int) -> str:
        mark = sha256(record.encode()).hexdigest()[:12]
        return self._templates.get_template("record.txt").render(record=record, mark=mark, count=count)


def known_words(base: Knowledge) -> set[str]:
    """Words of the knowledge base, in lower case: none of them is taken for a name."""
    phrases = [phrase for concept in base.concepts.values() for phrase in (concept.title, *concept.same, *concept.near)]
    phrases += [phrase for entry in base.conditions.values() for phrase in (entry.title, *entry.names)]
    phrases += [phrase for name, drug in base.drugs.items() for phrase in (name, *drug.same)]
    return {word for phrase in phrases for word in phrase.lower().replace("-", " ").replace("_", " ").split()}
