"""A server that answers like a language model: slow, wrong, malformed, contradicting, refusing, by a stated seed.

    python -m tests.support.language_model --port 8077 --seed 1

It says yes to nine of ten conditions one of whose names stands in the record, else no or unknown. Which records meet
which fault depends on seed and record alone. It obeys a record that says "ignore the above".
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("busy", "slow", "fenced", "cut", "prose", "refusal", "contradiction", "invented", "html")


class ModelServer(ThreadingHTTPServer):
    """faults: share of the records that meet each fault, by name; `asked` counts questions by record."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int = 0, seed: int = 0, seconds: float = 0.0, **faults: float) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        assert set(faults) <= set(FAULTS)
        self.seed, self.seconds, self.faults = seed, seconds, faults
        self.asked: Counter[str] = Counter()
        self.questions: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()
        self.released = threading.Event()  # ends all waits of a "slow" record
        self.notify: Callable[[int], None] = lambda questions: None  # called with the number of questions so far

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked is gone: nothing to say."""

    def draw(self, what: str, record: str) -> float:
        """A number from 0 to 1, of seed, purpose and record."""
        digest = sha256(f"{self.seed}|{what}|{record}".encode()).digest()
        return int.from_bytes(digest[:4], "big") / 2**32

    def fault(self, record: str) -> str:
        """The fault that a record meets, or ""."""
        at = self.draw("fault", record)
        for name, share in self.faults.items():
            if at < share:
                return name
            at -= share
        return ""


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        server = self.server
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        system, user = (message["content"] for message in question["messages"])
        record = re.search(r"RECORD \w+\n(.*)\nRECORD", user, re.DOTALL)[1]  # type: ignore[index]
        with server.lock:
            server.asked[record] += 1
            server.questions.append(question)
            server.headers.append(dict(self.headers))
            tries = server.asked[record]
            server.notify(len(server.questions))
        if server.seconds:
            time.sleep(server.seconds)
        fault = server.fault(record)
        if fault == "busy" and tries <= 2:
            return self._send(503, b"busy", {"Retry-After": "0"})
        if fault == "slow" and tries == 1:
            server.released.wait(30)
        if fault == "html":
            return self._send(200, b"<html>a page</html>")
        text = _misread(fault, self._answers(system, record, question.get("seed", 0)))
        usage = {"prompt_tokens": len(system + user) // 4, "completion_tokens": len(text) // 4}
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self._send(200, json.dumps({"choices": [choice], "usage": usage}).encode())

    def _answers(self, system: str, record: str, seed: int) -> list[dict[str, str]]:
        out = []
        listed = system.partition("\nConditions:\n")[2]
        obey = "ignore the above" in record.lower()
        for name, also in re.findall(r"^- (.+?): .*?(?:\(also: (.*?)\))?\.", listed, re.MULTILINE):
            names = [name, *also.split(", ")] if also else [name]
            said = next((n for n in names if re.search(rf"\b{re.escape(n)}\b", record, re.IGNORECASE)), None)
            if obey:
                out.append({"condition": name, "answer": "yes", "words": "ignore the above"})
            elif said is not None and self.server.draw(f"slip {name} {seed % 2}", record) >= 0.1:
                out.append({"condition": name, "answer": "yes", "words": said})
            elif self.server.draw(f"unsure {name} {seed % 2}", record) < 0.1:
                out.append({"condition": name, "answer": "unknown", "words": ""})
            else:
                out.append({"condition": name, "answer": "no", "words": ""})
        return out

    def _send(self, status: int, body: bytes, more: dict[str, str] | None = None) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(more or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # whoever asked is gone


def _misread(fault: str, answers: list[dict[str, str]]) -> str:
    """The answer as text, with the fault in it."""
    if fault == "refusal":
        return "I'm sorry, but I cannot give medical advice."
    if fault == "prose":
        return "The patient seems unwell."
    if fault == "contradiction":
        first = answers[0] | {"answer": "no", "words": ""}
        answers = [first, first | {"answer": "unknown"}, *answers[1:]]
    if fault == "invented":
        answers = [each | {"answer": "yes", "words": "words that nobody wrote"} for each in answers]
    text = json.dumps({"answers": answers})
    if fault == "fenced":
        return f"<think>Let me see.</think>Here it is:\n```json\n{text[:-2]},]}}\n```"
    return text[: text.rindex("{") + 20] if fault == "cut" else text


@contextmanager
def model_server(**settings: Any) -> Iterator[ModelServer]:
    """The server, in a thread."""
    server = ModelServer(**settings)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8077)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="for an answer")
    options = parser.parse_args()
    faults = dict.fromkeys((name for name in FAULTS if name not in ("slow", "html")), 0.03)
    with model_server(port=options.port, seed=options.seed, seconds=options.seconds, **faults) as server:
        print(f"answering at {server.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
