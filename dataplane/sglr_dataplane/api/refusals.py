"""What one connection may use, and what its client is told that sends no request, or too much."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from sglr_dataplane.api.faults import fault_reply
from sglr_dataplane.errors import HeadersTooLargeError, HeadTimeoutError, InvalidRequestError

if TYPE_CHECKING:
    from sglr_dataplane.errors import RouterError


@dataclass(frozen=True, slots=True)
class ProtocolLimits:
    """What one connection may use."""

    head_bytes: int = 65536
    """Of a request's line, headers and trailers: twice what common proxies pass on."""
    head_lines: int = 200
    """Twice what Apache takes; clients and their proxies send below 50."""
    head_seconds: float = 60.0
    """From a connection's beginning, or a request's first byte, to the end of its headers: what
    nginx allows."""
    write_seconds: float = 60.0
    """Without a byte taken by the client while an answer waits for it: what nginx allows."""
    linger_seconds: float = 2.0
    """For reading on after a refusal: a close with unread bytes is a reset, which loses the answer."""


def rendered(error: RouterError, path: str) -> bytes:
    """Return the whole answer for *error*, after which the connection ends."""
    reply = fault_reply(error, path)
    reply.headers["x-request-id"] = "req_" + secrets.token_hex(12)
    reply.headers["connection"] = "close"
    phrase = HTTPStatus(error.status).phrase.encode()
    lines = [b"HTTP/1.1 %d %b" % (error.status, phrase)]
    lines += [b"%b: %b" % header for header in reply.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(reply.body)])


def invalid(problem: str) -> InvalidRequestError:
    """Return the refusal of what cannot be read, because of *problem*."""
    return InvalidRequestError(
        f"What came is no HTTP/1.1 request: {problem}.", code="invalid_http_request"
    )


def too_slow(limits: ProtocolLimits) -> HeadTimeoutError:
    """Return the refusal of a head that was not complete in time."""
    return HeadTimeoutError(
        f"The request's headers were not complete after {limits.head_seconds:g} seconds."
    )


def too_large(limits: ProtocolLimits) -> HeadersTooLargeError:
    """Return the refusal of a head above *limits*."""
    return HeadersTooLargeError(
        f"The request's headers are larger than the {limits.head_bytes} bytes in "
        f"{limits.head_lines} lines this router accepts."
    )
