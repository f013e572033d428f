# ruff: noqa: T201 -- a report prints
"""Measure what reading one chunk of a worker's stream costs over HTTP/1.1 and over HTTP/2.

    bench/http_versions.py

The same events go through the two readers of this router, without sockets: chunked HTTP/1.1 through
``engine.h1.link``, DATA frames through ``engine.h2.machine``. Microseconds of CPU a chunk, median of
nine runs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any, cast

from sglr_dataplane.engine.h1.link import Link
from sglr_dataplane.engine.h2.machine import Machine
from sglr_dataplane.engine.h2.state import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 20_000
EVENT = (
    b'data: {"id":"chatcmpl-f04790796d7ba2e3667a041324be3b97","object":"chat.completion.chunk",'
    b'"created":1795986854,"model":"qwen","choices":[{"index":0,"delta":{"content":" word"},'
    b'"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}\n\n'
)


class _Sink:
    """Stands for whatever is told: a transport, a call, a receiver."""

    answered = sent = is_over = False
    link = None

    def __init__(self) -> None:
        self.receiver = self
        self.request = b""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        return lambda *_: None


def over_http_1() -> float:
    """Return the CPU seconds that reading all chunks took."""
    link = Link(cast("Any", _Sink()))
    link.connection_made(cast("Any", _Sink()))
    link.begin(cast("Any", _Sink()))
    link.data_received(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    chunk = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
    begin = time.process_time()
    for _ in range(COUNT):
        link.data_received(chunk)
    return time.process_time() - begin


def over_http_2() -> float:
    """Return the CPU seconds that reading all frames took, flow control included."""
    machine = Machine(Limits())
    machine.receive(b"\0\0\0\4\0\0\0\0\0")
    stream = machine.open(b"", b"")
    machine.receive(b"\0\0\1\1\4" + stream.id.to_bytes(4, "big") + b"\x88")
    frame = len(EVENT).to_bytes(3, "big") + b"\0\0" + stream.id.to_bytes(4, "big") + EVENT
    begin = time.process_time()
    for _ in range(COUNT):
        machine.receive(frame)
        machine.take_output()
    return time.process_time() - begin


async def main() -> None:
    """Print both."""
    for name, run in (("HTTP/1.1", over_http_1), ("HTTP/2", over_http_2)):
        seconds = statistics.median(run() for _ in range(9))
        print(f"{name:9} {seconds / COUNT * 1e6:.2f} us a chunk of {len(EVENT)} bytes")


if __name__ == "__main__":
    asyncio.run(main())
