"""How the kernel treats connections to workers."""

from __future__ import annotations

import socket


def set_socket_options(connection: socket.socket | None, timeout: float) -> None:
    """Let the kernel notice a peer that vanished without a word, within *timeout* seconds or so."""
    if connection is None or connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(timeout * 1000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(round(timeout), 1))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(round(timeout / 4), 1))
