"""The last-known-good file: what a router starts from when no operator answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sglr_proto.keepsake import pack, unpack
from sglr_proto.snapshot import Snapshot

__all__ = ["pack", "read", "unpack", "write"]

_LONGEST: Final = 256 * 1024 * 1024
"""Bytes that are read at most: a thousand backends of a thousand endpoints."""


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
