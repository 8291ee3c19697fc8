"""Launches: those under way, and those that are open in a browser. All of it is in memory, and access tokens are
nowhere else: a restart ends every launch, and the EHR starts the next."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fastapi import Request

from whatelse.server.ehr.smart.oauth import Access, Endpoints, LaunchError
from whatelse.store import Person

COOKIE, STATE_COOKIE = "whatelse_launch", "whatelse_state"
UNDER_WAY = 600.0  # seconds to come back from the EHR's sign-in
MOST = 10_000


@dataclass(frozen=True, slots=True)
class Pending:
    """A launch that is at the EHR's sign-in."""

    issuer: str
    endpoints: Endpoints
    verifier: str
    nonce: str
    redirect: str
    browser: str
    at: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Launch:
    """A visit that is open, and the access that it was read with."""

    issuer: str
    endpoints: Endpoints
    access: Access
    patient: str
    encounter: str
    banner: dict[str, Any] | None
    unseen: tuple[str, ...]
    until: float


@dataclass(slots=True)
class Session:
    """A browser: who it is, and the visits that were launched in it by key."""

    user: str
    issuer: str
    role: str
    csrf: str
    launches: dict[str, Launch]


class Launches:
    """Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, Pending] = {}
        self._used: dict[str, float] = {}
        self._sessions: dict[str, Session] = {}

    # ---- under way

    def begin(self, pending: Pending) -> str:
        """A new state for the EHR's sign-in."""
        state = secrets.token_urlsafe(32)
        with self._lock:
            self._drop()
            if len(self._pending) >= MOST:
                raise LaunchError("crowded", "Too many launches are under way. Try again in some minutes.", 503)
            self._pending[state] = pending
        return state

    def come_back(self, state: str, browser: str) -> Pending:
        """The launch of a state, once, in the browser that it began in."""
        with self._lock:
            self._drop()
            pending = self._pending.pop(state, None)
            used = state in self._used
            if pending is not None:
                self._used[state] = time.monotonic()
        if used:
            raise LaunchError("replayed", "This launch has been used. Launch the app again from the EHR.")
        if pending is None:
            raise LaunchError(
                "state", "This launch is not known here, or took too long. Launch the app again from the EHR."
            )
        if not hmac.compare_digest(pending.browser, digest(browser)):
            raise LaunchError(
                "browser", "This launch began in another browser. Launch the app again from the EHR.", 403
            )
        return pending

    def _drop(self) -> None:
        late = time.monotonic() - UNDER_WAY
        self._pending = {state: p for state, p in self._pending.items() if p.at > late}
        self._used = {state: at for state, at in self._used.items() if at > late}
        self._sessions = {
            name: session
            for name, session in self._sessions.items()
            if any(launch.until > time.time() for launch in session.launches.values())
        }

    # ---- open

    def open(self, cookie: str | None, user: str, role: str, key: str, launch: Launch) -> str:
        """Open a visit; in the session of this browser if it is the same person of the same EHR. Returns the cookie."""
        with self._lock:
            known = self._sessions.get(digest(cookie)) if cookie else None
            if cookie and known is not None and (known.user, known.issuer) == (user, launch.issuer):
                known.launches[key] = launch
                return cookie
            if cookie:
                self._sessions.pop(digest(cookie), None)
            made = secrets.token_urlsafe(32)
            while len(self._sessions) >= MOST:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[digest(made)] = Session(user, launch.issuer, role, secrets.token_urlsafe(32), {key: launch})
            return made

    def session(self, request: Request) -> Session | None:
        """The session of a request's browser."""
        cookie = request.cookies.get(COOKIE)
        return self._sessions.get(digest(cookie)) if cookie else None

    def person(self, request: Request) -> Person | None:
        """Whoever a launch let in, for the visits that were launched and no other; None if it was nobody or is over."""
        session = self.session(request)
        now = time.time()
        keys = [key for key, launch in session.launches.items() if launch.until > now] if session else []
        if session is None or not keys:
            return None
        until = datetime.fromtimestamp(max(session.launches[key].until for key in keys), UTC)
        return Person(session.user, session.role, until, session.csrf, only=frozenset(keys))

    def close(self, request: Request) -> None:
        """Sign out."""
        with self._lock:
            if cookie := request.cookies.get(COOKIE):
                self._sessions.pop(digest(cookie), None)


def digest(text: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(text.encode()).hexdigest()
