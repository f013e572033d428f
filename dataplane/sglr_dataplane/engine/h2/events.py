"""What a connection tells besides "this stream has news"."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.engine.h2.settings import PeerSettings
from sglr_dataplane.engine.h2.stream import Stream


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The peer said what it allows; the first one makes the connection usable."""

    settings: PeerSettings


@dataclass(frozen=True, slots=True)
class GoingAway:
    """The peer takes no further streams; those above *last_stream_id* have failed already."""

    last_stream_id: int
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class PingAnswered:
    """The peer answered the PING that held *opaque*."""

    opaque: bytes


Event = Stream | SettingsChanged | GoingAway | PingAnswered
"""A stream stands for "it has news": payloads, fields, its end or its failure."""
