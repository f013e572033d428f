"""Clients that do not read: what the kernel holds for them is bounded."""

from __future__ import annotations

import socket

from sglr_dataplane.api.server import listen


def test_the_kernel_takes_little_for_a_client_that_does_not_read() -> None:
    """Some hundred KiB, where it would take megabytes; then writing must wait."""
    with listen("127.0.0.1", 0) as listener, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            server.setblocking(False)
            taken = 0
            try:
                while taken < 64 * 1024 * 1024:
                    taken += server.send(bytes(4096))
            except BlockingIOError:
                pass

    assert taken < 512 * 1024
