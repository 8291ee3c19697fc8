"""A signed head: the heads of history and audit at one time, signed by a key that the database's owner does not have.

Kept elsewhere, it shows that a history was cut off or written anew, even together with its audit.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from whatelse.io.files import write_whole
from whatelse.model_file.signature import fingerprint, private_key, public_key, signed_by
from whatelse.store import chain, schema
from whatelse.store.chain import Head
from whatelse.store.engine import StoreError

FORMAT = "whatelse-head-1"
FIELDS = ("format", "at", "decision", "audit", "key")
LONGEST = 10_000  # bytes


def sign_head(engine: sa.Engine, key: Path, out: Path) -> dict[str, str]:
    """Verify both chains, and write their heads with a signature to `out`."""
    secret = private_key(key)
    said = {
        "format": FORMAT,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "decision": str(chain.verify(engine, schema.decision)),
        "audit": str(chain.verify(engine, schema.audit)),
        "key": fingerprint(secret.public_key()),
    }
    said["signature"] = base64.b64encode(secret.sign(_message(said))).decode()
    write_whole(out, (json.dumps(said, indent=1) + "\n").encode())
    return said


def read_head(file: Path, trusted: Sequence[Path]) -> tuple[Head, Head]:
    """The heads of decisions and audit of a signed head; StoreError unless a trusted key has signed them."""
    keys = {fingerprint(key): key for key in map(public_key, trusted)}
    try:
        with file.open("rb") as stream:
            said = json.loads(stream.read(LONGEST))
        valid = signed_by(keys[said["key"]], said["signature"], _message(said))
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror})") from None
    except KeyError:
        raise StoreError(f"{file}: no trusted key has signed this head; make one with 'store verify --sign'") from None
    except (ValueError, TypeError, RecursionError):
        valid = False
    if not valid:
        raise StoreError(f"{file}: the signature is not valid")
    return Head.parse(said["decision"]), Head.parse(said["audit"])


def _message(said: dict[str, str]) -> bytes:
    return "\0".join(said[name] for name in FIELDS).encode()
