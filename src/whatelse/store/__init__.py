"""What people decided: an append-only history in SQLite or PostgreSQL, and who may sign in.

store = Store("sqlite:///decisions.db")            # makes or migrates the database
store.record(Decision(...)).result()               # durable before it returns; Conflict if somebody was faster
store.state("visit 7").confirmed
"""

from whatelse.store.access import ROLES, Access, Person
from whatelse.store.audit import Event
from whatelse.store.engine import StoreError
from whatelse.store.history import Conflict, Decision, Entry, Reused, State
from whatelse.store.store import Store

__all__ = [
    "ROLES",
    "Access",
    "Conflict",
    "Decision",
    "Entry",
    "Event",
    "Person",
    "Reused",
    "State",
    "Store",
    "StoreError",
]
