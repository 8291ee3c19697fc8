"""Routes about one phrase: look at visits that have it, judge them, and accept, refuse, change or remove it."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import HTTPException, Request

from whatelse.annotators.discovery.edit import owner_of
from whatelse.server.policies import Lane, policy
from whatelse.server.routes.workbench import schemas as s
from whatelse.server.routes.workbench.conditions import view_of
from whatelse.server.routes.workbench.curator_session import CuratorSession, Here
from whatelse.server.routing import Router

router = Router(prefix="/api/workbench", tags=["workbench"])


@router.post("/look")
@policy("curator", audit="excerpts read", audit_repeats=True, lane=Lane.SLOW)
async def look(request: Request, session: Here, about: s.AboutPhrase) -> s.Look:
    """What a phrase would be worth, and ten visits that have it, in context."""
    found = await session.run(_look, session, about)
    request.state.visits = [excerpt.visit for excerpt in found.excerpts]  # for the audit
    return found


def _look(session: CuratorSession, about: s.AboutPhrase) -> s.Look:
    found = session.bench.look(about.condition, about.phrase, about.key, about.system)
    worth = asdict(found.worth)
    excerpts = [
        s.Excerpt(**{**asdict(excerpt), "visit": session.key(excerpt.visit)}, said=said)
        for excerpt, said in zip(found.excerpts, found.said, strict=True)
    ]
    names = s.Worth.model_fields
    return s.Look(worth=s.Worth(**{k: worth[k] for k in names}), excerpts=excerpts, owner=found.owner)


@router.post("/judge")
@policy("curator", audit="phrase judged", lane=Lane.SLOW)
async def judge(request: Request, session: Here, said: s.Judgement) -> s.Look:
    """Note whether a visit with the phrase has the condition; the look once more, with the precision so far."""
    visit = session.visit(said.visit)
    label = {"yes": True, "no": False, "open": None}[said.answer]

    def work() -> s.Look:
        session.bench.judge(said.condition, said.phrase, said.key, said.system, visit, label)
        return _look(session, said)

    request.state.visits = [said.visit]
    return await session.run(work)


@router.post("/edit", responses={409: {"description": "Another condition has the phrase."}})
@policy("curator", audit="anchors edited", lane=Lane.SLOW)
async def edit(session: Here, wanted: s.Edit) -> s.ConditionView:
    """Accept, remove, change, refuse or allow a phrase; the condition as it is then. 409: another condition has it."""
    return await session.run(_edit, session, wanted)


def _edit(session: CuratorSession, wanted: s.Edit) -> s.ConditionView:
    bench, condition, phrase = session.bench, wanted.condition, wanted.phrase
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
    return view_of(session, condition)
