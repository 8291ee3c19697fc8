"""Routes about conditions and phrases: all conditions, one, a new one; look at a phrase, judge it, edit it."""

from __future__ import annotations

from dataclasses import replace

from fastapi import HTTPException, Request

from whatelse.annotators.discovery import edit as editing
from whatelse.explanations import in_words
from whatelse.server.policies import Lane, policy
from whatelse.server.routes.workbench import schemas as s
from whatelse.server.routes.workbench.curator_session import CuratorSession, Here
from whatelse.server.routing import Router
from whatelse.workbench.workbench import Look

router = Router(prefix="/api/workbench", tags=["workbench"])


@router.get("/state")
@policy("curator", lane=Lane.SLOW)
def state(session: Here) -> s.State:
    """What is under way, and what there is to go on with."""
    bench, waiting = session.bench, session.queue.waiting()
    job = bench.status()
    return s.State(
        visits=len(bench.records),
        hunted=bench.hunted is not None,
        edited=bench.edited,
        candidate=bench.folder.outcome.is_file(),
        labelled=None if waiting is None else waiting.done,
        waiting=None if waiting is None else len(waiting.visits),
        folder=bench.folder.root.name,
        job=job and replace(job, problem=session.say(job.problem)),
    )


@router.get("/conditions")
@policy("curator", lane=Lane.SLOW)
def conditions(session: Here) -> s.Conditions:
    """Every condition with coverage, precision and sensitivity of its anchor; those that would gain most first."""
    rows, source = session.bench.conditions()
    return s.Conditions(rows=rows, labels=source)


@router.post("/conditions")
@policy("curator", audit="anchors edited", lane=Lane.SLOW)
def new_condition(session: Here, wanted: s.NewCondition) -> s.State:
    """Start a condition; suggestions for it come with the next look through the records, which begins now."""
    editing.new_condition(session.bench.folder.conditions, wanted.name, wanted.phrase, wanted.title)
    session.bench.hunt_soon()
    return state(session)


@router.post("/condition")
@policy("curator", lane=Lane.SLOW)
def condition(session: Here, about: s.AboutCondition) -> s.ConditionView:
    """One condition: its anchors, and ten suggestions that nobody has decided on yet."""
    return _view(session, about.condition)


def _view(session: CuratorSession, name: str) -> s.ConditionView:
    bench, tagger = session.bench, session.service.tagger
    knowledge = bench.beside_knowledge(name)
    if knowledge is not None:
        in_text = tuple(replace(lift, text=in_words(lift.finding, tagger)) for lift in knowledge.lifts)
        knowledge = replace(knowledge, lifts=in_text)
    return s.ConditionView(
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
def look(request: Request, session: Here, about: s.AboutPhrase) -> Look:
    """What a phrase would be worth, and ten visits that have it, in context."""
    found = session.bench.look(about.condition, about.phrase, about.key, about.system)
    found = replace(found, excerpts=tuple(replace(e, visit=session.key(e.visit)) for e in found.excerpts))
    request.state.visits = [excerpt.visit for excerpt in found.excerpts]  # for the audit
    return found


@router.post("/judge")
@policy("curator", audit="phrase judged", lane=Lane.SLOW)
def judge(request: Request, session: Here, said: s.Judgement) -> Look:
    """Note whether a visit with the phrase has the condition; the look once more, with the precision so far."""
    label = {"yes": True, "no": False, "open": None}[said.answer]
    visit = session.visit(said.visit)
    session.bench.judge(said.condition, said.phrase, said.key, said.system, visit, label)
    found = look(request, session, said)
    request.state.visits = [said.visit]
    return found


@router.post("/edit", responses={409: {"description": "Another condition has the phrase."}})
@policy("curator", audit="anchors edited", lane=Lane.SLOW)
def edit(session: Here, wanted: s.Edit) -> s.ConditionView:
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
