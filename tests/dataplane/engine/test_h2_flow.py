"""Flow control: what may be sent, and who is stopped when nobody reads."""

from __future__ import annotations

import h2.events
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.h2.machine import Machine
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.engine.h2.stream import Stream
from support.h2peer import (
    DATA,
    REQUEST,
    RST_STREAM,
    WINDOW_UPDATE,
    frame,
    h2_server,
    head,
    settings,
    trailers,
    word,
)

WINDOW = Limits().stream_window


def a_machine(*pairs: tuple[int, int], limits: Limits | None = None) -> Machine:
    """Return a machine whose peer has sent SETTINGS with *pairs*; its output is taken."""
    machine = Machine(limits or Limits())
    machine.receive(settings(*pairs))
    machine.take_output()
    return machine


def sent(machine: Machine) -> dict[int, int]:
    """Return how many bytes of DATA each stream got in the machine's output, and take it."""
    output = machine.take_output()
    sizes: dict[int, int] = {}
    while output:
        size, kind = int.from_bytes(output[:3], "big"), output[3]
        if kind == DATA:
            stream_id = int.from_bytes(output[5:9], "big")
            sizes[stream_id] = sizes.get(stream_id, 0) + size
        output = output[9 + size :]
    return sizes


@given(
    bodies=st.lists(st.integers(1, 300_000), min_size=1, max_size=4),
    window=st.integers(0, 200_000),
    frame_size=st.integers(16_384, 60_000),
    credits_given=st.lists(st.integers(1, 90_000), max_size=20),
)
def test_a_body_is_sent_whole_within_the_peers_windows(
    bodies: list[int], window: int, frame_size: int, credits_given: list[int]
) -> None:
    """A server of the h2 package, which checks every window, gets each body whole."""
    server = h2_server({4: window, 5: frame_size})
    server.initiate_connection()
    machine = Machine(Limits())
    server.receive_data(machine.take_output())
    machine.receive(server.data_to_send())
    contents = [bytes((number,)) * size for number, size in enumerate(bodies, 1)]
    for content in contents:
        machine.open(REQUEST, content)
    got: dict[int, bytes] = {}
    for credit in [*credits_given, *[100_000] * 40]:
        for event in server.receive_data(machine.take_output()):
            if isinstance(event, h2.events.DataReceived):
                got[event.stream_id] = got.get(event.stream_id, b"") + event.data
        for stream_id in list(machine.streams):
            server.increment_flow_control_window(credit, stream_id)
        server.increment_flow_control_window(credit)
        machine.receive(server.data_to_send())

    assert machine.fault is None
    assert [got[2 * number + 1] for number in range(len(bodies))] == contents


def test_a_prompt_of_400000_tokens_waits_for_the_peers_windows() -> None:
    """1.2 MB go out as the peer takes them: no byte more than its windows allow."""
    machine = a_machine()
    machine.open(REQUEST, bytes(1_200_000))

    assert sent(machine) == {1: 65_535}
    machine.receive(frame(WINDOW_UPDATE, 0, 0, word(2_000_000)))
    assert sent(machine) == {}
    machine.receive(frame(WINDOW_UPDATE, 0, 1, word(1_000_000)))
    assert sent(machine) == {1: 1_000_000}
    machine.receive(frame(WINDOW_UPDATE, 0, 1, word(1_000_000)))
    assert sent(machine) == {1: 134_465}


def test_streams_share_the_connections_window() -> None:
    """A small body is not behind a large one: they take turns, a frame each."""
    machine = a_machine()
    machine.open(REQUEST, bytes(1_000_000))
    machine.open(REQUEST, bytes(10_000))
    machine.take_output()

    machine.receive(frame(WINDOW_UPDATE, 0, 0, word(40_000)))
    machine.receive(frame(WINDOW_UPDATE, 0, 1, word(900_000)))

    assert sent(machine)[3] == 10_000


def test_a_smaller_initial_window_may_leave_less_than_nothing() -> None:
    """6.9.2: a window below 0 must be filled up before anything is sent."""
    machine = a_machine()
    stream = machine.open(REQUEST, bytes(100_000))
    machine.take_output()
    machine.receive(settings((4, 10_000)) + frame(WINDOW_UPDATE, 0, 0, word(100_000)))

    assert stream.send_window == 10_000 - 65_535
    machine.receive(frame(WINDOW_UPDATE, 0, 1, word(55_535)))
    assert sent(machine) == {}
    machine.receive(frame(WINDOW_UPDATE, 0, 1, word(1)))
    assert sent(machine) == {1: 1}


def test_a_larger_initial_window_lets_open_streams_send() -> None:
    """6.9.2: SETTINGS change the windows of open streams, too."""
    machine = a_machine((4, 0))
    machine.open(REQUEST, bytes(1_000))
    assert sent(machine) == {}

    machine.receive(settings((4, 600)))

    assert sent(machine) == {1: 600}


def test_bodies_wait_while_the_socket_is_full() -> None:
    """Control frames still go out."""
    machine = a_machine()
    machine.hold(held=True)
    machine.open(REQUEST, bytes(100))
    machine.ping(b"12345678")
    assert b"12345678" in machine.take_output()

    machine.hold(held=False)

    assert sent(machine) == {1: 100}


def test_a_stream_that_nobody_reads_stops_the_peer_and_no_other_stream() -> None:
    """A47: one paused stream holds its window's worth; the connection's window is given back."""
    limits = Limits(connection_window=100_000)
    machine = a_machine(limits=limits)
    paused, read = machine.open(REQUEST, b"body"), machine.open(REQUEST, b"body")
    machine.take_output()
    machine.receive(head(1) + head(3))
    machine.receive(frame(DATA, 0, 1, bytes(16_384)) * 2)
    got = 0

    for _ in range(500):
        machine.receive(frame(DATA, 0, 3, bytes(16_384)))
        got += sum(map(len, machine.take_payloads(read)))

    assert machine.fault is None
    assert got == 500 * 16_384
    assert paused.room == 0
    assert sum(map(len, paused.payloads)) == WINDOW
    output = machine.take_output()
    assert frame(WINDOW_UPDATE, 0, 1)[3:9] not in output
    assert output.count(frame(WINDOW_UPDATE, 0, 0, word(0))[:9]) >= 100


def test_a_stream_that_is_read_again_lets_the_peer_go_on() -> None:
    """Taking the payloads gives the whole window back."""
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")
    machine.take_output()
    machine.receive(head() + frame(DATA, 0, 1, bytes(16_384)) * 2)

    assert machine.take_output() == b""
    assert len(machine.take_payloads(stream)) == 2
    assert machine.take_output() == frame(WINDOW_UPDATE, 0, 1, word(WINDOW))
    assert stream.room == WINDOW


def test_small_reads_are_not_given_back_one_by_one() -> None:
    """Below half a window no WINDOW_UPDATE is sent: a token costs none."""
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")
    machine.take_output()
    machine.receive(head())
    updates = 0

    for _ in range(1_000):
        machine.receive(frame(DATA, 0, 1, bytes(50)))
        machine.take_payloads(stream)
        updates += bool(machine.take_output())

    assert updates == 50_000 // 16_384


def test_padding_counts() -> None:
    """6.9.1: the whole payload of DATA counts, pad length and padding included."""
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")
    machine.receive(head() + frame(DATA, 0x8, 1, b"\x63" + b"x" + bytes(99)))

    assert machine.take_payloads(stream) == [b"x"]
    assert stream.room == WINDOW - 101


def test_an_ended_stream_gets_no_room() -> None:
    """Nobody credits a stream that is over."""
    machine = a_machine()
    stream = machine.open(REQUEST, b"body")
    machine.take_output()
    machine.receive(head() + frame(DATA, 0, 1, bytes(16_384)) * 2 + trailers())

    assert len(machine.take_payloads(stream)) == 2
    assert machine.take_output() == b""


def test_data_of_a_cancelled_stream_is_given_back_to_the_connection() -> None:
    """5.1: DATA that was under way still counts against the connection's window."""
    machine = a_machine(limits=Limits(connection_window=100_000))
    stream = machine.open(REQUEST, b"body")
    machine.receive(head())
    machine.cancel(stream)
    assert frame(RST_STREAM, 0, 1, word(8)) in machine.take_output()

    machine.receive(frame(DATA, 0, 1, bytes(16_384)) * 2)
    assert machine._room == 100_000 - 2 * 16_384
    machine.receive(frame(DATA, 0, 1, bytes(16_384)) * 2)

    assert machine.take_output() == frame(WINDOW_UPDATE, 0, 0, word(4 * 16_384))


def test_an_event_is_a_stream_or_news_of_the_connection() -> None:
    """A window alone is no news to anybody."""
    machine = a_machine()
    machine.open(REQUEST, b"body")

    events = machine.receive(frame(WINDOW_UPDATE, 0, 1, word(1)) + head())

    assert [isinstance(event, Stream) for event in events] == [True]
