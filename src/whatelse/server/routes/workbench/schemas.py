"""What the workbench's routes are asked and answer, beside dataclasses of `workbench/` that go out as they are."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from whatelse.server.schemas import AsRead, Name, Record, Strict
from whatelse.workbench.jobs import Status
from whatelse.workbench.overview import BesideKnowledge, ConditionRow
from whatelse.workbench.workbench import AnchorLine, Judged

Phrase = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Key = Annotated[str, StringConstraints(pattern=r"^[a-z2-7]{26}$")]


# ---- asked


class NewCondition(Strict):
    """A condition from nothing: a name and one phrase."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=60)]
    phrase: Phrase
    title: Annotated[str, StringConstraints(max_length=100)] | None = None


class AboutCondition(Strict):
    condition: Name


class AboutPhrase(Strict):
    """A phrase as the conditions file has it, under `key`, and for "coded" of a code system. In a body: it is text."""

    condition: Name
    phrase: Phrase
    key: Annotated[str, StringConstraints(max_length=30)] = "notes"
    system: Annotated[str, StringConstraints(max_length=60)] | None = None


class Judgement(AboutPhrase):
    """Whether one visit with the phrase has the condition; "open" takes it back."""

    visit: Key
    answer: Literal["yes", "no", "open"]


class Edit(AboutPhrase):
    """An edit of the conditions file or of the refused phrases. take: from the condition that has the phrase now."""

    action: Literal["accept", "remove", "change", "refuse", "allow"]
    new: Phrase | None = Field(default=None, description="for change")
    take: bool = False


class Label(Strict):
    """The conditions that a visit has; all others it has not, but for those that cannot be told."""

    yes: list[Name] = Field(default=[], max_length=500)
    unknown: list[Name] = Field(default=[], max_length=500)


class More(Strict):
    count: int = Field(ge=1, le=1_000)


# ---- answered


class State(BaseModel):
    """edited: the conditions file has changed since suggestions were looked for."""

    visits: int
    hunted: bool
    edited: bool
    candidate: bool
    labelled: int | None = Field(description="visits of labels.csv that are done; null where there is no such file")
    waiting: int | None
    folder: str
    job: Status | None


class Conditions(BaseModel):
    rows: list[ConditionRow]
    labels: str = Field(description="where labels come from")


class ConditionView(BaseModel):
    name: str
    title: str
    anchors: list[AnchorLine]
    suggestions: list[Judged]
    refused: list[str]
    hunted: bool
    knowledge: BesideKnowledge | None


class Queue(BaseModel):
    """Keys of the visits that wait, in the order to label them."""

    waiting: list[str]
    done: int


class Said(BaseModel):
    condition: str
    title: str
    said: Literal["", "0", "1"]


class LabelView(BaseModel):
    """A visit to label. The model's probabilities are not shown: labels must not lean on what they are to judge."""

    key: str
    record: Record
    read: AsRead
    conditions: list[Said]


class Undone(BaseModel):
    key: str | None


class Candidate(BaseModel):
    outcome: dict[str, Any] | None
    previous: bool = Field(description="whether there is a model to go back to")


class Promoted(BaseModel):
    model: str
