"""The frame machine keeps the state of a connection: streams, refusals, ends."""

from __future__ import annotations

import struct

import h2.events
import pytest
from h2.connection import H2Connection
from hpack import Encoder, HeaderTuple
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.h2.codes import MAX_STREAM_ID
from sglr_dataplane.engine.h2.errors import (
    CancelledStreamError,
    LostConnectionError,
    ResetStreamError,
    UnprocessedStreamError,
)
from sglr_dataplane.engine.h2.events import GoingAway, PingAnswered, SettingsChanged
from sglr_dataplane.engine.h2.headers import HeaderReader
from sglr_dataplane.engine.h2.machine import Machine
from sglr_dataplane.engine.h2.state import Limits
from support.h2peer import (
    ACK,
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    REQUEST,
    RST_STREAM,
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


def test_the_preface_is_what_a_server_expects() -> None:
    """A server of the h2 package reads preface, settings and windows."""
    server = h2_server()
    server.initiate_connection()

    events = server.receive_data(Machine(Limits()).take_output())

    changed = [event for event in events if isinstance(event, h2.events.RemoteSettingsChanged)]
    assert {int(k): v.new_value for k, v in changed[0].changed_settings.items()} == {
        2: 0,
        4: 32_768,
        6: 65_536,
    }
    updates = [event for event in events if isinstance(event, h2.events.WindowUpdated)]
    assert [(event.stream_id, event.delta) for event in updates] == [(0, 16_777_216 - 65_535)]


def test_nothing_can_be_opened_before_the_peers_settings() -> None:
    """The first SETTINGS say how many streams are allowed."""
    machine = a_machine(settled=False)
    assert not machine.can_open

    events = machine.receive(settings((3, 1)))

    assert isinstance(events[0], SettingsChanged)
    assert machine.can_open
    assert frame(4, ACK, 0) in machine.take_output()


def test_the_number_of_streams_keeps_to_the_peers_limit() -> None:
    """MAX_CONCURRENT_STREAMS counts open streams; an ended one makes room."""
    machine = a_machine(settled=False)
    machine.receive(settings((3, 2)))
    machine.open(REQUEST, b"body")
    machine.open(REQUEST, b"body")
    assert not machine.can_open

    machine.receive(head() + trailers())
    assert machine.can_open
    machine.receive(settings((3, 0)))
    assert not machine.can_open


def test_stream_ids_end() -> None:
    """The last stream id is used, and none after it."""
    machine = a_machine()
    machine._next_id = MAX_STREAM_ID
    stream = machine.open(REQUEST, b"body")

    assert stream.id == 2**31 - 1
    assert not machine.takes_streams


def test_a_stream_has_one_event_a_read() -> None:
    """All that one read brings a stream is one piece of news."""
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")

    events = machine.receive(head() + frame(DATA, 0, 1, ONE) * 5)
    assert events == [stream]
    assert machine.receive(frame(DATA, 0, 1, ONE)) == [stream]
    assert machine.receive(b"") == []
    assert machine.take_payloads(stream) == [ONE] * 6


def test_an_answer_before_the_request_is_sent_stops_the_request() -> None:
    """8.1: the rest of a body nobody wants is not sent, and the peer is told so."""
    machine = a_machine()
    stream = machine.open(REQUEST, bytes(200_000))
    machine.take_output()

    machine.receive(head() + trailers())
    assert stream.ended
    assert machine.take_output() == frame(RST_STREAM, 0, 1, word(0))

    machine.receive(frame(WINDOW_UPDATE, 0, 0, word(100_000)))
    machine.receive(frame(WINDOW_UPDATE, 0, 1, word(100_000)))
    assert machine.take_output() == b""


def test_a_ping_is_answered_and_an_answer_is_news() -> None:
    """6.7: the answer has the same eight bytes."""
    machine = a_machine()

    assert machine.receive(frame(PING, 0, 0, b"12345678")) == []
    assert machine.take_output() == frame(PING, ACK, 0, b"12345678")
    machine.ping(b"abcdefgh")
    assert machine.take_output() == frame(PING, 0, 0, b"abcdefgh")
    assert machine.receive(frame(PING, ACK, 0, b"abcdefgh")) == [PingAnswered(b"abcdefgh")]


def test_refused_streams_are_known_to_be_unprocessed() -> None:
    """REFUSED_STREAM before any answer is a promise; after one it is an error like all others."""
    machine = a_machine()
    refused, answered = machine.open(REQUEST, b"body"), machine.open(REQUEST, b"body")
    machine.receive(head(3) + frame(RST_STREAM, 0, 1, word(7)) + frame(RST_STREAM, 0, 3, word(7)))

    assert isinstance(refused.failure, UnprocessedStreamError)
    assert isinstance(answered.failure, ResetStreamError)
    assert answered.failure.code == 7


@pytest.mark.parametrize("code", [0, 2, 8, 11, 99])
def test_a_reset_ends_one_stream_with_its_code(code: int) -> None:
    """RST_STREAM keeps what had arrived, and touches no other stream."""
    machine = a_machine()
    first, second = machine.open(REQUEST, b"body"), machine.open(REQUEST, b"body")
    machine.receive(head() + frame(DATA, 0, 1, ONE) + frame(RST_STREAM, 0, 1, word(code)))

    assert isinstance(first.failure, ResetStreamError)
    assert first.failure.code == code
    assert machine.take_payloads(first) == [ONE]
    assert second.failure is None


def test_goaway_fails_only_what_was_not_processed() -> None:
    """6.8: streams up to the last id go on, those above it can be sent again."""
    machine = a_machine()
    streams = [machine.open(REQUEST, b"body") for _ in range(3)]

    events = machine.receive(frame(GOAWAY, 0, 0, word(3) + word(11) + b"too_many_pings"))

    assert events[-1] == GoingAway(3, 11, "too_many_pings")
    assert [stream.failure is None for stream in streams] == [True, True, False]
    assert isinstance(streams[2].failure, UnprocessedStreamError)
    assert not machine.can_open
    machine.receive(head(1) + trailers(1))
    assert streams[0].ended


def test_a_second_goaway_may_name_a_lower_stream() -> None:
    """6.8: a graceful shutdown names 2^31-1 first and the last stream later."""
    machine = a_machine()
    first, second = machine.open(REQUEST, b"body"), machine.open(REQUEST, b"body")
    machine.receive(frame(GOAWAY, 0, 0, word(2**31 - 1) + word(0)))
    assert second.failure is None

    machine.receive(frame(GOAWAY, 0, 0, word(1) + word(0)))

    assert isinstance(second.failure, UnprocessedStreamError)
    assert first.failure is None


def test_a_cancel_is_output_at_once_and_later_frames_mean_nothing() -> None:
    """5.1: what was under way on a stream that was reset here is skipped, HPACK included."""
    machine, server = a_pair()
    first, second = machine.open(REQUEST, b"body"), machine.open(REQUEST, b"body")
    server.receive_data(machine.take_output())
    # The table entry that the first answer makes is what the second one refers to.
    server.send_headers(first.id, [(b":status", b"200"), (b"x-long-name", b"x-long-value")])
    server.send_data(first.id, ONE)
    server.send_headers(second.id, [(b":status", b"200"), (b"x-long-name", b"x-long-value")])
    machine.cancel(first)
    output = machine.take_output()

    events = machine.receive(server.data_to_send())

    assert output == frame(RST_STREAM, 0, 1, word(8))
    assert isinstance(first.failure, CancelledStreamError)
    assert first.payloads == []
    assert events == [second]
    assert (b"x-long-name", b"x-long-value") in (second.head or ())
    machine.cancel(first)
    assert machine.take_output() == b""


def test_headers_of_a_stream_ended_long_ago_are_skipped() -> None:
    """Only the last few hundred ended streams are remembered; older ones cannot be told apart."""
    machine = a_machine()
    for number in range(300):
        machine.open(REQUEST, b"body")
        machine.receive(head(2 * number + 1) + trailers(2 * number + 1))

    machine.receive(head(1))

    assert machine.fault is None
    assert len(machine._finished) == 256


def test_a_lost_connection_fails_all_streams() -> None:
    """Whether the requests were processed is unknown."""
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")
    machine.receive(head() + frame(DATA, 0, 1, ONE)[:7])

    assert machine.lose("The peer closed the connection.") == [stream]
    assert isinstance(stream.failure, LostConnectionError)
    assert not machine.can_open
    assert machine.lose("again") == []


def test_closing_says_goodbye() -> None:
    """GOAWAY without error, and every stream fails."""
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")
    machine.take_output()

    assert machine.close() == [stream]
    assert machine.take_output() == frame(GOAWAY, 0, 0, bytes(8))


def test_a_smaller_header_table_is_acknowledged_once() -> None:
    """RFC 7541, 4.2: the next block opens with a table size that fits; a decoder insists on it."""
    server = h2_server({1: 64})
    server.initiate_connection()
    machine = Machine(Limits())
    server.receive_data(machine.take_output())
    machine.receive(server.data_to_send())
    machine.open(REQUEST, b"body")
    machine.open(REQUEST, b"body")

    events = server.receive_data(machine.take_output())

    requests = [event for event in events if isinstance(event, h2.events.RequestReceived)]
    assert [request.stream_id for request in requests] == [1, 3]
    machine.open(REQUEST, b"body")
    assert machine.take_output()[9:].startswith(REQUEST)


def test_a_request_block_above_the_frame_size_continues() -> None:
    """6.10: a block of 40,000 bytes is HEADERS and two CONTINUATION frames."""
    machine, server = a_pair()
    fields = plain_block(*[(b"x", b"y" * 100)] * 380)
    machine.open(REQUEST + fields, b"body")
    output = machine.take_output()

    assert [size for size, _ in frames_of(output)] == [
        16_384,
        16_384,
        len(REQUEST + fields) - 32_768,
        4,
    ]
    assert [kind for _, kind in frames_of(output)] == [HEADERS, CONTINUATION, CONTINUATION, DATA]
    assert server is not None


def frames_of(data: bytes) -> list[tuple[int, int]]:
    """Return size and type of each frame of *data*."""
    found = []
    while data:
        size, kind = struct.unpack(">IB", b"\0" + data[:4])
        found.append((size, kind))
        data = data[9 + size :]
    return found


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"x", b"y", b"content-type"]),
            st.sampled_from([b"a", b"b", b"c" * 120]),
            st.booleans(),
        ),
        max_size=30,
    ),
    st.sampled_from([0, 64, 200, 4_096]),
)
def test_a_block_means_what_its_table_says_however_often_it_came(
    fields: list[tuple[bytes, bytes, bool]], size: int
) -> None:
    """Blocks repeat while the table grows, turns over and shrinks: none is read from the past."""
    reader, encoder = HeaderReader(65_536), Encoder()
    for number, (name, value, secret) in enumerate(fields):
        if number == len(fields) // 2:
            encoder.header_table_size = size
        block = encoder.encode([HeaderTuple(b":status", b"200"), (name, value, secret)])

        assert reader.read(block) == ((b":status", b"200"), (name, value))


def test_a_block_that_leaves_the_table_alone_is_remembered() -> None:
    """A second answer costs no decoding; a changed table forgets it."""
    reader, encoder = HeaderReader(65_536), Encoder()
    encoder.encode([(b"x", b"a")])
    reader.read(Encoder().encode([(b"x", b"a")]))
    again = encoder.encode([(b"x", b"a")])
    assert reader.read(again) is reader.read(again)

    reader.read(encoder.encode([(b"x", b"b")]))
    assert reader.read(again) == ((b"x", b"b"),)


def test_an_equal_entry_that_turns_the_table_over_is_noticed() -> None:
    """RFC 7541, 4.4: with room for two entries, a third one of the same field moves the others."""
    reader = HeaderReader(65_536)
    room_for_two = b"\x3f" + bytes((68 - 31,))
    insert_a, insert_b, oldest = b"\x40\x01a\x011", b"\x40\x01b\x011", b"\xbf"
    reader.read(room_for_two + insert_a)
    reader.read(insert_b)
    assert reader.read(oldest) == ((b"a", b"1"),)

    reader.read(insert_b)

    assert reader.read(oldest) == ((b"b", b"1"),)
