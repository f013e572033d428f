"""A manifest on disk as the source of snapshots: read at the start, read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sglr_proto.backend import read_manifests
from sglr_proto.errors import ManifestError
from sglr_proto.snapshot import Snapshot, static_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

logger = logging.getLogger(__name__)

_SETTLING: Final = 0.05
"""Seconds in which a file must not change before it is read: an editor may be half way through."""

_Stamp = tuple[int, int, int, int]


class ManifestFile:
    """The SGLangBackend documents of one file, which people and mounted ConfigMaps change."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Remember *path*; nothing is read yet."""
        self._path = Path(path)
        self._stamp: _Stamp | None = None
        self._text: str | None = None
        self._version = 0
        self.problem: str | None = None
        """Why the newest edit is not in force, as a sentence; None when it is."""

    def __repr__(self) -> str:
        return (
            f"<ManifestFile {str(self._path)!r} version={self._version} problem={self.problem!r}>"
        )

    @property
    def text(self) -> str | None:
        """What is in force; None before the first."""
        return self._text

    def load(self) -> Snapshot:
        """Return the file's backends; the snapshot's version rises with each change.

        Raises:
            ManifestError: It cannot be read, or says what nobody here can do.
        """
        stamp, text = self._read()
        return self._take(stamp, text)

    def load_or(self, kept: str) -> Snapshot:
        """Return the file's backends, or while it is broken those of *kept*, its last good text.

        For a process that takes another's place: it must not know less than those that run.
        """
        try:
            return self.load()
        except ManifestError as error:
            self._complain(str(error))
            problem, stamp = self.problem, self._stamp
            snapshot = self._take(stamp, kept)
            self.problem = problem
            return snapshot

    async def follow(self, apply: Callable[[Snapshot], object], interval: float = 1.0) -> None:
        """Apply every later change of the file, for ever.

        A broken edit is logged and shown in :attr:`problem`; what was in force stays in force.

        Args:
            apply: Called in this task with each new snapshot.
            interval: Seconds between two looks. Looks, not notifications: a mounted ConfigMap
                changes by swapping a symlink, and a network mount notifies nobody.
        """
        while True:
            snapshot = await self.newer()
            if snapshot is not None:
                apply(snapshot)
            await asyncio.sleep(interval)

    async def newer(self) -> Snapshot | None:
        """Return what the file says if it changed since the last look and says something new.

        None also when it says something wrong: then :attr:`problem` is set and logged.
        """
        try:
            if await asyncio.to_thread(self._stamp_now) == self._stamp:
                return None
            await self._settled()
            stamp, text = await asyncio.to_thread(self._read)
            if text == self._text:
                if self.problem is not None:
                    logger.info("manifest usable again", extra={"path": str(self._path)})
                self._stamp, self.problem = stamp, None
                return None
            snapshot = self._take(stamp, text)
        except ManifestError as error:
            self._complain(str(error))
            return None
        logger.info("manifest loaded", extra={"path": str(self._path), "version": self._version})
        return snapshot

    async def _settled(self) -> None:
        """Wait until the file has not changed for a moment."""
        stamp = None
        while (now := await asyncio.to_thread(self._stamp_now)) != stamp:
            stamp = now
            await asyncio.sleep(_SETTLING)

    def _take(self, stamp: _Stamp | None, text: str) -> Snapshot:
        # Even if it is wrong: the same mistake is not told twice.
        self._stamp = stamp
        backends = read_manifests(text)
        if not backends:
            # Most likely caught while it was written; an intended end is a stopped router.
            raise ManifestError(f"The manifest {str(self._path)!r} holds no SGLangBackend.")
        snapshot = static_snapshot(backends, self._version + 1)
        self._version = snapshot.version
        self._text = text
        self.problem = None
        return snapshot

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            logger.error(
                "manifest not usable, the last good one stays in force",
                extra={"path": str(self._path), "problem": problem},
            )

    def _read(self) -> tuple[_Stamp, str]:
        stamp = self._stamp_now()
        try:
            return stamp, self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._stamp = stamp
            raise self._unreadable(error) from error

    def _stamp_now(self) -> _Stamp:
        """Return what changes when the file does; of the target when it is a link."""
        try:
            facts = self._path.stat()
        except OSError as error:
            self._stamp = None
            raise self._unreadable(error) from error
        return (facts.st_mtime_ns, facts.st_size, facts.st_ino, facts.st_dev)

    def _unreadable(self, error: OSError | UnicodeDecodeError) -> ManifestError:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return ManifestError(f"The manifest {str(self._path)!r} cannot be read: {reason}.")
