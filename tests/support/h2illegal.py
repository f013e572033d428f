"""What no HTTP/2 or gRPC server may send, by the sections of RFC 9113 that h2spec tests.

Each case is what a server sends after its SETTINGS, once the client's request on stream 1 is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from support.h2peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PLAIN_HEAD,
    PLAIN_OK,
    PRIORITY,
    PRIORITY_FLAG,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    head,
    message,
    plain_block,
    settings,
    trailers,
    word,
)

PROTOCOL, FLOW, CLOSED, SIZE = 1, 3, 5, 6
COMPRESSION, CALM, HTTP1 = 9, 11, 13
IDLE = 7
UNKNOWN_TYPE = 0xBB


@dataclass(frozen=True)
class Illegal:
    """One case."""

    name: str
    data: bytes
    scope: Literal["connection", "stream"]
    code: int
    """RFC 9113's error code, which the client sends in GOAWAY or RST_STREAM."""
    greets: bool = True
    """Whether the server's SETTINGS come first."""

    def __str__(self) -> str:
        """Name the case in pytest's list."""
        return self.name


def connection(name: str, code: int, *data: bytes, greets: bool = True) -> Illegal:
    """Return a case that ends the connection."""
    return Illegal(name, b"".join(data), "connection", code, greets)


def stream(name: str, code: int, *data: bytes) -> Illegal:
    """Return a case that ends stream 1 and nothing else."""
    return Illegal(name, b"".join(data), "stream", code)


def answer(*fields: tuple[bytes, bytes]) -> bytes:
    """Return HEADERS on stream 1 with *fields*."""
    return frame(HEADERS, END_HEADERS, 1, plain_block(*fields))


def last(*fields: tuple[bytes, bytes]) -> bytes:
    """Return HEADERS with END_STREAM on stream 1 with *fields*."""
    return trailers(1, plain_block(*fields))


STATUS = (b":status", b"200")
TYPE = (b"content-type", b"application/grpc")
BIG = bytes(16_385)
OPEN_BLOCK = frame(HEADERS, 0, 1, PLAIN_HEAD)
OVER = head() + trailers()

GREETING = (
    connection("3.4 the first frame is PING", PROTOCOL, frame(PING, 0, 0, bytes(8)), greets=False),
    connection("3.4 the first frame is HEADERS", PROTOCOL, head(), greets=False),
    connection("3.4 the first frame is SETTINGS with ACK", PROTOCOL, frame(SETTINGS, ACK, 0), greets=False),
    connection("3.4 the peer answers in HTTP/1.1", HTTP1, b"HTTP/1.1 400 Bad Request\r\n\r\n", greets=False),
    connection("3.4 the peer sends a TLS alert", PROTOCOL, b"\x15\x03\x01\x00\x02\x02\x46\0\0", greets=False),
)  # fmt: skip

FRAMES = (
    connection("4.2 DATA above the frame size", SIZE, head(), frame(DATA, 0, 1, BIG)),
    connection("4.2 HEADERS above the frame size", SIZE, frame(HEADERS, END_HEADERS, 1, BIG)),
    connection("4.2 SETTINGS above the frame size", SIZE, frame(SETTINGS, 0, 0, bytes(16_386))),
    connection("4.2 an unknown frame above the frame size", SIZE, frame(UNKNOWN_TYPE, 0, 0, BIG)),
    connection("4.3 HPACK index 0", COMPRESSION, frame(HEADERS, END_HEADERS, 1, b"\x80")),
    connection("4.3 HPACK index beyond the table", COMPRESSION, frame(HEADERS, END_HEADERS, 1, b"\xfe")),
    connection("4.3 an HPACK literal cut short", COMPRESSION, frame(HEADERS, END_HEADERS, 1, b"\0\x0aabc")),
    connection("4.3 an HPACK integer without end", COMPRESSION, frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff")),
    connection("4.3 Huffman padding that is none", COMPRESSION, frame(HEADERS, END_HEADERS, 1, b"\0\x81\x00\0")),
    connection("4.3 a table above the allowed size", COMPRESSION, frame(HEADERS, END_HEADERS, 1, b"\x3f\xe2\x1f\x88")),
    connection("4.3 a table size after a field", COMPRESSION, frame(HEADERS, END_HEADERS, 1, b"\x88\x20")),
    connection("4.3 broken HPACK on a closed stream's id", CLOSED, OVER, frame(HEADERS, END_HEADERS, 1, b"\x80")),
    connection("4.3 DATA within a header block", PROTOCOL, OPEN_BLOCK, frame(DATA, 0, 1, b"x")),
    connection("4.3 PING within a header block", PROTOCOL, OPEN_BLOCK, frame(PING, 0, 0, bytes(8))),
    connection("4.3 an unknown frame within a header block", PROTOCOL, OPEN_BLOCK, frame(UNKNOWN_TYPE, 0, 0)),
    connection("4.3 HEADERS within a header block", PROTOCOL, OPEN_BLOCK, head()),
    connection("4.3 DATA within trailers", PROTOCOL, head(), frame(HEADERS, END_STREAM, 1, PLAIN_OK), frame(DATA, 0, 1, b"x")),
    connection("4.3 SETTINGS within a header block", PROTOCOL, OPEN_BLOCK, settings()),
)  # fmt: skip

STATES = (
    connection("5.1 DATA on an idle stream", PROTOCOL, frame(DATA, 0, IDLE, b"x")),
    connection("5.1 HEADERS on an idle stream", PROTOCOL, head(IDLE)),
    connection("5.1 RST_STREAM on an idle stream", PROTOCOL, frame(RST_STREAM, 0, IDLE, word(8))),
    connection("5.1 WINDOW_UPDATE on an idle stream", PROTOCOL, frame(WINDOW_UPDATE, 0, IDLE, word(1))),
    connection("5.1 DATA after END_STREAM", CLOSED, OVER, frame(DATA, 0, 1, b"x")),
    connection("5.1 HEADERS after END_STREAM", CLOSED, OVER, head()),
    connection("5.1 trailers twice", CLOSED, OVER, trailers()),
    connection("5.1.1 DATA on an even stream", PROTOCOL, frame(DATA, 0, 2, b"x")),
    connection("5.1.1 HEADERS on an even stream", PROTOCOL, head(2)),
    stream("5.3.1 HEADERS that depend on themselves", PROTOCOL,
           frame(HEADERS, END_HEADERS | PRIORITY_FLAG, 1, word(1) + b"\0" + PLAIN_HEAD)),
    stream("5.3.1 PRIORITY that depends on itself", PROTOCOL, frame(PRIORITY, 0, 1, word(1) + b"\0")),
)  # fmt: skip

TYPES = (
    connection("6.1 DATA on stream 0", PROTOCOL, frame(DATA, 0, 0, b"x")),
    connection("6.1 DATA with as much padding as payload", PROTOCOL, head(), frame(DATA, PADDED, 1, b"\x03abc"[:3])),
    connection("6.1 padded DATA without pad length", SIZE, head(), frame(DATA, PADDED, 1)),
    stream("6.1 DATA before HEADERS", PROTOCOL, frame(DATA, 0, 1, message(b"x"))),
    stream("6.1 the last DATA before HEADERS", PROTOCOL, frame(DATA, END_STREAM, 1, message(b"x"))),
    connection("6.2 HEADERS on stream 0", PROTOCOL, head(0)),
    connection("6.2 HEADERS with as much padding as payload", PROTOCOL, frame(HEADERS, END_HEADERS | PADDED, 1, b"\x02\x88")),
    connection("6.2 padded HEADERS without pad length", SIZE, frame(HEADERS, END_HEADERS | PADDED, 1)),
    connection("6.2 HEADERS too short for their priority", SIZE, frame(HEADERS, END_HEADERS | PRIORITY_FLAG, 1, b"\0\0\0")),
    connection("6.3 PRIORITY on stream 0", PROTOCOL, frame(PRIORITY, 0, 0, bytes(5))),
    stream("6.3 PRIORITY of four bytes", SIZE, frame(PRIORITY, 0, 1, bytes(4))),
    connection("6.4 RST_STREAM on stream 0", PROTOCOL, frame(RST_STREAM, 0, 0, word(8))),
    connection("6.4 RST_STREAM of three bytes", SIZE, frame(RST_STREAM, 0, 1, bytes(3))),
    connection("6.4 RST_STREAM of five bytes", SIZE, frame(RST_STREAM, 0, 1, bytes(5))),
    connection("6.5 SETTINGS on a stream", PROTOCOL, frame(SETTINGS, 0, 1)),
    connection("6.5 SETTINGS with ACK and a payload", SIZE, frame(SETTINGS, ACK, 0, bytes(6))),
    connection("6.5 SETTINGS of five bytes", SIZE, frame(SETTINGS, 0, 0, bytes(5))),
    connection("6.5.2 ENABLE_PUSH is 1", PROTOCOL, settings((2, 1))),
    connection("6.5.2 ENABLE_PUSH is 2", PROTOCOL, settings((2, 2))),
    connection("6.5.2 INITIAL_WINDOW_SIZE above 2^31-1", FLOW, settings((4, 2**31))),
    connection("6.5.2 MAX_FRAME_SIZE below 2^14", PROTOCOL, settings((5, 16_383))),
    connection("6.5.2 MAX_FRAME_SIZE above 2^24-1", PROTOCOL, settings((5, 2**24))),
    connection("6.6 PUSH_PROMISE though push is off", PROTOCOL, frame(PUSH_PROMISE, END_HEADERS, 1, word(2) + PLAIN_HEAD)),
    connection("6.7 PING on a stream", PROTOCOL, frame(PING, 0, 1, bytes(8))),
    connection("6.7 PING of seven bytes", SIZE, frame(PING, 0, 0, bytes(7))),
    connection("6.7 PING of nine bytes", SIZE, frame(PING, 0, 0, bytes(9))),
    connection("6.8 GOAWAY on a stream", PROTOCOL, frame(GOAWAY, 0, 1, bytes(8))),
    connection("6.8 GOAWAY of seven bytes", SIZE, frame(GOAWAY, 0, 0, bytes(7))),
    connection("6.8 a second GOAWAY with a higher stream", PROTOCOL,
               frame(GOAWAY, 0, 0, word(3) + word(0)), frame(GOAWAY, 0, 0, word(5) + word(0))),
    connection("6.9 WINDOW_UPDATE of three bytes", SIZE, frame(WINDOW_UPDATE, 0, 0, bytes(3))),
    connection("6.9 WINDOW_UPDATE by 0 for the connection", PROTOCOL, frame(WINDOW_UPDATE, 0, 0, word(0))),
    stream("6.9 WINDOW_UPDATE by 0 for a stream", PROTOCOL, frame(WINDOW_UPDATE, 0, 1, word(0))),
    connection("6.9.1 the connection's window above 2^31-1", FLOW, frame(WINDOW_UPDATE, 0, 0, word(2**31 - 1))),
    stream("6.9.1 a stream's window above 2^31-1", FLOW, frame(WINDOW_UPDATE, 0, 1, word(2**31 - 1))),
    connection("6.9.2 SETTINGS put a stream's window above 2^31-1", FLOW,
               frame(WINDOW_UPDATE, 0, 1, word(2**30)), settings((4, 2**31 - 1))),
    stream("6.9.1 DATA above the stream's window", FLOW, head(), frame(DATA, 0, 1, bytes(16_384)) * 3),
    connection("6.10 CONTINUATION without a header block", PROTOCOL, frame(CONTINUATION, END_HEADERS, 1, PLAIN_HEAD)),
    connection("6.10 CONTINUATION after a whole block", PROTOCOL, head(), frame(CONTINUATION, END_HEADERS, 1, PLAIN_OK)),
    connection("6.10 CONTINUATION of another stream", PROTOCOL, OPEN_BLOCK, frame(CONTINUATION, END_HEADERS, 3, PLAIN_OK)),
    connection("6.10 CONTINUATION on stream 0", PROTOCOL, OPEN_BLOCK, frame(CONTINUATION, END_HEADERS, 0, PLAIN_OK)),
    connection("6.10 empty CONTINUATION for ever", CALM, OPEN_BLOCK, frame(CONTINUATION, 0, 1) * 300),
    connection("6.10 a header block without end", CALM, OPEN_BLOCK, frame(CONTINUATION, 0, 1, bytes(16_384)) * 9),
)  # fmt: skip

RESPONSES = (
    stream("8.1 trailers that do not end the stream", PROTOCOL, head(), frame(HEADERS, END_HEADERS, 1, PLAIN_OK)),
    stream("8.1 an interim answer ends the stream", PROTOCOL, last((b":status", b"100"))),
    stream("8.1 an interim answer switches protocols", PROTOCOL, answer((b":status", b"101"))),
    stream("8.1.1 the body is shorter than declared", PROTOCOL,
           answer(STATUS, TYPE, (b"content-length", b"9")), frame(DATA, 0, 1, message(b"ab")), trailers()),
    stream("8.1.1 the body is longer than declared", PROTOCOL,
           answer(STATUS, TYPE, (b"content-length", b"3")), frame(DATA, 0, 1, message(b"ab")), trailers()),
    stream("8.1.1 the declared length is no number", PROTOCOL, answer(STATUS, TYPE, (b"content-length", b"+3"))),
    stream("8.1.1 two declared lengths disagree", PROTOCOL,
           answer(STATUS, TYPE, (b"content-length", b"3"), (b"content-length", b"4"))),
    stream("8.2 an upper-case field name", PROTOCOL, answer(STATUS, TYPE, (b"X-Upper", b"1"))),
    stream("8.2 an upper-case field name in trailers", PROTOCOL, head(), last((b"Grpc-Status", b"0"))),
    stream("8.2.1 an empty field name", PROTOCOL, answer(STATUS, TYPE, (b"", b"1"))),
    stream("8.2.1 a space in a field name", PROTOCOL, answer(STATUS, TYPE, (b"a b", b"1"))),
    stream("8.2.1 a colon within a field name", PROTOCOL, answer(STATUS, TYPE, (b"a:b", b"1"))),
    stream("8.2.1 a field name beyond ASCII", PROTOCOL, answer(STATUS, TYPE, (b"\xc3\xa4", b"1"))),
    stream("8.2.1 NUL in a value", PROTOCOL, answer(STATUS, TYPE, (b"x", b"a\0b"))),
    stream("8.2.1 a line end in a value", PROTOCOL, answer(STATUS, TYPE, (b"x", b"a\r\nb: c"))),
    stream("8.2.1 a line end in a trailer's value", PROTOCOL, head(), last((b"grpc-status", b"0\n"))),
    stream("8.2.2 the field connection", PROTOCOL, answer(STATUS, TYPE, (b"connection", b"close"))),
    stream("8.2.2 the field transfer-encoding", PROTOCOL, answer(STATUS, TYPE, (b"transfer-encoding", b"chunked"))),
    stream("8.2.2 the field keep-alive", PROTOCOL, answer(STATUS, TYPE, (b"keep-alive", b"5"))),
    stream("8.2.2 the field upgrade", PROTOCOL, answer(STATUS, TYPE, (b"upgrade", b"h2c"))),
    stream("8.3 an unknown pseudo-field", PROTOCOL, answer(STATUS, (b":test", b"1"), TYPE)),
    stream("8.3 a pseudo-field of requests", PROTOCOL, answer(STATUS, (b":path", b"/"), TYPE)),
    stream("8.3 a pseudo-field after a field", PROTOCOL, answer(TYPE, STATUS)),
    stream("8.3 a pseudo-field in trailers", PROTOCOL, head(), last((b":status", b"200"))),
    stream("8.3.2 no status", PROTOCOL, answer(TYPE)),
    stream("8.3.2 no fields at all", PROTOCOL, frame(HEADERS, END_HEADERS, 1)),
    stream("8.3.2 two statuses", PROTOCOL, answer(STATUS, STATUS, TYPE)),
    stream("8.3.2 a status of letters", PROTOCOL, answer((b":status", b"abc"), TYPE)),
    stream("8.3.2 a status of four digits", PROTOCOL, answer((b":status", b"2000"), TYPE)),
    stream("8.3.2 an empty status", PROTOCOL, answer((b":status", b""), TYPE)),
)  # fmt: skip

NOISE = (
    connection("10.5 PING for ever", CALM, frame(PING, 0, 0, bytes(8)) * 1_001),
    connection("10.5 SETTINGS for ever", CALM, settings() * 1_001),
    connection("10.5 PRIORITY for ever", CALM, frame(PRIORITY, 0, 3, word(1) + b"\0") * 1_001),
    connection("10.5 empty DATA for ever", CALM, head(), frame(DATA, 0, 1) * 1_001),
    connection("10.5 unknown frames for ever", CALM, frame(UNKNOWN_TYPE, 0, 0) * 1_001),
    connection("10.5 interim answers for ever", CALM, answer((b":status", b"103")) * 1_001),
    connection("10.5 RST_STREAM on closed streams for ever", CALM, OVER, frame(RST_STREAM, 0, 1, word(0)) * 1_001),
    connection("10.5.1 a header list above the limit", CALM,
               frame(HEADERS, 0, 1, PLAIN_HEAD + plain_block((b"x", bytes(100))) * 120),
               *[frame(CONTINUATION, 0, 1, plain_block((b"x", b"y" * 100)) * 150)] * 4,
               frame(CONTINUATION, END_HEADERS, 1)),
)  # fmt: skip

CASES = (*GREETING, *FRAMES, *STATES, *TYPES, *RESPONSES, *NOISE)
