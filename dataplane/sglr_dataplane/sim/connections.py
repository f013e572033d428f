"""Breaking a gRPC server's TCP connections as a dying process does. Linux only.

gRPC has no call for it: the sockets are found among the process's own descriptors.
"""

from __future__ import annotations

import ctypes
import os
import socket
from contextlib import suppress
from pathlib import Path

_DISSOLVE = bytes(16)
"""A ``sockaddr`` of family AF_UNSPEC: connecting to it resets a TCP connection (connect(2))."""


def reset_connections(port: int, peer_port: int | None = None) -> int:
    """Reset the accepted connections of the local *port*; return how many there were.

    Args:
        port: Where the server listens; the listening socket itself is left alone.
        peer_port: Only the connection from this port; None: all.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    count = 0
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if _serves(descriptor, port, peer_port):
            libc.connect(descriptor, _DISSOLVE, len(_DISSOLVE))
            count += 1
    return count


def port_of(peer: str) -> int | None:
    """Return the port of a gRPC *peer* such as ``ipv4:127.0.0.1:41234``; None when it has none."""
    tail = peer.rpartition(":")[2]
    return int(tail) if tail.isdigit() else None


def _serves(descriptor: int, port: int, peer_port: int | None) -> bool:
    """Return whether *descriptor* is an accepted connection of *port* (from *peer_port*)."""
    with suppress(OSError):
        duplicate = os.dup(descriptor)
        try:
            found = socket.socket(fileno=duplicate)
        except OSError:
            os.close(duplicate)
            return False
        with found:
            if found.family not in {socket.AF_INET, socket.AF_INET6}:
                return False
            local, remote = found.getsockname()[1], found.getpeername()[1]
            return bool(local == port and peer_port in {None, remote})
    return False
