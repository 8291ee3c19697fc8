"""Too much at once: who is let in, who is told to come again, in which order work is done, that none is left over."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tests.support.serving import live, service, wanted
from whatelse.server import Service
from whatelse.server import admission_control as admission
from whatelse.server import run as chores
from whatelse.server import worker_pools as pools
from whatelse.server.admission_control import AdmissionControl
from whatelse.server.worker_pools import URGENT, Busy, WorkerPool, urgency


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("open")) as made:
        yield made


def address(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rsplit(":", 1)[1])


# ---- in which order


def test_a_lane_takes_the_urgent_first_and_forgets_the_cancelled() -> None:
    pool, done, gate = WorkerPool("test", 1), list[str](), threading.Event()
    pool.submit(gate.wait)
    usual = [pool.submit(done.append, f"usual {k}") for k in range(3)]
    mark = urgency.set(URGENT)
    urgent = pool.submit(done.append, "urgent")
    urgency.reset(mark)
    assert usual[1].cancel()
    gate.set()
    urgent.result(60), usual[2].result(60)
    assert done == ["urgent", "usual 0", "usual 2"]
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(60)
    pool.close()
    with pytest.raises(RuntimeError):
        pool.submit(done.append, "late")


def test_decisions_without_end_keep_no_suggestion_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, done, gate, now = WorkerPool("test", 1), list[str](), threading.Event(), [0.0]
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pool.submit(gate.wait)
    last = pool.submit(done.append, "suggestion")
    mark = urgency.set(URGENT)
    for now[0] in (0.0, 0.04, 0.06):
        last = pool.submit(done.append, f"decision at {now[0]}")
    urgency.reset(mark)
    gate.set()
    last.result(60)
    assert done == ["decision at 0.0", "decision at 0.04", "suggestion", "decision at 0.06"]
    pool.close()


# ---- who is let in


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def crowd(clock: list[float], gap: float, at_once: int = 1) -> AdmissionControl:
    """A admission through which `at_once` have left, and as many come, every `gap` seconds for each."""
    made = AdmissionControl(0.12)
    for _ in range(8):
        made.enter(pressing=False)  # a few are always let in
    for _ in range(400 // at_once):
        clock[0] += gap * at_once
        for _ in range(at_once):
            made.leave()
        for _ in range(at_once):
            made.enter(pressing=False)
    return made


@pytest.mark.parametrize("at_once", [1, 4])  # a commit lets many go at the same moment
def test_too_much_work_is_refused_and_decisions_last(clock: list[float], at_once: int) -> None:
    made = crowd(clock, 0.01, at_once)
    with pytest.raises(Busy) as refused:
        for _ in range(1_000):
            made.enter(pressing=False)
    assert refused.value.status_code == 503 and refused.value.headers == {"Retry-After": "1"}
    assert 11 <= made.under_way <= 15  # 120 ms
    made = crowd(clock, 0.01, at_once)
    with pytest.raises(Busy):
        for _ in range(1_000):
            made.enter(pressing=True)
    assert 16 <= made.under_way <= 21  # 180 ms for decisions


def test_once_somebody_was_refused_less_is_let_in_until_it_is_calm(clock: list[float]) -> None:
    made = crowd(clock, 0.005)  # 120 ms are 24 of them
    while not made.wait(pressing=False):
        made.enter(pressing=False)
    full = made.under_way
    assert 22 <= full <= 27
    made.under_way = 12
    assert made.wait(pressing=False) and not made.wait(pressing=True)  # 60 ms are more than 48, and not more than 72
    clock[0] += 1.5
    assert not made.wait(pressing=False)


def test_bodies_on_their_way_count_when_they_are_whole(clock: list[float]) -> None:
    made, bodies = crowd(clock, 0.01), [object() for _ in range(30)]
    for body in bodies:  # who is still sending keeps nobody waiting
        made.enter(pressing=False)
        made.arriving[body] = False
    with pytest.raises(Busy):
        for body in bodies:
            made.arrived(body)
    assert 11 <= made.under_way - len(made.arriving) <= 15
    made.arrived("not counted at all")


# ---- at the door


def slow_down(made: Service) -> None:
    """As if so much were under way that nobody else may come."""
    made.admissions.pages.under_way, made.admissions.pages._gap = 1_000, 1.0


def test_slow_bodies_of_what_is_not_counted_open_no_door(tmp_path: Path) -> None:
    with service(tmp_path) as opened, live(opened) as url:
        slow = []
        for _ in range(30):
            raw = socket.create_connection(address(url))
            raw.sendall(b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        b"Content-Length: 99\r\n\r\n{")  # fmt: skip
            slow.append(raw)
        for _ in range(3):  # answered after what came before it
            assert httpx.get(f"{url}/healthz").status_code == 200
        assert not opened.admissions.pages.arriving  # they would be taken off those who wait
        for raw in slow:
            raw.close()


def test_what_would_wait_too_long_is_refused_before_its_body_is_read(tmp_path: Path) -> None:
    with service(tmp_path, auth="token") as opened, live(opened) as url:
        token, key = opened.store.access.create("a", "clinician", 1), opened.worklist.keys[0]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as web:
            assert web.get(f"/api/visits/{key}").status_code == 200
            slow_down(opened)
            for _ in range(3):  # on one connection
                no = web.get(f"/api/visits/{key}?x=y")
                assert no.status_code == 503 and int(no.headers["retry-after"]) == 30 and no.json()["detail"]
                assert no.headers["x-whatelse-model"] == opened.tagger.digest_
                assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 503
                for path in ("/healthz", "/readyz", "/metrics", "/static/style.css", "/api/session"):
                    assert web.get(path).status_code != 503, path
            kind = {"Content-Type": "application/json"}
            assert web.post("/api/suggest", content=iter([b"x" * 50_000]), headers=kind).status_code == 503
            counted = web.get("/metrics").text
            assert 'whatelse_requests_total{route="none",status="503"} 7.0' in counted
            opened.admissions.pages.under_way = 0
            assert web.get(f"/api/visits/{key}").status_code == 200
        with socket.create_connection(address(url), timeout=60) as raw:  # two in one piece: both are answered, in order
            slow_down(opened)
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            seen = b""
            while b"503" not in seen:
                seen += raw.recv(4096)
            assert seen.index(b"200 OK") < seen.index(b"503")
        with socket.create_connection(address(url), timeout=60) as raw:  # refused, and never sends its body
            head = b"POST /api/why HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            raw.sendall(head + b"Content-Length: 9\r\n\r\n{")
            assert httpx.get(f"{url}/healthz").status_code == 200  # answered after what came before it
            assert opened.admissions.pages.under_way == 1_000
        opened.admissions.pages.under_way = 0


# ---- what is left over


def test_a_request_leaves_nothing_for_the_garbage_collector(opened: Service) -> None:
    """A full collection stops everybody for 50 ms and more; without cycles none is needed."""
    path = f"/api/visits/{opened.worklist.keys[9]}"
    moved = json.dumps(wanted("fall", version=7)).encode()
    head = b"POST %b/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n%b"
    asked = {
        200: b"GET %b/suggestions HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode(),
        409: head % (path.encode(), len(moved), moved),
        422: head % (path.encode(), 2, b"{}"),
        404: b"GET /api/visits/nobody HTTP/1.1\r\nHost: localhost\r\n\r\n",
    }
    with live(opened) as url, socket.create_connection(address(url), timeout=60) as raw, watched() as left_over:
        for status, request in asked.items():
            for _ in range(2):  # what the first of a kind leaves is made once
                for _ in range(10):
                    raw.sendall(request)
                    assert one_answer(raw) == status
                    time.sleep(0.01)
                kinds = left_over()
            assert sum(kinds.values()) < 60, (status, kinds.most_common(9))


def one_answer(raw: socket.socket) -> int:
    """The status of one answer, read to its end."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += raw.recv(1 << 20)
    head, _, body = seen.partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length: ")[2].split()[0]) - len(body)
    while left > 0:
        left -= len(raw.recv(left))
    return int(head.split()[1])


@contextmanager
def watched() -> Iterator[Callable[[], Counter[str]]]:
    """Counts, by kind, what only the garbage collector would free of what was made since it was asked last."""

    def left_over() -> Counter[str]:
        gc.collect()
        kinds = Counter(type(each).__name__ for each in gc.garbage)
        gc.garbage.clear()
        return kinds

    gc.collect()
    gc.freeze()  # all that is older is not looked through again and again
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left_over
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()


@pytest.mark.parametrize("waiting", [0, 1])
def test_full_collections_come_when_nobody_waits(
    opened: Service, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    collected = list[int]()
    monkeypatch.setattr(chores, "SWEEP", -1.0)
    monkeypatch.setattr(chores, "gc", SimpleNamespace(collect=lambda: collected.append(1)))
    monkeypatch.setattr(opened.admissions.pages, "under_way", waiting)

    async def a_moment() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(chores.chores(opened), 0.3)

    asyncio.run(a_moment())
    assert len(collected) == (waiting == 0)
