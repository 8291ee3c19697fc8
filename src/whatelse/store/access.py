"""Who may come in: tokens and the page's sessions, kept as SHA-256 hashes of 32 random bytes.

A hash of something that cannot be guessed needs no salt and no slowness. It is looked up by itself, so no comparison
with a secret takes longer the more of it is right.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from whatelse.store import schema
from whatelse.store.engine import StoreError, reading, writing

ROLES = ("viewer", "clinician", "curator", "admin")  # each may do what those before it may
PREFIX = "whatelse_"  # lets secret scanners recognise a token that leaked


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who was let in."""

    name: str
    role: str
    expires: datetime | None = None
    csrf: str | None = None  # of a session; None for a token in a header
    token: int | None = None
    only: frozenset[str] | None = None  # keys of the visits that they may see; None for all

    def may(self, role: str) -> bool:
        """Whether their role is `role` or more."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as `list` shows it: without its secret, which nobody has any more."""

    id: int
    name: str
    role: str
    created: datetime
    expires: datetime
    revoked: datetime | None

    @property
    def status(self) -> str:
        """revoked, expired or active."""
        return "revoked" if self.revoked else "expired" if self.expires <= datetime.now(UTC) else "active"


class Access:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def create(self, name: str, role: str, days: float) -> str:
        """A new token; this is the only time its text exists outside of its owner's hands."""
        if role not in ROLES:
            raise StoreError(f"there is no role {role!r}; there are {', '.join(ROLES)}")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise StoreError("a token needs the name of who will use it: up to 100 printable characters")
        if not 0 < days <= 3660:
            raise StoreError("a token must expire: give it more than 0 and at most 3660 days")
        text, now = PREFIX + secrets.token_urlsafe(32), datetime.now(UTC)
        row = {"name": name.strip(), "role": role, "hash": _hash(text)}
        with writing(self._engine) as connection:
            connection.execute(schema.token.insert().values(**row, created=now, expires=now + timedelta(days=days)))
        return text

    def list(self) -> list[Token]:
        t = schema.token.c
        query = sa.select(t.id, t.name, t.role, t.created, t.expires, t.revoked).order_by(t.id)
        with reading(self._engine) as connection:
            return [Token(*row) for row in connection.execute(query)]

    def revoke(self, number: int) -> None:
        """End a token and the sessions that were opened with it."""
        t, s = schema.token, schema.session
        with writing(self._engine) as connection:
            if connection.execute(sa.select(t.c.id).where(t.c.id == number)).scalar() is None:
                raise StoreError(f"there is no token {number}; 'whatelse token list' shows them")
            connection.execute(
                t.update().where(t.c.id == number, t.c.revoked.is_(None)).values(revoked=datetime.now(UTC))
            )
            connection.execute(s.delete().where(s.c.token == number))

    def by_token(self, text: str) -> Person | None:
        """Whose token this is; None if it is unknown, revoked or expired."""
        t = schema.token.c
        own = (t.hash == _hash(text), t.revoked.is_(None))
        return self._person(sa.select(t.name, t.role, t.expires, sa.null(), t.id).where(*own))

    def by_session(self, text: str) -> Person | None:
        """Whose session this is; None if it is over or its token was revoked."""
        s = schema.session.c
        return self._person(sa.select(s.name, s.role, s.expires, s.csrf, s.token).where(s.hash == _hash(text)))

    def _person(self, query: sa.Select[Any]) -> Person | None:
        with reading(self._engine) as connection:
            row = connection.execute(query).first()
        return Person(*row) if row is not None and row.expires > datetime.now(UTC) else None

    def open_session(self, person: Person, hours: float) -> tuple[str, Person]:
        """A new session's cookie and its person; it ends no later than the token it was opened with."""
        now, text = datetime.now(UTC), secrets.token_urlsafe(32)
        expires = min(now + timedelta(hours=hours), person.expires or datetime.max.replace(tzinfo=UTC))
        opened = replace(person, expires=expires, csrf=secrets.token_urlsafe(32))
        columns = {name: getattr(opened, name) for name in ("csrf", "name", "role", "token", "expires")}
        with writing(self._engine) as connection:
            connection.execute(schema.session.delete().where(schema.session.c.expires <= now))
            connection.execute(schema.session.insert().values(hash=_hash(text), **columns))
        return text, opened

    def close_session(self, text: str) -> None:
        with writing(self._engine) as connection:
            connection.execute(schema.session.delete().where(schema.session.c.hash == _hash(text)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
