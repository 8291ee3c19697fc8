"""Requests to servers that the settings name: key sets, discovery documents, token endpoints.

One deadline covers the whole request. Redirects are not followed, proxies of the environment are not used, and an
answer that is compressed or longer than LARGEST bytes is refused.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from whatelse.errors import WhatelseError
from whatelse.sources.fhir.deadline import Deadline

LARGEST = 1_000_000  # bytes


class OutgoingError(WhatelseError):
    """A server did not give a JSON object. `reason`: one word for log and metrics; `status`: of the answer, or None.

    `error`: the OAuth error code of the answer, or "".
    """

    def __init__(self, reason: str, status: int | None = None, error: str = "") -> None:
        super().__init__(f"the server did not give a JSON object ({reason})")
        self.reason, self.status, self.error = reason, status, error


def request_json(method: str, url: str, seconds: float, **more: Any) -> dict[str, Any]:
    """The JSON object that a server answers within `seconds`. `more`: arguments of httpx (data, auth)."""
    deadline = Deadline(seconds)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        with (
            deadline,
            httpx.Client(trust_env=False, follow_redirects=False) as client,
            client.stream(
                method, url, headers=headers, timeout=seconds, extensions=deadline.extensions, **more
            ) as answer,
        ):
            body = b""
            for piece in answer.iter_raw():
                body += piece
                if len(body) > LARGEST:
                    raise OutgoingError("long")
            if deadline.left <= 0:  # the body may have ended early
                raise OutgoingError("slow")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise OutgoingError("compressed")
            if answer.status_code != 200:
                raise OutgoingError("status", answer.status_code, _oauth_error(body))
        found = json.loads(body)
    except httpx.TimeoutException:
        raise OutgoingError("slow") from None
    except (httpx.HTTPError, httpx.InvalidURL):
        raise OutgoingError("unreachable" if deadline.left > 0 else "slow") from None
    except (ValueError, RecursionError):
        raise OutgoingError("malformed") from None
    if not isinstance(found, dict):
        raise OutgoingError("malformed")
    return found


OAUTH_ERRORS = frozenset({
    "access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "server_error",
    "temporarily_unavailable", "unauthorized_client", "unsupported_grant_type", "unsupported_response_type",
    "consent_required", "interaction_required", "login_required",
})  # fmt: skip


def _oauth_error(body: bytes) -> str:
    """The OAuth error code of a refusal, if it is one of the standard; nothing else of an answer is kept."""
    try:
        said = json.loads(body).get("error")
    except (ValueError, RecursionError, AttributeError):
        return ""
    return said if isinstance(said, str) and said in OAUTH_ERRORS else ""
