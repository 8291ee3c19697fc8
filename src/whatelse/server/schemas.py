"""What goes over the wire, as the OpenAPI description shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from whatelse.visits import Known

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Note = Annotated[str, StringConstraints(max_length=100_000)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# Records have the time of the hospital's clock, mostly without a zone: RFC 3339's date-time would promise one.
LocalTime = Annotated[
    datetime,
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d",
            "description": "ISO 8601; with a zone if the record has one",
        }
    ),
]
# JSON has one kind of number, and JSON Schema takes 1.0 for an integer
Whole = Annotated[int, BeforeValidator(lambda v: int(v) if isinstance(v, float) and v.is_integer() else v)]
RequestKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,64}$")]


class Strict(BaseModel):
    """Asked of clients: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


# ---- asked


class TypedVisit(Strict):
    """A visit that is in no worklist. Drugs by name."""

    age: float | None = Field(default=None, ge=0, le=130)
    sex: Literal["F", "M"] | None = None
    chief_complaint: Note = ""
    triage_note: Note = ""
    md_comments: Note = ""
    medication_history: list[Name] | None = Field(default=None, max_length=200)
    dispensed: list[Name] | None = Field(default=None, max_length=200)


class KnownOf(Strict):
    """What is known of a visit, or was."""

    confirmed: list[Name] = Field(default=[], max_length=500)
    rejected: list[Name] = Field(default=[], max_length=500)
    present: list[Name] = Field(default=[], max_length=500, description="findings answered yes")
    absent: list[Name] = Field(default=[], max_length=500, description="findings answered no")

    def known(self) -> Known:
        return Known(tuple(self.confirmed), tuple(self.rejected), tuple(self.present), tuple(self.absent))


class AskedVisit(KnownOf):
    """A visit with what is known of it."""

    visit: TypedVisit


class AskedWhy(AskedVisit):
    """A visit with what is known of it, and the condition to explain."""

    condition: Name


class AskedMove(AskedVisit):
    """A visit with what is known of it, and what was known before."""

    before: KnownOf


class WantedDecision(Strict):
    """Confirm, reject or reopen a tag; or answer whether a finding is there."""

    subject: Name = Field(description="a condition, or a finding for present and absent")
    verdict: Literal["confirmed", "rejected", "open", "present", "absent", "unasked"]
    version: Whole = Field(ge=0, le=2**31 - 1, description="the version of the visit that was looked at")
    request: RequestKey = Field(description="made by the client, new for each decision, the same for a retry")
    model: Digest | None = Field(default=None, description="of the model whose answer was looked at")


class WantedUndo(Strict):
    """Take back the newest decision of the visit."""

    version: Whole = Field(ge=0, le=2**31 - 1)
    request: RequestKey


class Search(Strict):
    """What the worklist is to show. In a body, not in a URL: what is searched for may name a patient."""

    words: str = Field(default="", max_length=200)
    condition: Name | None = Field(default=None, description="visits that may have it, likeliest first")
    must_not_miss: bool = Field(default=False, description="only visits with a condition that must not be missed")
    status: Literal["all", "decided", "undecided"] = "all"
    order: Literal["attention", "arrival"] = Field(default="arrival", description="attention: by surprise and danger")
    offset: Whole = Field(default=0, ge=0, le=2**31 - 1)
    limit: Whole = Field(default=50, ge=1, le=200)


class SignIn(Strict):
    """A token, once, for a session cookie."""

    token: str = Field(min_length=1, max_length=8_000)


# ---- answered


class Finding(BaseModel):
    finding: str
    text: str


class Tag(BaseModel):
    """A condition that is open.

    part      where the page shows it; "" if it does not
    evidence  whether something speaks for it, something against it, or nothing is recorded
    settle    what would settle it, if the knowledge base says so
    """

    condition: str
    title: str
    rank: int
    probability: float
    baseline: float
    part: Literal["known", "likely", "must_not_miss", ""]
    danger: int
    settle: str
    evidence: Literal["for", "against", "missing"]
    denied: list[str]


class State(BaseModel):
    version: int
    confirmed: list[str]
    rejected: list[str]
    present: list[Finding]
    absent: list[Finding]
    unknown: list[str] = Field(default=[], description="decided, but not in the model that serves now")


class View(BaseModel):
    """Where a visit stands, and what else it might be."""

    model: str
    state: State
    tags: list[Tag] = Field(description="those with a part, and the first of the others, by rank")
    open: int = Field(description="conditions that are open, listed or not")
    certified: bool
    error_bound: float
    caveat: str = Field(default="", description="what must be shown with the answers, or nothing")


class Record(BaseModel):
    id: str
    age: float | None
    sex: str | None
    chief_complaint: str | None
    triage_note: str | None
    md_comments: str | None
    medication_history: list[str] | None
    dispensed: list[str] | None
    coded: list[str] | None
    time: LocalTime | None


class Mark(BaseModel):
    """text[start:end] of a field (in characters, not bytes or UTF-16), or entry `item` of a list of drugs."""

    field: str
    start: int | None
    end: int | None
    item: int | None = None
    text: str
    assertion: str = Field(
        default="present", description="present, denied, possible, history, hypothetical, family, drug"
    )
    conditions: list[str] = Field(default=[], description="open tags that it speaks for")
    explained: list[str] = Field(default=[], description="confirmed tags that it speaks for")


class Vital(BaseModel):
    """A measured value, what it means at the patient's age (nothing if it is normal), and where it stands."""

    label: str
    text: str
    means: list[str]
    place: Mark | None


class AsRead(BaseModel):
    """How the record was read: mentions of concepts, measured values, and the class of each drug."""

    mentions: list[Mark]
    vitals: list[Vital]
    classes: dict[str, str]


class VisitView(View):
    key: str
    record: Record
    read: AsRead


class Conflict(View):
    """Somebody was faster: where the visit is now, who decided last, on what."""

    detail: str
    actor: str
    subject: str
    verdict: str


class Reading(BaseModel):
    """The findings that matter, where they are, and what each open tag would explain of them."""

    model: str
    version: int
    marks: list[Mark]
    explains: dict[str, list[str]]


class Reason(BaseModel):
    """Findings of one place in the record, as one line. group: what kind of finding it is."""

    finding: str
    text: str
    group: str
    log_odds: float
    present: bool
    denied: bool
    places: list[Mark]


class Why(BaseModel):
    """total = prior + reasons + absent + others + sureness + rest, in log odds. Reasons of open tags are given what is
    confirmed; absent sums up, by part of the record, all that it does not have.

    expected         findings that most cases have and that the record does not mention
    usual, textbook  share of visits that have it: here, and by the knowledge base (None if it does not know it)
    """

    model: str
    condition: str
    title: str
    total: float
    prior: float
    reasons: list[Reason]
    absent: dict[str, float]
    others: dict[str, float]
    sureness: float
    rest: float
    expected: list[str]
    settle: str
    usual: float
    textbook: float | None


class Question(BaseModel):
    """A finding to ask about or to look for, and what each answer does to the condition that it moves most."""

    finding: str
    text: str
    kind: Literal["ask", "examine"]
    about: str
    information: float
    now: float
    if_yes: float
    if_no: float


class Test(BaseModel):
    """What would settle a condition that is shown."""

    about: str
    text: str
    now: float


class Questions(BaseModel):
    model: str
    version: int
    questions: list[Question]
    tests: list[Test]


class Moved(BaseModel):
    """What a decision moved most, and because of what, in one sentence."""

    sentence: str


class TypedView(View):
    """All answers about a typed visit at once."""

    read: AsRead
    marks: list[Mark]
    explains: dict[str, list[str]]
    questions: list[Question]
    tests: list[Test]


class Row(BaseModel):
    key: str
    id: str
    age: float | None
    sex: str | None
    chief_complaint: str | None
    time: LocalTime | None
    read: bool = Field(description="whether the visit's turn has come to be read")
    likely: list[tuple[str, float]] = Field(description="condition, probability")
    must_not_miss: list[tuple[str, float]]
    confirmed: list[str]
    rejected: int


class Rows(BaseModel):
    model: str
    total: int
    offset: int
    rows: list[Row]
    scored: int = Field(description="visits whose suggestions are ready for sorting")
    visits: int
    decided: int = Field(description="visits of the worklist with a decision that stands")
    alerts: int = Field(description="visits scored that have a condition which must not be missed")


class Line(BaseModel):
    version: int
    kind: str
    subject: str
    verdict: str
    undoes: int | None
    actor: str
    at: datetime
    model: str
    shown: dict[str, object]


class History(BaseModel):
    model: str
    lines: list[Line]


class Condition(BaseModel):
    name: str
    title: str
    kind: str


class Model(BaseModel):
    model: str
    caveat: str = Field(default="", description="what must be shown with every answer, or nothing")
    conditions: list[Condition]


class SessionOut(BaseModel):
    name: str
    role: str
    auth: str
    csrf: str | None
    workbench: bool = Field(default=False, description="whether there is a workbench, and this person may use it")


class Problem(BaseModel):
    detail: str
