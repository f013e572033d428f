"""The bytes of a last-known-good snapshot, which a router starts from when no operator answers.

One line of JSON says what follows and its SHA-256; then come the snapshot's canonical bytes. Bytes
that were cut short, edited or written by something else are worth nothing, and reading says so.
"""

from __future__ import annotations

import gzip
import hashlib
from typing import Final

import msgspec

from sglr_proto.errors import SnapshotError
from sglr_proto.snapshot import Snapshot, decode, encode

_FORMAT: Final = "sglr-last-known-good/1"
_GZIP: Final = b"\x1f\x8b"
_LONGEST: Final = 256 * 1024 * 1024
"""Bytes that compressed ones may grow to: a thousand backends of a thousand endpoints."""


class _Head(msgspec.Struct, frozen=True):
    format: str
    sha256: str


def pack(snapshot: Snapshot) -> bytes:
    """Return the bytes that keep *snapshot*."""
    body = encode(snapshot)
    head = _Head(_FORMAT, hashlib.sha256(body).hexdigest())
    return msgspec.json.encode(head) + b"\n" + body


def compress(packed: bytes) -> bytes:
    """Return *packed* compressed, equal for equal bytes: no time of day is in it."""
    return gzip.compress(packed, mtime=0)


def unpack(data: bytes) -> Snapshot:
    """Return the snapshot in *data*, which may be compressed.

    Raises:
        SnapshotError: The bytes are not what :func:`pack` makes.
    """
    line, _, body = _expanded(data).partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SnapshotError(f"The first line is no head of a snapshot: {error}.") from error
    if head.format != _FORMAT:
        raise SnapshotError(f"The format is {head.format!r}; expected {_FORMAT!r}.")
    if hashlib.sha256(body).hexdigest() != head.sha256:
        raise SnapshotError("The snapshot's bytes do not match their checksum.")
    return decode(body)


def _expanded(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        expanded = gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise SnapshotError(f"The compressed bytes are damaged: {error}.") from error
    if len(expanded) > _LONGEST:
        raise SnapshotError(f"The compressed bytes hold more than {_LONGEST} bytes.")
    return expanded
