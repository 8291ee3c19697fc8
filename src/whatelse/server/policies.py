"""Policies: what a route declares about itself, and the table that finds a route's policy before the route is called.

    @router.post("/visits/{key}/decisions")
    @policy("clinician", audit="decision", urgent=True)
    async def decide(...): ...

The permission is enforced by the router (routing.py), the audit event by security/guard.py, the lane by
admission_control.py, `when_launched` by security/auth.py. A route without a policy raises TypeError on import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from re import Pattern
from typing import Any, TypeVar

# entries of a scope: the policy; where the request comes from; the path as a hook was called, which tokens name
POLICY, ADDRESS, CALLED = "whatelse.policy", "whatelse.address", "whatelse.called"
ANYONE = "anyone"
READ = "visit read"
F = TypeVar("F", bound=Callable[..., Any])


class Lane(Enum):
    """Which admission control a request passes."""

    PAGE = auto()
    HOOK = auto()  # counted apart from pages, may wait longer, may be longer
    HEALTH = auto()  # always answered
    SLOW = auto()  # not counted: takes long because it is long


@dataclass(frozen=True, slots=True)
class Policy:
    """What a route declares.

    permission     the role that a person needs, ANYONE, or the name of `check`
    check          dependency that lets the caller in where no role does; raises HTTPException
    audit          event of the audit line that each request writes; None for no line
    audit_repeats  False: repeats by one person on one visit within a minute are one line
    lane           admission control
    urgent         admitted when others are refused, and answered before them: decisions
    when_launched  whether a person who came by a SMART launch may use the route although it names no visit
    per_address    requests a minute of one address; 0 for no limit of its own
    aside          a plain function runs in the pool for what no decision should wait behind
    """

    permission: str
    check: Callable[..., Awaitable[Any]] | None = None
    audit: str | None = None
    audit_repeats: bool = True
    lane: Lane = Lane.PAGE
    urgent: bool = False
    when_launched: bool = False
    per_address: int = 0
    aside: bool = False

    @property
    def counted(self) -> bool:
        """Whether requests pass an admission control."""
        return self.lane in (Lane.PAGE, Lane.HOOK)


def policy(permission: str, **more: Any) -> Callable[[F], F]:
    """Declare the policy of a route; `more` are fields of Policy. Reads of a visit do not repeat in the audit."""
    if more.get("audit", "").endswith("read"):
        more.setdefault("audit_repeats", False)
    declared = Policy(permission, **more)

    def declare(endpoint: F) -> F:
        endpoint.policy = declared  # type: ignore[attr-defined]
        return endpoint

    return declare


UNDECLARED = Policy(ANYONE)  # of a path that no route has: it gets 404
STATIC = Policy(ANYONE, lane=Lane.SLOW)


@dataclass(slots=True)
class RouteTable:
    """The policies of an app by path and method. Cost of `find`: one regular expression for each route."""

    _paths: list[tuple[Pattern[str], dict[str, Policy]]] = field(default_factory=list)

    def add(self, routes: Iterable[Any]) -> None:
        """Add routes of a router (routing.py)."""
        for route in routes:
            methods = dict.fromkeys(route.methods, route.endpoint.policy)
            for pattern, known in self._paths:
                if pattern.pattern == route.path_regex.pattern:
                    known.update(methods)
                    break
            else:
                self._paths.append((route.path_regex, methods))

    def methods(self, path: str) -> dict[str, Policy]:
        """The methods of the first route of a path, with their policies; empty if no route has it."""
        return next((methods for pattern, methods in self._paths if pattern.match(path)), {})

    def find(self, method: str, path: str) -> Policy:
        """The policy of a request; of another method of its path if the path does not have the method."""
        if path.startswith("/static/"):
            return STATIC
        methods = self.methods(path)
        return methods.get(method) or next(iter(methods.values()), UNDECLARED)

    def all(self) -> list[tuple[str, str, Policy]]:
        """(method, pattern, policy) of every route."""
        return [(m, pattern.pattern, p) for pattern, methods in self._paths for m, p in methods.items()]
