"""The numbers of RFC 9113 that both ends must agree on."""

from __future__ import annotations

from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD = 9
"""Bytes of a frame before its payload."""
DEFAULT_WINDOW = 65_535
"""Every window before SETTINGS or WINDOW_UPDATE say otherwise (6.9.2)."""
DEFAULT_FRAME_SIZE = 16_384
DEFAULT_TABLE_SIZE = 4_096
PRIORITY_SIZE = 5
PING_SIZE = 8
MAX_FRAME_SIZE = 2**24 - 1
MAX_WINDOW = 2**31 - 1
MAX_STREAM_ID = 2**31 - 1


class FrameType(IntEnum):
    """The ten frame types (6)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag:
    """The flags (6); ACK and END_STREAM share a bit, on different types."""

    ACK = 0x1
    END_STREAM = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    PRIORITY = 0x20


class SettingId(IntEnum):
    """The settings (6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """The error codes of RST_STREAM and GOAWAY (7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def name_code(code: int) -> str:
    """Return the name of an error code, or its number when RFC 9113 does not know it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
