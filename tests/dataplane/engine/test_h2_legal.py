"""The frame machine reads every legal conversation, however its bytes are cut, and survives the rest."""

from __future__ import annotations

import pytest
from h2.connection import H2Connection
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.h2.machine import Machine
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.engine.h2.stream import Stream
from support.h2peer import (
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
    REQUEST,
    WINDOW_UPDATE,
    frame,
    h2_server,
    head,
    message,
    plain_block,
    settings,
    trailers,
    word,
)

ONE, TWO = message(b"one"), message(b"two")


def a_machine(*, settled: bool = True, limits: Limits | None = None) -> Machine:
    """Return a machine, after the peer's SETTINGS unless told otherwise; its output is taken."""
    machine = Machine(limits or Limits())
    if settled:
        machine.receive(settings())
        machine.take_output()
    return machine


def a_pair() -> tuple[Machine, H2Connection]:
    """Return a machine and a server of the h2 package that have greeted each other."""
    server = h2_server()
    server.initiate_connection()
    machine = Machine(Limits())
    server.receive_data(machine.take_output())
    machine.receive(server.data_to_send())
    server.receive_data(machine.take_output())
    return machine, server


LEGAL: dict[str, bytes] = {
    "plain frames": head() + frame(DATA, 0, 1, ONE) + frame(DATA, 0, 1, TWO) + trailers(),
    "a message over two frames": head()
    + frame(DATA, 0, 1, ONE[:3])
    + frame(DATA, 0, 1, ONE[3:] + TWO)
    + trailers(),
    "padded DATA": head()
    + frame(DATA, PADDED, 1, b"\x04" + ONE + bytes(4))
    + frame(DATA, PADDED, 1, b"\0" + TWO)
    + trailers(),
    "an empty DATA between": head()
    + frame(DATA, 0, 1, ONE)
    + frame(DATA, 0, 1)
    + frame(DATA, PADDED, 1, b"\x02\0\0")
    + frame(DATA, 0, 1, TWO)
    + trailers(),
    "padded HEADERS with priority": frame(
        HEADERS,
        END_HEADERS | PADDED | PRIORITY_FLAG,
        1,
        b"\x03" + word(0) + b"\x10" + PLAIN_HEAD + bytes(3),
    )
    + frame(DATA, 0, 1, ONE + TWO)
    + trailers(),
    "CONTINUATION": frame(HEADERS, 0, 1, PLAIN_HEAD[:4])
    + frame(CONTINUATION, 0, 1, PLAIN_HEAD[4:9])
    + frame(CONTINUATION, 0, 1)
    + frame(CONTINUATION, END_HEADERS, 1, PLAIN_HEAD[9:])
    + frame(DATA, 0, 1, ONE + TWO)
    + frame(HEADERS, END_STREAM, 1, PLAIN_OK[:2])
    + frame(CONTINUATION, END_HEADERS, 1, PLAIN_OK[2:]),
    "an interim answer first": frame(HEADERS, END_HEADERS, 1, plain_block((b":status", b"103")))
    + head()
    + frame(DATA, 0, 1, ONE + TWO)
    + trailers(),
    "a declared length": frame(
        HEADERS,
        END_HEADERS,
        1,
        PLAIN_HEAD + plain_block((b"content-length", str(len(ONE + TWO)).encode())),
    )
    + frame(DATA, 0, 1, ONE)
    + frame(DATA, 0, 1, TWO)
    + trailers(),
    "frames of the connection in between": settings((3, 100), (6, 9_000), (0xFACE, 1))
    + head()
    + frame(PING, 0, 0, b"12345678")
    + frame(DATA, 0, 1, ONE)
    + frame(WINDOW_UPDATE, 0, 0, word(9))
    + frame(WINDOW_UPDATE, 0, 1, word(9))
    + frame(PRIORITY, 0, 1, word(0) + b"\x01")
    + frame(PRIORITY, 0, 99, word(0) + b"\x01")
    + frame(0xAA, 0xFF, 1, b"unknown")
    + frame(GOAWAY, 0, 0, word(1) + word(0) + b"bye")
    + frame(DATA, 0, 1, TWO)
    + trailers(),
    "undefined flags and the reserved bit": frame(HEADERS, END_HEADERS | 0xD0, 1, PLAIN_HEAD)
    + frame(DATA, 0xF0 & ~PADDED, 1, ONE)
    + frame(DATA, 0, 0x80000001, TWO)
    + frame(WINDOW_UPDATE, 0, 1, word(0x80000001))
    + trailers(),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_answer_is_read_however_it_is_cut(name: str) -> None:
    """Cut in two anywhere, or into single bytes, an answer is the same."""
    data = LEGAL[name]
    cuts = [[data[:at], data[at:]] for at in range(len(data))]
    cuts.append([data[at : at + 1] for at in range(len(data))])
    for pieces in cuts:
        machine = a_machine()
        stream = machine.open(REQUEST, b"body")
        for piece in pieces:
            machine.receive(piece)

        assert machine.fault is None
        assert stream.failure is None
        assert stream.ended
        assert b"".join(machine.take_payloads(stream)) == ONE + TWO
        assert dict(stream.trailers) == {b"grpc-status": b"0"}
        assert dict(stream.head or ())[b":status"] == b"200"
        assert machine.streams == {}


@given(
    bodies=st.lists(st.lists(st.binary(max_size=300), max_size=6), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 400), max_size=60),
    padding=st.integers(0, 255),
)
def test_answers_on_many_streams_are_read_however_they_are_cut(
    bodies: list[list[bytes]], cuts: list[int], padding: int
) -> None:
    """A server of the h2 package and this machine agree, whatever a read holds."""
    machine, server = a_pair()
    streams = [machine.open(REQUEST, b"body") for _ in bodies]
    server.receive_data(machine.take_output())
    for stream in streams:
        server.send_headers(stream.id, [(b":status", b"200"), (b"n", b"%d" % stream.id)])
    for turn in range(6):
        for stream, body in zip(streams, bodies, strict=True):
            if turn < len(body):
                pad = padding if turn % 2 else None
                server.send_data(stream.id, body[turn], pad_length=pad)
    for stream in streams:
        server.send_headers(stream.id, [(b"t", b"%d" % stream.id)], end_stream=True)
    data = server.data_to_send()
    got: dict[int, bytes] = {stream.id: b"" for stream in streams}
    for size in [*cuts, len(data)]:
        for event in machine.receive(data[:size]):
            assert isinstance(event, Stream)
            got[event.id] += b"".join(machine.take_payloads(event))
        data = data[size:]

    assert machine.fault is None
    assert got == {s.id: b"".join(body) for s, body in zip(streams, bodies, strict=True)}
    for stream in streams:
        assert stream.ended
        assert dict(stream.head or ())[b"n"] == b"%d" % stream.id
        assert dict(stream.trailers)[b"t"] == b"%d" % stream.id


@given(st.lists(st.binary(max_size=60), max_size=12))
def test_random_bytes_end_in_a_named_error_or_in_waiting(pieces: list[bytes]) -> None:
    """Whatever arrives, the machine says what is wrong or waits; it never raises."""
    machine = a_machine(settled=False)
    for piece in pieces:
        machine.receive(piece)

    assert machine.fault is None or machine.fault.reason.endswith(".")


FRAME = st.builds(
    frame,
    st.integers(0, 10),
    st.integers(0, 255),
    st.sampled_from([0, 1, 2, 3, 5, 2**31]),
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([PLAIN_HEAD, PLAIN_OK, ONE, bytes(4), bytes(5), bytes(6), bytes(8)]),
    ),
)


@given(st.lists(FRAME, max_size=30), st.integers(1, 200))
def test_random_frames_never_break_the_books(frames: list[bytes], step: int) -> None:
    """Whatever frames come, windows, open streams and failures stay consistent."""
    machine = a_machine()
    streams = [machine.open(REQUEST, b"body"), machine.open(REQUEST, b"body")]
    data = b"".join(frames)
    for start in range(0, len(data), step):
        for event in machine.receive(data[start : start + step]):
            assert not isinstance(event, Stream) or event in streams
        machine.take_output()

    for stream in streams:
        is_open = stream.id in machine.streams
        assert is_open == (not stream.ended and stream.failure is None)
        assert 0 <= stream.room <= machine.limits.stream_window
        assert stream.room + sum(map(len, stream.payloads)) <= machine.limits.stream_window
    assert machine.fault is None or not machine.streams
    assert set(machine._live) <= set(machine.streams)


@given(st.data())
def test_a_damaged_conversation_never_hangs_or_raises(data: st.DataObject) -> None:
    """A legal answer with some bytes changed gives an end, an error, or a wait for more."""
    name = data.draw(st.sampled_from(sorted(LEGAL)))
    damaged = bytearray(LEGAL[name])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")

    machine.receive(bytes(damaged))
    machine.lose("The peer closed the connection.")

    assert stream.ended or stream.failure is not None
