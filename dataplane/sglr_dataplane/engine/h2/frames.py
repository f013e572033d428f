"""Values → the bytes of one frame."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from sglr_dataplane.engine.h2.codes import Flag, FrameType

HEAD = struct.Struct(">IBI")
"""Length and type in one word (24 + 8 bits), flags, stream id: a frame's head in one unpack."""
_WORD = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
_GOAWAY = struct.Struct(">II")


def pack_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def pack_settings(settings: Iterable[tuple[int, int]]) -> bytes:
    """Return a SETTINGS frame with *settings* as (id, value)."""
    payload = b"".join(_SETTING.pack(key, value) for key, value in settings)
    return pack_frame(FrameType.SETTINGS, 0, 0, payload)


SETTINGS_ACK = pack_frame(FrameType.SETTINGS, Flag.ACK, 0)


def pack_window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame; stream 0 is the connection."""
    return pack_frame(FrameType.WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment))


def pack_reset(stream_id: int, code: int) -> bytes:
    """Return an RST_STREAM frame."""
    return pack_frame(FrameType.RST_STREAM, 0, stream_id, _WORD.pack(code))


def pack_ping(opaque: bytes, *, ack: bool = False) -> bytes:
    """Return a PING frame; *opaque* is 8 bytes."""
    return pack_frame(FrameType.PING, Flag.ACK if ack else 0, 0, opaque)


def pack_goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    """Return a GOAWAY frame; *reason* is for the peer's log."""
    payload = _GOAWAY.pack(last_stream_id, code) + reason.encode()
    return pack_frame(FrameType.GOAWAY, 0, 0, payload)


def split_header_block(stream_id: int, block: bytes, limit: int) -> Iterator[bytes]:
    """Yield HEADERS and, above *limit* bytes of *block*, CONTINUATION frames; no END_STREAM."""
    kind = FrameType.HEADERS
    for start in range(0, len(block), limit):
        flags = Flag.END_HEADERS if start + limit >= len(block) else 0
        yield pack_frame(kind, flags, stream_id, block[start : start + limit])
        kind = FrameType.CONTINUATION
