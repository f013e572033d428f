"""Cases beside the comparison: start-up, linearity, tools offered, clients that never read."""

from __future__ import annotations

import resource
import socket
import statistics
import time
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from contestants import Running, asked, load, wait_for_chat

if TYPE_CHECKING:
    from collections.abc import Callable

    from compare import Run

CLIENTS = 500
"""Streams that nobody reads."""
_QUIET_SECONDS = 3.0
_LOOKS = 5
_DEADLINE = 300.0
"""Seconds for what a busy machine does slowly: filling the kernel's buffers of all clients."""


def startup(run: Run) -> dict[str, Any]:
    """Return the seconds, and those of CPU, from starting a router to its first answered chat."""
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with run.stage.worker() as worker:
        for _ in range(run.rounds):
            for name in ("smg", "sglr") if run.with_peer else ("sglr",):
                start = run.stage.peer if name == "smg" else run.stage.router
                begin = time.monotonic()
                with start(worker) as router:
                    seconds.setdefault(name, []).append(time.monotonic() - begin)
                    cpu.setdefault(name, []).append(router.cpu_seconds())
    return {
        "bar_seconds": 2.5,
        "seconds": {name: statistics.median(found) for name, found in seconds.items()},
        "cpu_seconds": {name: statistics.median(found) for name, found in cpu.items()},
    }


def linearity(run: Run) -> dict[str, Any]:
    """Return how much more CPU an answer of twice as many tokens takes."""
    with run.stage.worker() as worker, run.stage.router(worker) as router:
        load(run.tools, router, "flood", 32, 16)
        cost: dict[str, list[float]] = {"flood": [], "flood-2000": []}
        for _ in range(run.rounds):
            for bodies, found in cost.items():
                found.append(load(run.tools, router, bodies, 64, 16).cpu_per_request)
    short, long = (statistics.median(found) for found in cost.values())
    return {"bar": 2.0, "cpu_per_answer": {"1000": short, "2000": long}, "ratio": long / short}


def tools_offered(run: Run) -> dict[str, Any]:
    """Return what a token costs more when tools are offered, so that the answer is parsed."""
    found: dict[str, dict[str, list[float]]] = {"paced": {}, "flood": {}}
    for pace, worker_flags in (
        ("paced", {"first": 130, "gap": 26, "together": True}),
        ("flood", {}),
    ):
        requests, concurrency = (400, 200) if pace == "paced" else (96, 32)
        with run.stage.worker(**worker_flags) as worker, run.stage.router(worker) as router:
            for _ in range(run.rounds):
                for bodies in (pace, f"{pace}-tools"):
                    measured = load(run.tools, router, bodies, requests, concurrency)
                    found[pace].setdefault(bodies, []).append(measured.cpu_per_piece)
    medians = {
        pace: {bodies: statistics.median(costs) for bodies, costs in by_bodies.items()}
        for pace, by_bodies in found.items()
    }
    ratios = {pace: each[f"{pace}-tools"] / each[pace] for pace, each in medians.items()}
    return {"bar": 1.3, "cpu_per_piece": medians, "ratios": ratios}


def unread(run: Run) -> dict[str, Any]:
    """Return what streams cost in memory whose clients never read, and what is left after them.

    Each asks for 100,000 tokens of a worker that sends as fast as it may.
    """
    _allow_sockets(2 * CLIENTS + 100)
    with run.stage.worker() as worker, run.stage.router(worker) as router:
        load(run.tools, router, "flood", 32, 16)
        before = router.memory_kb()
        bodies = run.tools.bodies("unread").read_text().splitlines()
        began = asked(worker)["tokens"]
        with ExitStack() as stack:
            for at in range(CLIENTS):
                stack.enter_context(_client(router, bodies[at % len(bodies)]))
            _until(lambda: asked(worker)["active"] == CLIENTS)
            sent = _until_still(lambda: asked(worker)["tokens"]) - began
            held = router.memory_kb() - before
            active = asked(worker)["active"]
            time.sleep(_QUIET_SECONDS)
            later = asked(worker)["tokens"] - began
        _until(lambda: asked(worker)["active"] == 0)
        _until(lambda: _in_flight(router) == 0)
        still_answers = wait_for_chat(router)
    return {
        "clients": CLIENTS,
        "streams_paused": active,
        "tokens_per_stream": sent / CLIENTS,
        "tokens_while_paused": later - sent,
        "kib_per_stream": held / CLIENTS,
        "all_freed": True,
        "next_chat_seconds": still_answers,
    }


CASES: dict[str, Callable[[Run], dict[str, Any]]] = {
    "startup": startup,
    "linearity": linearity,
    "tools": tools_offered,
    "unread": unread,
}


def _client(router: Running, body: str) -> socket.socket:
    """Return a connection that asked for a stream, with the smallest buffer to receive it in."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", router.port))
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n"
    )
    client.sendall((head + body).encode())
    return client


def _until_still(count: Callable[[], int]) -> int:
    """Return *count* once it has not moved for some seconds."""
    seen = [count()]
    deadline = time.monotonic() + _DEADLINE
    while len(seen) < _LOOKS or len(set(seen[-_LOOKS:])) > 1:
        if time.monotonic() > deadline:
            raise SystemExit("The streams that nobody reads never paused.")
        time.sleep(1)
        seen.append(count())
    return seen[-1]


def _until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not claim():
        if time.monotonic() > deadline:
            raise SystemExit("What was waited for did not happen.")
        time.sleep(0.1)


def _in_flight(router: Running) -> float:
    url = f"http://127.0.0.1:{router.port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:  # our own router
        lines = answer.read().decode().splitlines()
    found = [float(x.split()[1]) for x in lines if x.startswith("sglr_requests_in_flight ")]
    return found[0]


def _allow_sockets(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
