"""The last-known-good file: what a router starts from when no operator answers.

One line of JSON says what follows and its SHA-256; then come the snapshot's canonical bytes. A
file that was cut short, edited or written by something else is worth nothing and says so.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from sglr_proto.errors import SnapshotError
from sglr_proto.snapshot import Snapshot, decode, encode

_FORMAT: Final = "sglr-last-known-good/1"
_LONGEST: Final = 256 * 1024 * 1024
"""Bytes that are read at most: a thousand backends of a thousand endpoints."""
_GZIP: Final = b"\x1f\x8b"


class _Head(msgspec.Struct, frozen=True):
    format: str
    sha256: str


def write(path: Path, snapshot: Snapshot) -> None:
    """Replace the file at *path* by one that holds *snapshot*, readable by its owner alone.

    A crash at any moment leaves the old file or the new one.

    Raises:
        OSError: The folder is missing, full or read-only.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pack(snapshot))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read(path: Path) -> Snapshot | None:
    """Return the snapshot in the file at *path*; None when there is no file.

    Raises:
        SnapshotError: The file is no last-known-good file, or not a whole one.
        OSError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST)
    except FileNotFoundError:
        return None
    return unpack(data)


def pack(snapshot: Snapshot) -> bytes:
    """Return the bytes of a file that holds *snapshot*."""
    body = encode(snapshot)
    head = _Head(_FORMAT, hashlib.sha256(body).hexdigest())
    return msgspec.json.encode(head) + b"\n" + body


def unpack(data: bytes) -> Snapshot:
    """Return the snapshot in *data*, which may be compressed with gzip.

    Raises:
        SnapshotError: The bytes are not what :func:`pack` makes.
    """
    if data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise SnapshotError(f"The compressed bytes are damaged: {error}.") from error
    line, _, body = data.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SnapshotError(f"The first line is no head of a snapshot: {error}.") from error
    if head.format != _FORMAT:
        raise SnapshotError(f"The format is {head.format!r}; expected {_FORMAT!r}.")
    if hashlib.sha256(body).hexdigest() != head.sha256:
        raise SnapshotError("The snapshot's bytes do not match their checksum.")
    return decode(body)
