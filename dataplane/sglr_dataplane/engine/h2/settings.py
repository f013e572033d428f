"""A SETTINGS payload → what the peer allows."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from sglr_dataplane.engine.h2.codes import (
    DEFAULT_FRAME_SIZE,
    DEFAULT_TABLE_SIZE,
    DEFAULT_WINDOW,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    ErrorCode,
    SettingId,
)
from sglr_dataplane.engine.h2.errors import BrokenConnectionError

_SETTING = struct.Struct(">HI")


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """What the peer allows; the defaults hold until it says otherwise (6.5.2)."""

    header_table_size: int = DEFAULT_TABLE_SIZE
    max_concurrent_streams: int | None = None
    """None: no limit."""
    initial_window_size: int = DEFAULT_WINDOW
    max_frame_size: int = DEFAULT_FRAME_SIZE
    max_header_list_size: int | None = None
    """Advisory, in bytes; None: no limit."""


def read_settings(payload: bytes, before: PeerSettings) -> PeerSettings:
    """Return *before* with the settings of *payload*, in their order, unknown ones skipped.

    Raises:
        BrokenConnectionError: A length or a value that RFC 9113 forbids.
    """
    if len(payload) % 6:
        raise BrokenConnectionError(
            ErrorCode.FRAME_SIZE_ERROR, "A SETTINGS payload is not a multiple of 6 bytes."
        )
    changes: dict[str, int] = {}
    for key, value in _SETTING.iter_unpack(payload):
        _check(key, value)
        if key != SettingId.ENABLE_PUSH and key in _KNOWN:
            changes[SettingId(key).name.lower()] = value
    return replace(before, **changes) if changes else before


_KNOWN = frozenset(SettingId)


def _check(key: int, value: int) -> None:
    """Raise when *value* is one that the setting *key* must not have."""
    if key == SettingId.ENABLE_PUSH and value != 0:
        # 6.5.2: a client must treat any other value from a server as PROTOCOL_ERROR.
        raise BrokenConnectionError(
            ErrorCode.PROTOCOL_ERROR, f"SETTINGS_ENABLE_PUSH is {value}; a server may send only 0."
        )
    if key == SettingId.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
        raise BrokenConnectionError(
            ErrorCode.FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE is {value}, above 2^31-1."
        )
    if key == SettingId.MAX_FRAME_SIZE and not DEFAULT_FRAME_SIZE <= value <= MAX_FRAME_SIZE:
        raise BrokenConnectionError(
            ErrorCode.PROTOCOL_ERROR,
            f"SETTINGS_MAX_FRAME_SIZE is {value}, not between 2^14 and 2^24-1.",
        )
