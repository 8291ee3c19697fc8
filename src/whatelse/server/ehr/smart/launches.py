"""Launches in the database: those at the EHR's sign-in, and those that are open in a browser.

A row is sealed (Fernet) with a key made of a secret that only the browser has, in a cookie: whoever reads the database
finds no access token, no person and no patient in it. Launches survive a restart, and every process on the database
knows them. What was read of a record is not stored.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from cryptography.fernet import Fernet, InvalidToken

from whatelse.server.ehr.smart.oauth import Endpoints, LaunchError, Pending
from whatelse.store import schema
from whatelse.store.engine import reading, writing

COOKIE, STATE_COOKIE = "whatelse_launch", "whatelse_state"
UNDER_WAY = timedelta(minutes=10)  # to come back from the EHR's sign-in
MOST = 10_000  # launches at the sign-in
_launch = schema.launch


@dataclass(frozen=True, slots=True)
class Launch:
    """A visit that is open, and the access to read it with. Times are as of time.time()."""

    user: str
    issuer: str
    endpoints: Endpoints
    token: str
    refresh: str | None
    expires: float
    patient: str
    encounter: str
    banner: bool  # whether the EHR wants the patient's name shown
    until: float
    read: float  # when somebody asked for the record; a process that read it before reads it again


class Launches:
    """Launches of one database. Threads may share it."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    # ---- at the sign-in

    def begin(self, pending: Pending) -> tuple[str, str]:
        """A new state for the EHR's sign-in, and the secret of the browser that it must come back in."""
        state, browser = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        waiting = sa.select(sa.func.count()).select_from(_launch).where(_launch.c.visit == "")
        prune(self._engine)
        with writing(self._engine) as connection:
            if connection.execute(waiting).scalar_one() >= MOST:
                raise LaunchError("crowded", "Too many launches are under way. Try again in some minutes.", 503)
            row = {"name": digest(state), "visit": "", "sealed": _seal(browser, pending), "until": _now() + UNDER_WAY}
            connection.execute(_launch.insert().values(**row))
        return state, browser

    def come_back(self, state: str, browser: str) -> Pending:
        """The launch of a state, once, in the browser that it began in."""
        own = (_launch.c.name == digest(state), _launch.c.visit == "", _launch.c.until > _now())
        with writing(self._engine) as connection:  # the row of a launch that was used stays, empty
            sealed = connection.execute(sa.select(_launch.c.sealed).where(*own).with_for_update()).scalar()
            connection.execute(_launch.update().where(*own).values(sealed=""))
        if sealed is None:
            says = "This launch is not known here, or took too long. Launch the app again from the EHR."
            raise LaunchError("state", says)
        if not sealed:
            raise LaunchError("replayed", "This launch has been used. Launch the app again from the EHR.")
        found = _unseal(browser, sealed)
        if found is None:
            says = "This launch began in another browser. Launch the app again from the EHR."
            raise LaunchError("browser", says, 403)
        return Pending(**found)

    # ---- open

    def open(self, cookie: str | None, key: str, launch: Launch) -> str:
        """Open a visit; in the session of this browser if it is the same person of the same EHR. Returns the cookie."""
        known = self.of(cookie) if cookie else {}
        if not cookie or not known or any((o.user, o.issuer) != (launch.user, launch.issuer) for o in known.values()):
            if cookie:
                self.close(cookie)
            cookie = secrets.token_urlsafe(32)
        self.put(cookie, key, launch)
        return cookie

    def put(self, cookie: str, key: str, launch: Launch) -> None:
        """Keep a launch, in place of an older one of the same visit."""
        row = {"name": digest(cookie), "visit": key, "sealed": _seal(cookie, launch)}
        with writing(self._engine) as connection:
            connection.execute(_launch.delete().where(_launch.c.name == row["name"], _launch.c.visit == key))
            connection.execute(_launch.insert().values(**row, until=datetime.fromtimestamp(launch.until, UTC)))

    def of(self, cookie: str) -> dict[str, Launch]:
        """The launches that are open in a browser, by the key of their visit. Cost: one query."""
        own = (_launch.c.name == digest(cookie), _launch.c.visit != "", _launch.c.until > _now())
        with reading(self._engine) as connection:
            rows = connection.execute(sa.select(_launch.c.visit, _launch.c.sealed).where(*own)).all()
        opened = {row.visit: _unseal(cookie, row.sealed) for row in rows}
        return {key: Launch(**said) for key, said in opened.items() if said is not None}

    def close(self, cookie: str) -> None:
        """Sign out."""
        with writing(self._engine) as connection:
            connection.execute(_launch.delete().where(_launch.c.name == digest(cookie)))


def prune(engine: sa.Engine) -> int:
    """Remove launches that are over; returns how many."""
    with writing(engine) as connection:
        return connection.execute(_launch.delete().where(_launch.c.until <= _now())).rowcount


def digest(secret: str) -> str:
    """What is kept of a secret, to find its rows by."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def csrf_of(cookie: str) -> str:
    """The CSRF token of a session: made of its cookie, which scripts cannot read."""
    return digest("csrf " + cookie)


def _box(secret: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"launch " + secret.encode("utf-8", "replace")).digest()))


def _seal(secret: str, launch: Pending | Launch) -> str:
    return _box(secret).encrypt(json.dumps(asdict(launch)).encode()).decode()


def _unseal(secret: str, sealed: str) -> dict[str, Any] | None:
    """The fields of a launch; None if it was sealed by another secret."""
    try:
        found = json.loads(_box(secret).decrypt(sealed))
    except InvalidToken:
        return None
    return {**found, "endpoints": Endpoints(**found["endpoints"])}


def _now() -> datetime:
    return datetime.now(UTC)
