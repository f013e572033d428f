"""The relayed answer of an HTTP worker: one by one, by batches, or straight on to an outlet."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.events import Expected
from sglr_dataplane.engine.h1.call import Call
from sglr_dataplane.engine.h1.link import Link
from sglr_dataplane.engine.openai_stream import RelayStream
from sglr_dataplane.engine.outlets import RelayLimits
from sglr_dataplane.errors import (
    DeadlineExceededError,
    RouterError,
    TruncatedStreamError,
    WorkerError,
)
from sglr_dataplane.job import Chunk, Piece, Usage
from support.h1peer import REQUEST, SECONDS, Peer, a_peer, a_pool

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
PACKED = HEAD.replace(b"text/event-stream", b"application/json\r\ncontent-encoding: gzip")
PACKED += b"0\r\n\r\n"


def said(text: str) -> bytes:
    """Return a chunk of a chat."""
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


def chunked(*parts: bytes) -> bytes:
    """Return *parts* as chunks of a body, without its end."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


@dataclass
class Outlet:
    """A client that reads, or does not."""

    is_full: bool = False
    written: list[bytes] = field(default_factory=list[bytes])

    def write(self, part: bytes) -> None:
        """Keep *part*."""
        self.written.append(part)


@dataclass
class Spoken:
    """Knows when something was said."""

    spoke_at: float = 0.0


class Bench:
    """A relay under a connection that the test plays, without sockets."""

    def __init__(self, limits: RelayLimits | None = None) -> None:
        self.reads = True
        self.buffered = 0
        self.link = Link(self)
        self.link.connection_made(self)  # type: ignore[arg-type]  # plays the transport
        self.stream = RelayStream(
            self,  # type: ignore[arg-type]  # plays the pool
            REQUEST,
            Expected(),
            Deadlines(),
            streams=True,
            limits=limits,
        )
        self.told: list[Chunk] = []
        self.is_closed = False

    def call(self, request: bytes, receiver: RelayStream) -> Call:
        """Be a pool that has a connection."""
        call = Call(self, request, receiver)
        self.link.begin(call)
        return call

    def drain(self) -> None:
        """Keep what has arrived."""
        self.told += self.stream.drain()

    # What a pool, a transport and an owner of links are asked for.

    def forget(self, call: Call) -> None:
        """Have nobody waiting."""

    def on_idle(self, link: Link) -> None:
        """Keep it."""

    def on_closed(self, link: Link, call: Call | None, error: Exception) -> None:
        """Let it be."""

    def write(self, data: bytes) -> None:
        """Send nothing."""

    def close(self) -> None:
        """Stay open."""

    def abort(self) -> None:
        """Stay open."""

    def is_closing(self) -> bool:
        """Return False: it is open."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return 0: all was sent."""
        return 0

    def pause_reading(self) -> None:
        """Hold the worker back."""
        self.reads = False

    def resume_reading(self) -> None:
        """Go on."""
        self.reads = True


def frames(pieces: list[Chunk]) -> bytes:
    """Return what *pieces* bring the client."""
    return b"".join(piece.data for piece in pieces if isinstance(piece, Piece))


TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=12)


@given(TEXTS, st.data())
async def test_the_client_gets_the_same_bytes_whichever_way(
    texts: list[str], data: st.DataObject
) -> None:
    """Chunks cut anywhere, reads cut anywhere, a client that reads now and then: one answer."""
    events = [said("begin"), *map(said, texts)]
    body = b"".join(events)
    edges = sorted(data.draw(st.lists(st.integers(1, len(body) - 1), max_size=6, unique=True)))
    aligned = data.draw(st.booleans())
    pieces = [body[a:b] for a, b in zip([0, *edges], [*edges, len(body)], strict=True)]
    wire = HEAD + chunked(*(events if aligned else pieces)) + chunked(DONE) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(1, len(wire) - 1), max_size=10)))
    if aligned and data.draw(st.booleans()):
        reads = [HEAD, *(chunked(event) for event in events), chunked(DONE) + b"0\r\n\r\n"]
    else:
        reads = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    bench, outlet, spoken = Bench(), Outlet(), Spoken()
    out: list[bytes] = []

    def hear() -> None:
        if not outlet.is_full:
            out.append(frames(bench.stream.drain()))

    bench.stream.start(hear)
    is_piped = False
    for read in reads:
        outlet.is_full = is_piped and data.draw(st.booleans())
        bench.link.data_received(read)
        if not is_piped and any(out):
            bench.stream.pipe(outlet, spoken, 60.0)
            is_piped = True
        out.append(b"".join(outlet.written))
        outlet.written.clear()
    outlet.is_full = False
    hear()
    bench.stream.close()

    assert b"".join(out) == body
    assert bench.stream.failure is None


async def test_what_goes_straight_on_is_not_told_of() -> None:
    """A chunk in a read of its own leaves in one write, at once, and is counted."""
    bench, outlet, spoken = Bench(), Outlet(), Spoken()
    news: list[int] = []
    bench.stream.start(lambda: news.append(1))
    bench.link.data_received(HEAD + chunked(said("a")))
    bench.drain()
    bench.stream.pipe(outlet, spoken, 60.0)
    news.clear()

    bench.link.data_received(chunked(said("b")))
    bench.link.data_received(chunked(said("c") + said("d")))

    assert outlet.written == [said("b"), said("c") + said("d")]
    assert not news
    assert spoken.spoke_at > 0
    bench.link.data_received(chunked(DONE) + b"0\r\n\r\n")
    bench.drain()
    assert bench.told[-1].usage == Usage(completion_tokens=4)
    assert bench.stream.is_over


async def test_a_stream_that_nobody_takes_holds_the_worker_back() -> None:
    """Above the limit the connection is not read from, until somebody drains."""
    bench = Bench(RelayLimits(unread=1000))
    bench.stream.start(lambda: None)
    bench.link.data_received(HEAD + chunked(said("x" * 500)))
    assert bench.reads
    bench.link.data_received(chunked(said("x" * 500)))
    assert not bench.reads

    bench.drain()

    assert bench.reads
    bench.stream.close()


async def ends(wire: bytes, **deadlines: float) -> RouterError | None:
    """Return what a stream fails with whose peer writes *wire* and then says nothing."""

    async def talk(peer: Peer, reader: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        w.write(wire)
        await reader.read(1)

    limits = Deadlines(**deadlines)
    async with a_peer(talk) as peer, a_pool(peer.port) as pool, asyncio.timeout(SECONDS):
        stream = RelayStream(pool, REQUEST, Expected(), limits, streams=True)
        try:
            async for _ in stream:
                pass
        except RouterError as failure:
            return failure
        finally:
            await stream.aclose()
    return None


@pytest.mark.parametrize(
    ("wire", "deadlines", "sentence"),
    [
        (b"", {"first_token": 0.05}, "a first token within 0.05 s"),
        (HEAD, {"first_token": 0.05}, "a first token within 0.05 s"),
        (HEAD + chunked(b": ping\n\n"), {"first_token": 0.05}, "a first token within 0.05 s"),
        (HEAD + chunked(said("a")), {"idle": 0.05}, "another token within 0.05 s"),
        (HEAD + chunked(said("a")), {"total": 0.05}, "another token within 0.05 s"),
    ],
)
async def test_every_wait_of_a_stream_ends(
    wire: bytes, deadlines: dict[str, float], sentence: str
) -> None:
    """Before the first content, between two events, and in all."""
    failure = await ends(wire, **deadlines)

    assert isinstance(failure, DeadlineExceededError)
    assert str(failure).endswith(f"{sentence}.")


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (HEAD + chunked(said("a")) + b"0\r\n\r\n", TruncatedStreamError),
        (b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", WorkerError),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\nx", WorkerError),
        (PACKED, WorkerError),
    ],
)
async def test_what_is_no_answer_is_a_failure(wire: bytes, kind: type[RouterError]) -> None:
    """An end without a finish, a redirect, text, and what nobody asked to be compressed."""
    assert isinstance(await ends(wire), kind)
