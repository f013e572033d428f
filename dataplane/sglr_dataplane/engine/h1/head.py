"""Heads of requests to a worker, rendered once as far as they are alike; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_FORBIDDEN: Final = re.compile(rb"[\r\n\0]")
_USER_AGENT: Final = b"sglr"


class Heads:
    """Renders the heads of requests to one worker."""

    def __init__(self, authority: str, fields: Iterable[tuple[str, str]] = ()) -> None:
        """Render what all of them share.

        Args:
            authority: The worker's ``host:port``.
            fields: Headers of every request, such as authorization; never logged.

        Raises:
            ValueError: A field has a line break in it.
        """
        shared = [
            (b"host", authority.encode()),
            (b"user-agent", _USER_AGENT),
            # What is relayed is read on the way.
            (b"accept-encoding", b"identity"),
            *((name.lower().encode("ascii"), value.encode("latin-1")) for name, value in fields),
        ]
        self._shared = _lines(shared)

    def get(self, path: str) -> bytes:
        """Return a whole request for *path*."""
        return b"GET %b HTTP/1.1\r\n%b\r\n" % (path.encode("ascii"), self._shared)

    def post(self, path: str, body: bytes, fields: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
        """Return a whole request with a JSON *body*; *fields* are headers of this one alone."""
        head = (
            b"POST %b HTTP/1.1\r\n%b%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        )
        return head % (path.encode("ascii"), self._shared, _lines(fields), len(body)) + body


def _lines(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return *fields* as header lines; raises ValueError for one that would be more than a line."""
    lines: list[bytes] = []
    for name, value in fields:
        if _FORBIDDEN.search(name) or _FORBIDDEN.search(value):
            raise ValueError(f"The header {name.decode('latin-1')!r} has a line break in it.")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)
