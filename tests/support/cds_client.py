"""A strict CDS Hooks 2.0 client: sends what the reference client sends, and refuses whatever the specification does not
have."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from fhir.resources.R4B.condition import Condition

ISSUER, KID, ORIGIN = "https://sandbox.cds-hooks.org", "44823f3d-0b01-4a6c-a80e-b9d3e8a7226f", "http://localhost:8092"
SIMPLE = re.compile(r"[A-Z][A-Za-z]+(/x|\?[a-z_-]+=[A-Za-z0-9,_-]+(&[a-z_-]+=[A-Za-z0-9,_-]+)*)")  # read or search
TOKENS = {"context.patientId", "context.userId", "context.encounterId"}  # those of both hooks


class Sandbox:
    """One client with its keys. Every exchange is preflighted as a browser would, and sent with a token of its own."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP384R1())
        public = jwt.algorithms.get_default_algorithms()["ES384"].to_jwk(self._key.public_key())
        self.keys = folder / "sandbox-keys.json"
        self.keys.write_text(json.dumps({"keys": [{**json.loads(public), "kid": KID, "alg": "ES384", "use": "sig"}]}))
        self.url = ""

    @property
    def settings(self) -> dict[str, Any]:
        """What a service is configured with to be called by this client."""
        return {"cds_hooks": True, "cds_issuers": {ISSUER: str(self.keys)}, "cds_origins": [ORIGIN]}

    def token(self, address: str) -> str:
        """As captured: no sub and no nbf, iat rounded to the nearest second (here: always up)."""
        at = math.ceil(time.time())
        claims = {"iss": ISSUER, "aud": address, "exp": at + 300, "iat": at, "jti": str(uuid.uuid4())}
        return jwt.encode(claims, self._key, "ES384", {"kid": KID, "jku": f"{ISSUER}/.well-known/jwks.json"})

    def discover(self) -> list[dict[str, Any]]:
        found = self._send("GET", self.url + "/cds-services")
        assert set(found) == {"services"}
        for service in found["services"]:
            check_service(service)
        services: list[dict[str, Any]] = found["services"]
        assert len({s["id"] for s in services}) == len(services)
        return services

    def call(self, service: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        found = self._send("POST", f"{self.url}/cds-services/{service}", body)
        assert set(found) == {"cards"}
        for card in found["cards"]:
            check_card(card)
        cards: list[dict[str, Any]] = found["cards"]
        assert len({c["uuid"] for c in cards}) == len(cards) <= 3
        return cards

    def feedback(self, service: str, *given: dict[str, Any]) -> None:
        self._send("POST", f"{self.url}/cds-services/{service}/feedback", {"feedback": list(given)})

    def accept(self, service: str, card: dict[str, Any]) -> None:
        chosen = [{"id": card["suggestions"][0]["uuid"]}]
        self.feedback(service, {
            "card": card["uuid"], "outcome": "accepted", "acceptedSuggestions": chosen,
            "outcomeTimestamp": "2026-11-16T05:53:10.117Z",
        })  # fmt: skip

    def override(self, service: str, card: dict[str, Any]) -> None:
        reason = card["overrideReasons"][0]
        self.feedback(service, {
            "card": card["uuid"], "outcome": "overridden", "outcomeTimestamp": "2026-11-16T05:53:12.002Z",
            "overrideReason": {"reason": {"code": reason["code"], "system": reason["system"]}},
        })  # fmt: skip

    def _send(self, method: str, address: str, body: Any = None) -> Any:
        wants = {
            "access-control-request-method": method,
            "access-control-request-headers": "authorization,content-type",
        }
        before = httpx.options(address, headers={"origin": ORIGIN, **wants})
        assert before.status_code in (200, 204) and before.headers["access-control-allow-origin"] == ORIGIN
        headers = {"accept": "application/json", "origin": ORIGIN, "sec-fetch-site": "cross-site"}
        headers |= {"authorization": f"Bearer {self.token(address)}"}
        answer = httpx.request(method, address, headers=headers, json=body, follow_redirects=False, timeout=60)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["content-type"].split(";")[0] == "application/json"
        return answer.json()


def check_service(service: dict[str, Any]) -> None:
    """Every field of a service as the specification has it, and no other."""
    assert {"id", "hook", "description"} <= set(service)
    assert set(service) <= {"id", "hook", "description", "title", "prefetch", "usageRequirements"}
    assert all(isinstance(service[name], str) and service[name] for name in set(service) - {"prefetch"})
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", service["id"]) and service["hook"] in (
        "patient-view",
        "encounter-discharge",
    )
    for key, template in service["prefetch"].items():
        assert re.fullmatch(r"[A-Za-z0-9_-]+", key) and set(re.findall(r"\{\{(.*?)\}\}", template)) <= TOKENS
        assert SIMPLE.fullmatch(re.sub(r"\{\{.*?\}\}", "x", template)), template


def check_card(card: dict[str, Any]) -> None:
    """Every field of a card as the specification has it, and no other."""
    needed = {"summary", "indicator", "source"}
    known = {"uuid", "detail", "suggestions", "selectionBehavior", "overrideReasons", "links"}
    assert needed <= set(card) <= needed | known
    assert 0 < len(card["summary"]) < 140 and card["indicator"] in ("info", "warning", "critical")
    assert card["source"]["label"] and set(card["source"]) <= {"label", "url", "icon", "topic"}
    assert "url" not in card["source"] or _absolute(card["source"]["url"])
    assert isinstance(card.get("detail", ""), str) and "<" not in card.get("detail", "")
    assert str(uuid.UUID(card["uuid"])) == card["uuid"], "without one there is no feedback"
    if card.get("suggestions"):
        assert card["selectionBehavior"] in ("at-most-one", "any")
    for suggestion in card.get("suggestions", ()):
        assert set(suggestion) <= {"label", "uuid", "isRecommended", "actions"} and suggestion["label"]
        assert str(uuid.UUID(suggestion["uuid"])) == suggestion["uuid"] != card["uuid"]
        for action in suggestion["actions"]:
            assert set(action) == {"type", "description", "resource"} and action["type"] == "create"
            assert action["description"] and "id" not in action["resource"], "the EHR gives it one"
            Condition.model_validate(action["resource"])
    for reason in card.get("overrideReasons", ()):
        assert set(reason) == {"code", "system", "display"} and all(reason.values())
    for link in card.get("links", ()):
        assert set(link) <= {"label", "url", "type", "appContext"} and link["label"] and _absolute(link["url"])
        assert link["type"] in ("absolute", "smart") and ("appContext" not in link or link["type"] == "smart")


def _absolute(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).netloc)
