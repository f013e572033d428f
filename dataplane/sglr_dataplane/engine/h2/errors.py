"""What can go wrong with a stream: one class per consequence.

These never leave the engine; :mod:`sglr_dataplane.engine.h2.status` turns them into gRPC statuses.
"""

from __future__ import annotations

from sglr_dataplane.engine.h2.codes import ErrorCode, name_code


class H2Error(Exception):
    """A stream, or all streams of a connection, ended before their answer was complete."""

    def __init__(self, code: int, reason: str) -> None:
        """Keep the HTTP/2 error *code* and one sentence that says which rule it is about."""
        super().__init__(f"{name_code(code)}: {reason}")
        self.code = code
        self.reason = reason


class BrokenConnectionError(H2Error):
    """The peer broke a rule that leaves the connection's state unusable: GOAWAY was sent."""


class BrokenStreamError(H2Error):
    """The peer broke a rule of one stream: RST_STREAM was sent, the others go on."""


class ResetStreamError(H2Error):
    """The peer ended the stream with RST_STREAM."""


class UnprocessedStreamError(H2Error):
    """The peer promises that it did nothing with the request: it can be sent again for free."""


class LostConnectionError(H2Error):
    """The connection is gone; whether the request was processed is unknown."""

    def __init__(self, reason: str) -> None:
        """Keep one sentence on how the connection was lost."""
        super().__init__(ErrorCode.CONNECT_ERROR, reason)


class CancelledStreamError(H2Error):
    """This end gave the request up."""

    def __init__(self, reason: str = "The call was cancelled here.") -> None:
        """Keep why."""
        super().__init__(ErrorCode.CANCEL, reason)
