"""Auditor: which requests become lines of the audit, and what is in them: who, from where, what, which visit's key."""

from __future__ import annotations

import time
from collections import OrderedDict

from starlette.types import Scope

from whatelse.server.limits import Buckets
from whatelse.server.service import Service
from whatelse.store import Event, Person, StoreError

ADDRESS = "whatelse.address"  # entry of a scope: where the request comes from
READ = "visit read"
EVENTS = {
    ("GET", "/api/visits"): "worklist read",
    ("POST", "/api/visits/search"): "worklist read",
    ("GET", "/api/visits/{key}"): READ,
    ("GET", "/api/visits/{key}/suggestions"): READ,
    ("GET", "/api/visits/{key}/findings"): READ,
    ("GET", "/api/visits/{key}/why"): READ,
    ("GET", "/api/visits/{key}/questions"): READ,
    ("GET", "/api/visits/{key}/history"): READ,
    ("POST", "/api/visits/{key}/decisions"): "decision",
    ("POST", "/api/visits/{key}/undo"): "undo",
    ("GET", "/api/decisions/export"): "export",
    ("POST", "/admin/model"): "model",
    ("POST", "/api/workbench/look"): "excerpts read",
    ("GET", "/api/workbench/labels/{key}"): READ,
    ("POST", "/api/workbench/labels/{key}"): "label",
    ("POST", "/api/workbench/labels/undo"): "label undone",
    ("POST", "/api/workbench/judge"): "phrase judged",
    ("POST", "/api/workbench/edit"): "anchors edited",
    ("POST", "/api/workbench/conditions"): "anchors edited",
    ("POST", "/api/workbench/learn"): "learning",
    ("POST", "/api/workbench/promote"): "model",
    ("POST", "/api/workbench/drop"): "candidate dropped",
    ("POST", "/api/session"): "sign-in",
    ("DELETE", "/api/session"): "sign-out",
}
AGAIN = 60.0  # seconds within which the same person's reads of the same visit are one line
REFUSED_PER_MINUTE = 30  # of one address: a flood of refusals is not to bury the rest


class Auditor:
    """Notes what happened in one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._read: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._refused = Buckets(REFUSED_PER_MINUTE / 60, REFUSED_PER_MINUTE)

    def note(self, scope: Scope, status: int) -> None:
        """Add a line for a request that was answered, if it is one that the audit shows."""
        if not self._service.settings.audit:
            return
        method, route = scope["method"], getattr(scope.get("route"), "path", "none")
        person: Person | None = scope.get("state", {}).get("person")
        actor, address = person.name if person else "", str(scope.get(ADDRESS, ""))
        key = scope.get("path_params", {}).get("key")
        event = EVENTS.get((method, route))
        detail: dict[str, object] = {"status": status}
        if status in (401, 403, 429):
            if self._refused.take(address):
                self._service.metrics.count("unaudited_refusals")
                return
            event, detail = "refused", {"status": status, "method": method, "route": route}
        elif event is None or status in (404, 422, 499):
            return
        elif event in (READ, "worklist read"):
            if self._noted_lately(event, actor, str(key)):
                return
        elif event == "model":
            detail["model"] = self._service.tagger.digest_
        if shown := scope.get("state", {}).get("visits"):  # keys of visits of which something was shown
            detail["visits"] = shown
        try:
            self._service.store.note(Event(event, actor, address, key, detail))
        except StoreError:
            self._service.metrics.count("errors")

    def _noted_lately(self, event: str, actor: str, key: str) -> bool:
        now, what = time.monotonic(), (event, actor, key)
        if now - self._read.get(what, -AGAIN) < AGAIN:
            return True
        self._read[what] = now
        self._read.move_to_end(what)
        while len(self._read) > 20_000:
            self._read.popitem(last=False)
        return False
