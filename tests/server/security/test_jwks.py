"""Key sets of issuers: which keys verify, for how long, and what happens while they cannot be fetched."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from whatelse.server.security import jwks
from whatelse.server.security.jwks import FRESH, RETRY, STALE, KeySet, TokenRefused, verify
from whatelse.server.security.outgoing import OutgoingError

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP384R1())


def public(key: Any, **more: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if key is RSA else jwt.algorithms.ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


def token(key: Any = RSA, algorithm: str = "RS256", **headers: Any) -> str:
    claims = {"iss": "i", "aud": "a", "sub": "s", "exp": time.time() + 300}
    return jwt.encode(claims, key, algorithm, headers=headers)


def accepts(keys: KeySet, text: str) -> bool:
    try:
        verify(text, keys, "i", "a", ("exp",))
    except TokenRefused:
        return False
    return True


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def answering(answer: Any) -> Iterator[str]:
    """A server that calls answer(handler) for every GET."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/keys"
    finally:
        server.shutdown()
        server.server_close()


def reply(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize(
    ("more", "good"),
    [
        ({}, True),
        ({"use": "sig"}, True),
        ({"alg": "RS256"}, True),
        ({"use": "enc"}, False),
        ({"key_ops": ["encrypt"]}, False),
        ({"alg": "RS384"}, False),
        ({"kid": "other"}, False),
        ({"kty": "oct", "k": "eHh4"}, False),
    ],
)
def test_only_keys_for_signatures_of_the_named_algorithm_and_id_verify(
    tmp_path: Path, more: dict[str, Any], good: bool
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [public(RSA, **more)]}))
    assert accepts(KeySet(str(file)), token(kid="one")) is good


def test_entries_that_are_no_keys_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    odd = ["x", None, {"kty": ["RSA"]}, {"kty": "RSA"}, {"kty": "RSA", "n": 7, "e": 7}, {"kty": "EC", "key_ops": 7}]
    file.write_text(json.dumps({"keys": [*odd, public(RSA, kid="one")]}))
    assert accepts(KeySet(str(file)), token(kid="one"))


def test_token_without_key_id_is_tried_with_every_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [public(EC, kid="e"), public(RSA, kid="r"), {"kty": "new"}]}))
    assert accepts(KeySet(str(file)), token()) and accepts(KeySet(str(file)), token(EC, "ES384"))


def test_withdrawn_key_works_no_longer_than_fresh_and_no_key_beyond_stale(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys.json", Clock()
    file.write_text(json.dumps({"keys": [public(RSA, kid="r"), public(EC, kid="e")]}))
    keys = KeySet(str(file), clock)
    assert accepts(keys, token(kid="r"))
    file.write_text(json.dumps({"keys": [public(EC, kid="e")]}))
    clock.now += FRESH - 1
    assert accepts(keys, token(kid="r")), "within the overlap"
    clock.now += 2
    assert not accepts(keys, token(kid="r")) and accepts(keys, token(EC, "ES384", kid="e"))
    file.unlink()
    clock.now += STALE - 1
    assert accepts(keys, token(EC, "ES384", kid="e")), "the server of the keys is away for a while"
    clock.now += 2
    with pytest.raises(TokenRefused, match="keys_unavailable"):
        verify(token(EC, "ES384", kid="e"), keys, "i", "a", ("exp",))


def test_unknown_key_ids_fetch_at_most_every_retry_seconds(tmp_path: Path) -> None:
    asked: list[str] = []
    body, clock = json.dumps({"keys": [public(RSA, kid="r")]}).encode(), Clock()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        reply(handler, body)

    with answering(answer) as url:
        keys = KeySet(url, clock)
        assert not any(accepts(keys, token(kid=f"k{n}")) for n in range(5)) and len(asked) == 1
        clock.now += RETRY + 1
        assert not accepts(keys, token(kid="x")) and len(asked) == 2


def test_redirects_are_not_followed() -> None:
    elsewhere = {"location": "http://127.0.0.1:9/keys"}
    with answering(lambda h: reply(h, b"{}", 302, **elsewhere)) as url, pytest.raises(OutgoingError, match="status"):
        KeySet(url).fetch()


def test_server_that_drips_is_given_up_at_the_deadline_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "DEADLINE", 0.5)
    slow, body, clock = threading.Event(), json.dumps({"keys": [public(RSA, kid="r")]}).encode(), Clock()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not slow.is_set():
            reply(handler, body)
            return
        try:
            for _ in range(100):
                handler.wfile.write(b"H")
                time.sleep(0.05)
        except OSError:
            return

    with answering(answer) as url:
        keys = KeySet(url, clock)
        assert accepts(keys, token(kid="r"))
        slow.set()
        clock.now += FRESH + 1
        first = threading.Thread(target=accepts, args=(keys, token(kid="r")))
        first.start()
        time.sleep(0.1)
        start = time.monotonic()
        assert accepts(keys, token(kid="r")) and time.monotonic() - start < 0.3, "others go on with the keys there are"
        first.join(3)
        assert not first.is_alive()
