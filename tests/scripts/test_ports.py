"""A reserved port: nobody's, until it is asked for by number."""

from __future__ import annotations

import socket

import pytest
from ports import reserved_port


def test_nobody_listens_on_it() -> None:
    """Who connects to it is refused."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", reserved_port()), timeout=5)


def test_the_kernel_counts_it_as_taken() -> None:
    """A bind that does not insist on it, as every search for a free port, finds it in use."""
    port = reserved_port()

    with socket.socket() as searching, pytest.raises(OSError, match="in use"):
        searching.bind(("127.0.0.1", port))


def test_a_server_that_asks_for_it_by_number_gets_it() -> None:
    """Twice: it stays reserved between two servers, as between two terms of an operator."""
    port = reserved_port()

    for _ in range(2):
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", port), timeout=5),
        ):
            accepted, _address = server.accept()
            accepted.close()
