"""Auditor: writes the audit line of a request: who, from which address, what, and the key of the visit.

The event is declared at the route (policies.py). A route that is not called by a signed-in person says in
`request.state` who acts (`actor`), on which visit (`visit`, a key) and why it failed (`detail`).
"""

from __future__ import annotations

from cachetools import TTLCache
from starlette.types import Scope

from whatelse.server.policies import POLICY, UNDECLARED, Policy
from whatelse.server.security.limits import Buckets
from whatelse.server.service import Service
from whatelse.store import Event, Person, StoreError

ADDRESS = "whatelse.address"  # entry of a scope: where the request comes from
AGAIN = 60.0  # seconds within which the same person's reads of the same visit are one line
NOTHING_READ = (404, 405, 415, 422, 499)
REFUSED_PER_MINUTE = 30  # of one address: a flood of refusals is not to bury the rest


class Auditor:
    """Notes what happened in one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._read: TTLCache[tuple[str, str, str], bool] = TTLCache(20_000, AGAIN)
        self._refused = Buckets(REFUSED_PER_MINUTE / 60, REFUSED_PER_MINUTE)

    def note(self, scope: Scope, status: int) -> None:
        """Add a line for a request that was answered, if it is one that the audit shows."""
        policy: Policy = scope.get(POLICY, UNDECLARED)
        state = scope.get("state", {})
        person: Person | None = state.get("person")
        actor, address = person.name if person else state.get("actor", ""), str(scope.get(ADDRESS, ""))
        key = scope.get("path_params", {}).get("key") or state.get("visit")
        event, detail = policy.audit, {"status": status, **state.get("detail", {})}
        stranger = status >= 400 and not actor and event is not None  # too long, too slow, a made-up state
        if status in (401, 403, 429) or (stranger and status not in NOTHING_READ):
            if self._refused.take(address):
                self._service.metrics.count("unaudited_refusals")
                return
            route = getattr(scope.get("route"), "path", "none")
            event, detail = "refused", {**detail, "method": scope["method"], "route": route}
        elif event is None or status in NOTHING_READ:
            return
        elif not policy.audit_repeats:
            if self._read.get((event, actor, str(key))):
                return
            self._read[event, actor, str(key)] = True
        elif event == "model":
            detail["model"] = self._service.tagger.digest_
        if shown := state.get("visits"):  # keys of visits of which something was shown
            detail["visits"] = shown
        try:
            self._service.store.note(Event(event, actor, address, key, detail))
        except StoreError:
            self._service.metrics.count("errors")
