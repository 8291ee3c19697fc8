"""Routes about one phrase: look at visits that have it, judge them, and accept, refuse, change or remove it."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, HTTPException, Request

from whatelse.server.visits import REFUSALS
from whatelse.server.workbench import schemas as s
from whatelse.server.workbench.conditions import view_of
from whatelse.server.workbench.desk import Curator, Desk, Here
from whatelse.teaching.hunting.edit import owner_of

router = APIRouter(prefix="/api/workbench", tags=["workbench"], responses=REFUSALS)


@router.post("/look")
async def look(request: Request, desk: Here, _: Curator, about: s.AboutPhrase) -> s.Look:
    """What a phrase would be worth, and ten visits that have it, in context."""
    found = await desk.run(_look, desk, about)
    request.state.visits = [excerpt.visit for excerpt in found.excerpts]  # for the audit
    return found


def _look(desk: Desk, about: s.AboutPhrase) -> s.Look:
    found = desk.bench.look(about.condition, about.phrase, about.key, about.system)
    worth = asdict(found.worth)
    excerpts = [
        s.Excerpt(**{**asdict(excerpt), "visit": desk.key(excerpt.visit)}, said=said)
        for excerpt, said in zip(found.excerpts, found.said, strict=True)
    ]
    names = s.Worth.model_fields
    return s.Look(worth=s.Worth(**{k: worth[k] for k in names}), excerpts=excerpts, owner=found.owner)


@router.post("/judge")
async def judge(request: Request, desk: Here, _: Curator, said: s.Judgement) -> s.Look:
    """Note whether a visit with the phrase has the condition; the look once more, with the precision so far."""
    visit = desk.visit(said.visit)
    label = {"yes": True, "no": False, "open": None}[said.answer]

    def work() -> s.Look:
        desk.bench.judge(said.condition, said.phrase, said.key, said.system, visit, label)
        return _look(desk, said)

    request.state.visits = [said.visit]
    return await desk.run(work)


@router.post("/edit", responses={409: {"description": "Another condition has the phrase."}})
async def edit(desk: Here, _: Curator, wanted: s.Edit) -> s.ConditionView:
    """Accept, remove, change, refuse or allow a phrase; the condition as it is then. 409: another condition has it."""
    return await desk.run(_edit, desk, wanted)


def _edit(desk: Desk, wanted: s.Edit) -> s.ConditionView:
    bench, condition, phrase = desk.bench, wanted.condition, wanted.phrase
    if condition not in bench.folder.anchors().names:
        raise HTTPException(404, "there is no such condition")
    if wanted.action == "accept":
        owner = owner_of(bench.folder.conditions, phrase, wanted.key, wanted.system)
        if owner is not None and owner != condition and not wanted.take:
            raise HTTPException(409, f"that is an anchor of {owner}, and an anchor stands for one condition only")
        bench.accept(condition, phrase, wanted.key, wanted.system, take=wanted.take)
    elif wanted.action == "remove":
        bench.take_out(condition, phrase, wanted.key, wanted.system)
    elif wanted.action == "change":
        if wanted.new is None:
            raise HTTPException(422, "what it is to be changed to is missing")
        bench.change(condition, phrase, wanted.new, wanted.key)
    elif wanted.action == "refuse":
        bench.refuse(condition, phrase)
    else:
        bench.allow(condition, phrase)
    return view_of(desk, condition)
