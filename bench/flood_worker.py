"""A worker that sends tokens as fast as its client lets it, or on one beat; for measurements only.

It speaks just enough HTTP/2 for the clients measured here, and renders every token beforehand, so
that it costs a fraction of what they do. ``python bench/flood_worker.py TOKENS BEAT`` prints its
port; BEAT is in seconds, 0 floods.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import cast

from sglr_proto.sglang import scheduler_pb2

PREFACE = 24
HEAD = struct.Struct(">IBI")
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
CONNECTION_WINDOW = 2**31 - 1 - 65_535
LARGEST_END = 200
"""Bytes of window that a completion certainly fits."""
BATCH = 64
"""Tokens of one stream that a flood sends before the next stream's turn."""


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def fields(*pairs: tuple[bytes, bytes]) -> bytes:
    """Return a header block of literals."""
    return b"".join(b"\0%c%b%c%b" % (len(n), n, len(v), v) for n, v in pairs)


ANSWER = fields((b":status", b"200"), (b"content-type", b"application/grpc"))
FINE = fields((b"grpc-status", b"0"))


class Tokens:
    """What every stream says: its chunks without the job's id, and its completion."""

    def __init__(self, count: int) -> None:
        """Render *count* tokens."""
        self.chunks = [
            scheduler_pb2.GenerateResponse(
                chunk=scheduler_pb2.GenerateStreamChunk(
                    token_ids=[1000 + number * 37 % 150_000],
                    prompt_tokens=500,
                    completion_tokens=number,
                    cached_tokens=32,
                )
            ).SerializeToString()
            for number in range(1, count + 1)
        ]
        self.last = scheduler_pb2.GenerateResponse(
            complete=scheduler_pb2.GenerateComplete(
                finish_reason="length", prompt_tokens=500, completion_tokens=count
            )
        ).SerializeToString()


class Stream:
    """One call's answer."""

    def __init__(self, stream_id: int, window: int) -> None:
        """Wait for the request."""
        self.id = stream_id
        self.window = window
        self.body = bytearray()
        self.name = b""
        self.sent = 0

    def render(self, message: bytes) -> bytes:
        """Return DATA with *message* under the job's id."""
        content = self.name + message
        return frame(DATA, 0, self.id, b"\0" + struct.pack(">I", len(content)) + content)


class Worker(asyncio.Protocol):
    """One connection."""

    def __init__(self, tokens: Tokens, beat: float) -> None:
        """Send *tokens* on each stream, one a *beat*; 0 floods."""
        self._tokens, self._beat = tokens, beat
        self._rest = b""
        self._greeted = False
        self._window = 65_535
        self._initial = 65_535
        self._streams: dict[int, Stream] = {}
        self._is_paused = False
        self._handle: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        grant = struct.pack(">I", CONNECTION_WINDOW)
        settings = struct.pack(">HIHI", 3, 10_000, 4, 16 * 2**20)
        self._transport.write(frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, grant))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """Stop."""
        self._streams.clear()

    def pause_writing(self) -> None:
        """Wait for the socket."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self._schedule()

    def data_received(self, data: bytes) -> None:
        """Take the client's frames."""
        buffer = self._rest + data
        at = 0
        if not self._greeted:
            if len(buffer) < PREFACE:
                self._rest = buffer
                return
            at, self._greeted = PREFACE, True
        while at + 9 <= len(buffer):
            word, flags, stream_id = HEAD.unpack_from(buffer, at)
            stop = at + 9 + (word >> 8)
            if stop > len(buffer):
                break
            self._take(word & 0xFF, flags, stream_id, buffer[at + 9 : stop])
            at = stop
        self._rest = buffer[at:]
        self._schedule()

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind in {HEADERS, DATA}:
            self._take_request(kind, flags, stream_id, payload)
        elif kind == WINDOW_UPDATE:
            self._widen(stream_id, *struct.unpack(">I", payload))
        elif kind == RST_STREAM:
            self._streams.pop(stream_id, None)
        elif kind == SETTINGS and not flags & ACK:
            settings = dict(struct.iter_unpack(">HI", payload))
            self._initial = settings.get(INITIAL_WINDOW_SIZE, self._initial)
            self._transport.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, payload))

    def _take_request(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == HEADERS:
            self._streams[stream_id] = Stream(stream_id, self._initial)
        elif stream_id in self._streams:
            self._streams[stream_id].body += payload
        if flags & END_STREAM and stream_id in self._streams:
            self._begin(self._streams[stream_id])

    def _widen(self, stream_id: int, increment: int) -> None:
        if stream_id == 0:
            self._window += increment
        elif stream_id in self._streams:
            self._streams[stream_id].window += increment

    def _begin(self, stream: Stream) -> None:
        job = scheduler_pb2.GenerateRequest.FromString(bytes(stream.body[5:])).request_id.encode()
        stream.name = b"\x0a%c%b" % (len(job), job)
        self._transport.write(frame(HEADERS, END_HEADERS, stream.id, ANSWER))
        if self._beat:
            asyncio.get_running_loop().call_later(self._beat, self._schedule)

    def _schedule(self) -> None:
        if (
            self._handle is None
            and not self._is_paused
            and any(s.name for s in self._streams.values())
        ):
            loop = asyncio.get_running_loop()
            if self._beat:
                # All streams tick together, as a batch on a GPU does.
                now = loop.time()
                self._handle = loop.call_at(now - now % self._beat + self._beat, self._tick)
            else:
                self._handle = loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._handle = None
        moved = False
        for stream in list(self._streams.values()):
            if stream.name:
                moved |= self._send(stream, 1 if self._beat else BATCH)
        if moved or self._beat:
            self._schedule()

    def _send(self, stream: Stream, count: int) -> bool:
        out: list[bytes] = []
        chunks = self._tokens.chunks
        for number in range(stream.sent, min(stream.sent + count, len(chunks))):
            data = stream.render(chunks[number])
            size = len(data) - 9
            if size > min(stream.window, self._window):
                break
            stream.window -= size
            self._window -= size
            stream.sent += 1
            out.append(data)
        if stream.sent == len(chunks) and stream.window > LARGEST_END:
            out.append(stream.render(self._tokens.last))
            out.append(frame(HEADERS, END_HEADERS | END_STREAM, stream.id, FINE))
            self._streams.pop(stream.id, None)
        self._transport.write(b"".join(out))
        return bool(out)


async def main(count: int, beat: float) -> None:
    """Serve until the process is ended."""
    tokens = Tokens(count)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Worker(tokens, beat), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201  # the caller reads it
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2])))
