"""Port numbers that are known before the program that listens on them starts."""

from __future__ import annotations

import socket


def reserved_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on and the kernel gives to nobody.

    A port that was merely free a moment ago may be anybody's by the time it is used: every
    connection made meanwhile takes one of the same range. This one has a finished connection in
    TIME_WAIT, so for a minute the kernel neither hands it out as any free port nor makes a
    connection from it, while a server that asks for it by number and sets SO_REUSEADDR, as
    asyncio's, gRPC's and Go's do, gets it. Connections to it are refused until then.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as client:
            accepted, _ = server.accept()
            # The side that closes first waits, and the waiting must be done at the server's port.
            accepted.close()
            client.recv(1)
    return int(address[1])
