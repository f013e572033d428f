"""What the processes of one router tell each other: small files in a folder of their own.

Any of them may be asked for the metrics, or for the fleet: it answers for all. Each writes its
standing every second; the supervisor removes what a dead one wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

_INTERVAL: Final = 1.0
"""Seconds between two writes: what the others show of a process is as old at most."""
_MANIFEST: Final = "manifest.yaml"


class Family(msgspec.Struct, frozen=True):
    """A gauge with all its series, as one process has it."""

    name: str
    text: str
    """What it means."""
    labels: tuple[str, ...]
    series: tuple[tuple[tuple[str, ...], float], ...]
    """Label values, in the order of *labels*, and the number."""


class Standing(msgspec.Struct, frozen=True):
    """One process as the others see it."""

    phase: str
    """How far its drain has come."""
    requests: int
    """How many it is answering."""
    families: tuple[Family, ...]
    backends: tuple[dict[str, object], ...]
    """Its fleet, as the admin port has it."""


class Siblings:
    """The processes of one router, as seen by one of them."""

    def __init__(self, folder: Path, index: int, count: int) -> None:
        """Be process *index*, from 0, of *count*, which meet in *folder*."""
        self.folder = folder
        self.index = index
        self.count = count

    def __repr__(self) -> str:
        return f"<Siblings {self.index} of {self.count}>"

    async def tell(self, standing: Callable[[], Standing], interval: float = _INTERVAL) -> None:
        """Write this process's standing again and again, for ever."""
        while True:
            await asyncio.to_thread(self._write, msgspec.json.encode(standing()))
            await asyncio.sleep(interval)

    def others(self) -> list[Standing]:
        """Return what the other processes last wrote; reads files."""
        found = (_read(_place(self.folder, i)) for i in range(self.count) if i != self.index)
        return [standing for standing in found if standing is not None]

    def keep_manifest(self, text: str) -> None:
        """Keep the *text* of a manifest that is in force, for a process that takes one's place."""
        _replace(self.folder / _MANIFEST, text.encode(), self.index)

    def kept_manifest(self) -> str | None:
        """Return what was kept last; None before the first."""
        try:
            return (self.folder / _MANIFEST).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _write(self, standing: bytes) -> None:
        _replace(_place(self.folder, self.index), standing, self.index)


def told_at(folder: Path, index: int) -> int | None:
    """Return when process *index* last told the others, as a number that changes; None: not yet."""
    try:
        return _place(folder, index).stat().st_mtime_ns
    except FileNotFoundError:
        return None


def forget(folder: Path, index: int) -> None:
    """Remove what process *index*, which died, told the others."""
    _place(folder, index).unlink(missing_ok=True)


def _place(folder: Path, index: int) -> Path:
    return folder / f"standing-{index}.json"


def _replace(place: Path, content: bytes, index: int) -> None:
    unfinished = place.with_name(f".{place.name}.{index}")
    unfinished.write_bytes(content)
    unfinished.replace(place)


def _read(place: Path) -> Standing | None:
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(place.read_bytes(), type=Standing)
    return None
