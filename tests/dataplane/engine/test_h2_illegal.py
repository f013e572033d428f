"""Every way to break HTTP/2 has its error, and harms nobody else."""

from __future__ import annotations

import pytest

from sglr_dataplane.engine.h2.errors import BrokenConnectionError, BrokenStreamError
from sglr_dataplane.engine.h2.machine import Machine
from sglr_dataplane.engine.h2.state import Limits
from support.h2illegal import CASES, Illegal
from support.h2peer import (
    DATA,
    GOAWAY,
    REQUEST,
    RST_STREAM,
    frame,
    head,
    message,
    settings,
    trailers,
    word,
)


def a_machine(limits: Limits | None = None) -> Machine:
    """Return a machine with two whole requests sent, on streams 1 and 3; nothing arrived yet."""
    machine = Machine(limits or Limits())
    machine.is_settled = True
    machine.open(REQUEST, b"body")
    machine.open(REQUEST, b"body")
    machine.is_settled = False
    machine.take_output()
    return machine


def play(machine: Machine, case: Illegal, step: int) -> bytes:
    """Feed *case* to *machine* in pieces of *step* bytes; return all it says."""
    data = (settings() if case.greets else b"") + case.data
    said = b""
    for start in range(0, len(data), step):
        machine.receive(data[start : start + step])
        said += machine.take_output()
    return said


def test_the_list_is_long_and_its_names_are_unique() -> None:
    """The list covers what h2spec does, and each case can be found by its name."""
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_case_has_its_error(case: Illegal) -> None:
    """The code is RFC 9113's, the peer is told, and only what must end ends."""
    machine = a_machine()
    first, second = machine.streams[1], machine.streams[3]

    said = play(machine, case, step=2**20)

    if case.scope == "connection":
        assert isinstance(machine.fault, BrokenConnectionError)
        assert machine.fault.code == case.code
        assert word(0) + word(case.code) + machine.fault.reason.encode() in said
        assert second.failure is machine.fault
        assert first.ended or first.failure is not None
        assert not machine.streams
    else:
        assert machine.fault is None
        assert isinstance(first.failure, BrokenStreamError)
        assert first.failure.code == case.code
        assert frame(RST_STREAM, 0, 1, word(case.code)) in said
        machine.receive(head(3) + frame(DATA, 0, 3, message(b"well")) + trailers(3))
        assert machine.take_payloads(second) == [message(b"well")]
        assert second.ended


@pytest.mark.parametrize("case", [case for case in CASES if len(case.data) < 5_000], ids=str)
def test_the_error_does_not_depend_on_how_the_bytes_arrive(case: Illegal) -> None:
    """A case that arrives byte by byte has the same error."""
    machine = a_machine()
    first = machine.streams[1]

    play(machine, case, step=1)

    failure = machine.fault if case.scope == "connection" else first.failure
    assert failure is not None
    assert failure.code == case.code


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_follows_an_error(case: Illegal) -> None:
    """After a broken rule no payload reaches the stream, whatever the peer goes on to send."""
    machine = a_machine()
    first = machine.streams[1]
    play(machine, case, step=2**20)
    before = list(first.payloads)

    machine.receive(head() + frame(DATA, 0, 1, message(b"wrong")) + trailers())

    assert first.payloads == before


def test_data_above_the_connections_window_ends_the_connection() -> None:
    """6.9.1: the connection's window counts all streams together."""
    machine = a_machine(Limits(stream_window=70_000, connection_window=100_000))
    machine.receive(settings() + head(1) + head(3))
    quarter = bytes(16_384)

    machine._room = 20_000
    machine.receive(frame(DATA, 0, 1, quarter) + frame(DATA, 0, 3, quarter))

    assert isinstance(machine.fault, BrokenConnectionError)
    assert machine.fault.code == 3
    assert "connection's window" in machine.fault.reason


def test_noise_while_the_socket_takes_nothing_ends_the_connection() -> None:
    """10.5: replies that the peer does not read cannot pile up, however slowly it asks."""
    machine = a_machine()
    machine.receive(settings())
    machine.hold(held=True)

    for _ in range(1_001):
        machine.receive(frame(6, 0, 0, bytes(8)))

    assert machine.fault is not None
    assert machine.fault.code == 11


def test_noise_over_a_long_time_is_no_error() -> None:
    """A server that pings an idle connection for days does nothing wrong."""
    machine = a_machine()
    machine.receive(settings())

    for _ in range(3_000):
        machine.receive(frame(6, 0, 0, bytes(8)))

    assert machine.fault is None


def test_a_fault_is_told_once() -> None:
    """A broken connection answers nothing more."""
    machine = a_machine()
    machine.receive(settings() + frame(GOAWAY, 0, 1, bytes(8)))
    machine.take_output()

    assert machine.receive(settings()) == []
    assert machine.take_output() == b""
