"""Payload of one frame → its parts, with the rules about its length and padding."""

from __future__ import annotations

from sglr_dataplane.engine.h2.codes import MAX_STREAM_ID, PRIORITY_SIZE, ErrorCode, Flag
from sglr_dataplane.engine.h2.errors import BrokenConnectionError, BrokenStreamError

_MAX_FRAGMENTS = 256
_WORD = 4
"""Bytes of a word."""


class PendingBlock:
    """A header block of which CONTINUATION frames are still to come (6.10)."""

    __slots__ = ("fragments", "is_last", "size", "stream_id")

    def __init__(self, stream_id: int, fragment: bytes, *, is_last: bool) -> None:
        """Start with the fragment of HEADERS; *is_last* says whether it had END_STREAM."""
        self.stream_id = stream_id
        self.is_last = is_last
        self.fragments = [fragment]
        self.size = len(fragment)

    def add(self, fragment: bytes, limit: int) -> None:
        """Append the fragment of a CONTINUATION.

        Raises:
            BrokenConnectionError: Above *limit* bytes, or with too many frames for them.
        """
        self.fragments.append(fragment)
        self.size += len(fragment)
        # Compressed, a block is hardly larger than the list it stands for. Without the second
        # condition a peer could send empty CONTINUATION frames for ever.
        if self.size > 2 * limit or len(self.fragments) > _MAX_FRAGMENTS:
            raise BrokenConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM, "A header block is larger than the limit."
            )

    def join(self) -> bytes:
        """Return the whole block."""
        return b"".join(self.fragments)


def strip_padding(flags: int, payload: bytes) -> bytes:
    """Return *payload* without padding (6.1).

    Raises:
        BrokenConnectionError: There is more padding than payload.
    """
    if not flags & Flag.PADDED:
        return payload
    if not payload:
        raise BrokenConnectionError(ErrorCode.FRAME_SIZE_ERROR, "A padded frame has no pad length.")
    if payload[0] >= len(payload):
        raise BrokenConnectionError(ErrorCode.PROTOCOL_ERROR, "A frame is all padding and more.")
    return payload[1 : len(payload) - payload[0]]


def strip_priority(flags: int, payload: bytes) -> tuple[bytes, int | None]:
    """Return the fragment of HEADERS and the stream it depends on; None without priority (6.2).

    Raises:
        BrokenConnectionError: The payload is too short for the flag.
    """
    if not flags & Flag.PRIORITY:
        return payload, None
    if len(payload) < PRIORITY_SIZE:
        raise BrokenConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, "HEADERS are too short for their priority."
        )
    return payload[PRIORITY_SIZE:], read_stream_id(payload)


def read_stream_id(payload: bytes) -> int:
    """Return the 31 bits at the start of *payload*."""
    return int.from_bytes(payload[:_WORD], "big") & MAX_STREAM_ID


def read_word(payload: bytes, frame: str) -> int:
    """Return the one word that is the payload of *frame*.

    Raises:
        BrokenConnectionError: The payload has another length than 4 (6.4, 6.9).
    """
    if len(payload) != _WORD:
        raise BrokenConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, f"{frame} has {len(payload)} bytes, not 4."
        )
    return int.from_bytes(payload, "big")


def read_goaway(payload: bytes) -> tuple[int, int, str]:
    """Return last stream id, error code and what the peer says about it (6.8).

    Raises:
        BrokenConnectionError: It is shorter than the first two.
    """
    if len(payload) < 2 * _WORD:
        raise BrokenConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY has {len(payload)} bytes, fewer than 8."
        )
    code = int.from_bytes(payload[_WORD : 2 * _WORD], "big")
    return read_stream_id(payload), code, payload[2 * _WORD :].decode(errors="replace")


def depends_on_itself() -> BrokenStreamError:
    """Return the error of a stream that depends on itself (RFC 7540, 5.3.1)."""
    return BrokenStreamError(ErrorCode.PROTOCOL_ERROR, "A stream depends on itself.")
