"""Routes of the workbench: conditions and phrases, the label queue, a candidate model.

Nothing is decided here: every route calls a function of `workbench/`, which a command calls too. Answers are
dataclasses of `workbench/` as they are, or models that add to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, Field, StringConstraints

from whatelse.annotators.discovery import edit as editing
from whatelse.errors import OutputError, WhatelseError
from whatelse.explanations import in_words
from whatelse.lifecycle.refit import beside, roll_back
from whatelse.server.policies import READ, Lane, policy
from whatelse.server.record import as_read, record
from whatelse.server.routing import Router, kept
from whatelse.server.schemas import AsRead, Name, Record, Strict
from whatelse.server.service import Service, without_folders
from whatelse.server.worker_pools import WorkerPool
from whatelse.workbench import training
from whatelse.workbench.label_queue import Queue, Waiting
from whatelse.workbench.overview import BesideKnowledge, ConditionRow
from whatelse.workbench.workbench import AnchorLine, Judged, Look, Workbench

T = TypeVar("T")
log = logging.getLogger("whatelse.server")
PAGES = {
    "/workbench": "workbench/conditions.html",
    "/workbench/condition": "workbench/condition.html",
    "/workbench/labels": "workbench/labels.html",
    "/workbench/learn": "workbench/learn.html",
}


class CuratorSession:
    """The workbench of one service. Its pool has one thread: two edits of a file never cross."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        assert settings.workbench is not None
        self.service = service
        self.bench = Workbench(settings.workbench, settings.model)
        self.queue = Queue(self.bench)
        self.key = service.worklist.key  # id of a visit -> its opaque key
        self._id_of = {self.key(visit.id): visit.id for visit in self.bench.records.visits}
        self._pool = WorkerPool("workbench", 1, 100)
        self.bench.start_hunt()

    def visit(self, key: str) -> str:
        """The id of the visit with this key; 404 if there is none."""
        if key not in self._id_of:
            raise HTTPException(404, "there is no such visit in this workbench")
        return self._id_of[key]

    def say(self, problem: str) -> str:
        root = self.bench.folder.root
        return without_folders(problem, root, root.parent, self.bench.model.parent)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work` in the workbench's thread. 422: it was refused; 503: a file could not be read or written."""
        try:
            return await self._pool.run(work, *args)
        except (OutputError, OSError) as error:
            log.error("a file of the workbench cannot be read or written: error=%s", type(error).__name__)
            says = f"{self.say(training.problem_of(error))}; nothing was changed"
            raise HTTPException(503, says, {"Retry-After": "60"}) from None
        except WhatelseError as refused:
            raise HTTPException(422, self.say(str(refused))) from None

    def close(self) -> None:
        self.bench.close()
        self._pool.close()


router = Router(prefix="/api/workbench", tags=["workbench"])
Here = Annotated[CuratorSession, kept("workbench")]
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


class AboutPhrase(AboutCondition):
    """A phrase as the conditions file has it, under `key`, and for "coded" of a code system. In a body: it is text."""

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
    job: training.Status | None


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


class Candidate(BaseModel):
    outcome: dict[str, Any] | None
    previous: bool = Field(description="whether there is a model to go back to")


@router.get("/state")
@policy("curator", lane=Lane.SLOW)
def state(session: Here) -> State:
    """What is under way, and what there is to go on with."""
    bench, waiting = session.bench, session.queue.waiting()
    job = bench.status()
    return State(
        visits=len(bench.records),
        hunted=bench.hunted is not None,
        edited=bench.edited,
        candidate=bench.folder.outcome.is_file(),
        labelled=None if waiting is None else waiting.done,
        waiting=None if waiting is None else len(waiting.waiting),
        folder=bench.folder.root.name,
        job=job and replace(job, problem=session.say(job.problem)),
    )


@router.get("/conditions")
@policy("curator", lane=Lane.SLOW)
def conditions(session: Here) -> Conditions:
    """Every condition with coverage, precision and sensitivity of its anchor; those that would gain most first."""
    rows, source = session.bench.conditions()
    return Conditions(rows=rows, labels=source)


@router.post("/conditions")
@policy("curator", audit="anchors edited", lane=Lane.SLOW)
def new_condition(session: Here, wanted: NewCondition) -> State:
    """Start a condition; suggestions for it come with the next look through the records, which begins now."""
    editing.new_condition(session.bench.folder.conditions, wanted.name, wanted.phrase, wanted.title)
    session.bench.hunt_soon()
    return state(session)


@router.post("/condition")
@policy("curator", lane=Lane.SLOW)
def condition(session: Here, about: AboutCondition) -> ConditionView:
    """One condition: its anchors, and ten suggestions that nobody has decided on yet."""
    return _view(session, about.condition)


def _view(session: CuratorSession, name: str) -> ConditionView:
    bench, tagger = session.bench, session.service.tagger
    knowledge = bench.beside_knowledge(name)
    if knowledge is not None:
        in_text = tuple(replace(lift, text=in_words(lift.finding, tagger)) for lift in knowledge.lifts)
        knowledge = replace(knowledge, lifts=in_text)
    return ConditionView(
        anchors=bench.anchors(name),  # an error if there is no such condition
        name=name,
        title=next(c.title for c in bench.folder.anchors().conditions if c.name == name),
        suggestions=bench.suggestions(name),
        refused=list(bench.folder.refusals().get(name, ())),
        hunted=bench.hunted is not None and name in bench.hunted.cohort.conditions,
        knowledge=knowledge,
    )


# ---- one phrase


@router.post("/look")
@policy("curator", audit="excerpts read", audit_repeats=True, lane=Lane.SLOW)
def look(request: Request, session: Here, about: AboutPhrase) -> Look:
    """What a phrase would be worth, and ten visits that have it, in context."""
    found = session.bench.look(about.condition, about.phrase, about.key, about.system)
    found = replace(found, excerpts=tuple(replace(e, visit=session.key(e.visit)) for e in found.excerpts))
    request.state.visits = [excerpt.visit for excerpt in found.excerpts]  # for the audit
    return found


@router.post("/judge")
@policy("curator", audit="phrase judged", lane=Lane.SLOW)
def judge(request: Request, session: Here, said: Judgement) -> Look:
    """Note whether a visit with the phrase has the condition; the look once more, with the precision so far."""
    label = {"yes": True, "no": False, "open": None}[said.answer]
    session.bench.judge(said.condition, said.phrase, said.key, said.system, session.visit(said.visit), label)
    found = look(request, session, said)
    request.state.visits = [said.visit]
    return found


@router.post("/edit", responses={409: {"description": "Another condition has the phrase."}})
@policy("curator", audit="anchors edited", lane=Lane.SLOW)
def edit(session: Here, wanted: Edit) -> ConditionView:
    """Accept, remove, change, refuse or allow a phrase; the condition as it is then. 409: another condition has it."""
    bench, condition, phrase = session.bench, wanted.condition, wanted.phrase
    file, refused = bench.folder.conditions, bench.folder.refused
    if condition not in bench.folder.anchors().names:
        raise HTTPException(404, "there is no such condition")
    if wanted.action == "accept":
        owner = editing.owner_of(file, phrase, wanted.key, wanted.system)
        if owner is not None and owner != condition and not wanted.take:
            raise HTTPException(409, f"that is an anchor of {owner}, and an anchor stands for one condition only")
        bench.accept(condition, phrase, wanted.key, wanted.system, take=wanted.take)
    elif wanted.action == "remove":
        editing.take_out(file, condition, phrase, wanted.key, wanted.system)
    elif wanted.action == "change":
        if wanted.new is None:
            raise HTTPException(422, "what it is to be changed to is missing")
        editing.change_phrase(file, condition, phrase, wanted.new, wanted.key)
    elif wanted.action == "refuse":
        editing.refuse_phrase(refused, condition, phrase)
    else:
        editing.allow_phrase(refused, condition, phrase)
    return _view(session, condition)


# ---- labels


@router.get("/labels")
@policy("curator", lane=Lane.SLOW)
def queue(session: Here) -> Waiting:
    """Keys of the visits that wait, in the order of the sheet; none where visits have not been chosen yet."""
    found = session.queue.waiting() or Waiting((), 0)
    return replace(found, waiting=tuple(map(session.key, found.waiting)))


@router.post("/labels/more")
@policy("curator", lane=Lane.SLOW)
def more(session: Here, wanted: More) -> State:
    """Choose visits to label, or more of them, in the background."""
    count = 0 if session.queue.waiting() is None else wanted.count
    session.bench.start("choose", partial(session.queue.choose, session.service.tagger, count))
    return state(session)


@router.post("/labels/undo")
@policy("curator", audit="label undone", lane=Lane.SLOW)
def undo(session: Here) -> dict[str, str | None]:
    """Take back what was said of the last visit that is done."""
    return {"key": (visit := session.queue.take_back()) and session.key(visit)}


@router.get("/labels/{key}")
@policy("curator", audit=READ, lane=Lane.SLOW)
def read(session: Here, key: str) -> LabelView:
    """A visit of the sheet: its record, and every condition, likeliest first, with what is said of it."""
    (visit, said), tagger = session.queue.record(session.visit(key)), session.service.tagger
    likely = dict(zip(tagger.conditions_, tagger.predict_proba([visit])[0].tolist(), strict=True))
    titles = {c.name: c.title for c in session.bench.folder.anchors().conditions}
    conditions = [
        Said(condition=name, title=titles[name], said=value)  # type: ignore[arg-type]
        for name, value in sorted(said.items(), key=lambda item: -likely.get(item[0], 1.0))
    ]
    return LabelView(key=key, record=record(visit), read=as_read(tagger, visit), conditions=conditions)


@router.post("/labels/{key}")
@policy("curator", audit="label", lane=Lane.SLOW)
def label(session: Here, key: str, said: Label) -> Waiting:
    """Write what a visit has into labels.csv; the queue as it is then."""
    session.queue.label(session.visit(key), said.yes, said.unknown)
    return queue(session)


# ---- learning


@router.post("/hunt")
@policy("curator", lane=Lane.SLOW)
def hunt(session: Here) -> State:
    """Look for suggestions with the conditions as they are now, in the background."""
    session.bench.start_hunt()
    return state(session)


@router.post("/learn")
@policy("curator", audit="learning", lane=Lane.SLOW)
def learn(session: Here) -> State:
    """Learn a candidate from the conditions and labels as they are now, in a process of its own."""
    session.bench.start_learning()
    return state(session)


@router.get("/candidate")
@policy("curator", lane=Lane.SLOW)
def candidate(session: Here) -> Candidate:
    """Old and new model side by side, or nothing if there is no candidate."""
    return Candidate(outcome=session.bench.outcome(), previous=beside(session.bench.model, "previous").is_file())


@router.post("/promote")
@policy("curator", audit="model", lane=Lane.SLOW)
def promote(session: Here) -> dict[str, str]:
    """Put the candidate in the model's place; it serves from now on."""
    if session.service.settings.trusted_keys:
        says = "only signed models are loaded here: sign MODEL.candidate with 'whatelse sign', put it in place by hand"
        raise HTTPException(422, says)
    digest = session.bench.promote()
    session.service.reload()
    session.bench.hunt_soon()
    return {"model": digest}


@router.post("/rollback")
@policy("curator", audit="model", lane=Lane.SLOW)
def rollback(session: Here) -> dict[str, str]:
    """Put the model back that served before the last promotion; it serves from now on."""
    _, digest = roll_back(session.bench.model)
    session.service.reload()
    return {"model": digest}


@router.post("/drop")
@policy("curator", audit="candidate dropped", lane=Lane.SLOW)
def drop(session: Here) -> State:
    """Forget the candidate; the conditions file stays as it is."""
    training.drop(session.bench.folder, session.bench.model)
    return state(session)
