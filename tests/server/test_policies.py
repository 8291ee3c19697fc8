"""Routes declare themselves: a route without a policy cannot be made, and every policy can be enforced."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.serving import client, service
from whatelse.server.policies import ANYONE, Lane, Policy, RouteTable, policy
from whatelse.server.routing import Router
from whatelse.store import ROLES

OPEN = {  # paths that need no sign-in: pages without data, health, sign-in itself, launch
    "^/$", "^/visit/(?P<key>[^/]+)$", "^/new$", "^/signin$", "^/healthz$", "^/readyz$", "^/api/session$",
    "^/smart/launch$", "^/smart/callback$", "^/smart/ended$", "^/smart/keys$", r"^/cds\-services$",
}  # fmt: skip


def test_route_without_a_policy_is_refused() -> None:
    router = Router()
    with pytest.raises(TypeError, match="declare its permission"):

        @router.get("/x")
        async def undeclared() -> None: ...


def test_every_route_has_a_permission_and_only_known_paths_are_open(tmp_path: Path) -> None:
    from tests.support.smart_ehr import CLIENT

    more = {"cds_hooks": True, "smart_client_id": CLIENT, "fhir_servers": ["http://ehr.test/fhir"], "auth": "token"}
    with service(tmp_path, **more) as opened, client(opened):
        found = opened.routes.all()
    assert len(found) > 25
    for method, path, declared in found:
        assert declared.permission in (*ROLES, ANYONE) or declared.check is not None, (method, path)
        if declared.permission == ANYONE:
            assert path in OPEN, f"{method} {path} needs no sign-in"
        if "key" in path and declared.permission != ANYONE:
            assert declared.audit, f"{method} {path} shows or changes a visit and leaves no audit line"


def test_policy_is_found_by_method_and_path() -> None:
    router = Router()

    @router.get("/a/{key}")
    @policy("viewer", audit="visit read")
    async def one(key: str) -> None: ...

    @router.post("/a/{key}")
    @policy("clinician", audit="decision", urgent=True)
    async def two(key: str) -> None: ...

    table = RouteTable()
    table.add(router.routes)
    assert table.find("GET", "/a/x").audit == "visit read" and not table.find("GET", "/a/x").audit_repeats
    assert table.find("POST", "/a/x").urgent and set(table.methods("/a/x")) == {"GET", "POST"}
    assert table.methods("/a/x/y") == {} and table.find("GET", "/b") == Policy(ANYONE)
    assert table.find("GET", "/static/x.js").lane is Lane.SLOW


def test_other_methods_get_405_with_every_method_of_the_path(tmp_path: Path) -> None:
    with service(tmp_path) as opened, client(opened) as http:
        refused: httpx.Response = http.put("/api/session", content=b"x")
        assert refused.status_code == 405 and refused.headers["allow"] == "DELETE, GET, POST"
        assert http.request("TRACE", "/api/visits/search").status_code == 405
        assert http.post("/nothing", content=b"x").status_code == 404
        assert http.delete("/api/session").status_code == 204, "without a body there is no type to declare"
        assert http.post("/api/visits/search", content=b"{}").status_code == 415
