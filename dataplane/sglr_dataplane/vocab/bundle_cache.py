"""Where unpacked bundles are kept: shared by all routers of a machine, and bounded.

What a router uses it holds a lock on, so that no other one removes it, however long ago it was
unpacked; the kernel lets go of it when the process ends, in whatever way.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sglr_dataplane.vocab.bundle import checked_digest, placed

MOST_BYTES: Final = 2 * 2**30
"""Of all that nobody uses: some fifty of the largest tokenizers."""
LONGEST_UNUSED: Final = 30 * 86_400.0
"""Seconds; a model that comes back within a month is not sent again."""
_ABANDONED: Final = 3_600.0
"""Seconds after which nobody can still be unpacking."""
_LOCK: Final = ".lock"


class BundleCache:
    """The bundles in one directory; safe to call from several threads."""

    def __init__(
        self,
        directory: Path,
        *,
        now: Callable[[], float] = time.time,
        most_bytes: int = MOST_BYTES,
        longest_unused: float = LONGEST_UNUSED,
    ) -> None:
        """Keep bundles in *directory*, made when needed.

        Args:
            directory: Theirs alone.
            now: Seconds since 1970.
            most_bytes: What those that nobody uses may have together.
            longest_unused: Seconds after which one that nobody uses is removed.
        """
        self._directory = directory
        self._now = now
        self._most_bytes = most_bytes
        self._longest_unused = longest_unused
        self._held: dict[str, int] = {}
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"<BundleCache held={sorted(digest[:12] for digest in self._held)}>"

    def unpacked(self, bundle: bytes, sha256: str) -> Path:
        """Return the directory with the files of *bundle*, which stays until this process ends.

        Others, which nobody uses and which are too old or too many, make room for it.

        Raises:
            TokenizerLoadError: It is none, or none that is accepted.
            OSError: The directory cannot be written.
        """
        digest = checked_digest(bundle, sha256)
        with self._turn:
            if digest in self._held:
                return placed(bundle, digest, self._directory)
            self._directory.mkdir(parents=True, exist_ok=True)
            file = self._lock(digest)
            try:
                path = placed(bundle, digest, self._directory)
            except BaseException:
                os.close(file)
                raise
            self._held[digest] = file
            self._prune()
        return path

    def close(self) -> None:
        """Let go of all that is held."""
        with self._turn:
            for file in self._held.values():
                os.close(file)
            self._held.clear()

    def _prune(self) -> None:
        """Remove what nobody uses, the longest unused first, as far as it is too old or too much."""
        unused = sorted(self._unused())
        room = self._most_bytes - sum(size for _, size, _ in unused)
        for seen, size, digest in unused:
            if room < 0 or self._now() - seen > self._longest_unused:
                room += size
                self._remove(digest)
        for path in self._directory.glob(".unpacking-*"):
            with suppress(OSError):
                if self._now() - path.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)

    def _unused(self) -> Iterator[tuple[float, int, str]]:
        """Yield when each bundle that this process does not hold was last asked for, and its size."""
        for path in self._directory.iterdir():
            if path.name.startswith(".") or path.name in self._held or not path.is_dir():
                continue
            with suppress(OSError):  # another router removes it at this very moment
                lock = self._lock_of(path.name)
                seen = (lock if lock.exists() else path).stat().st_mtime
                yield seen, sum(each.stat().st_size for each in path.rglob("*")), path.name

    def _remove(self, digest: str) -> None:
        """Remove *digest* unless somebody uses it."""
        with _opened(self._lock_of(digest)) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not self._is_lock(file, digest):
                return  # somebody else has removed it, and what is there now may be held
            # Out of sight at once: whoever asks for it now unpacks it anew.
            going = self._directory / f".unpacking-{digest}"
            with suppress(OSError):
                (self._directory / digest).rename(going)
            shutil.rmtree(going, ignore_errors=True)
            self._lock_of(digest).unlink(missing_ok=True)

    def _lock(self, digest: str) -> int:
        """Return the open file by which this process holds *digest*; waits while it is removed."""
        place = self._lock_of(digest)
        while True:
            file = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
                if self._is_lock(file, digest):
                    os.utime(place)
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)

    def _is_lock(self, file: int, digest: str) -> bool:
        """Return whether *file* is the lock of *digest* still.

        Whoever removes a bundle removes the lock with it: from then on that one holds nothing.
        """
        try:
            return os.fstat(file).st_ino == self._lock_of(digest).stat().st_ino
        except FileNotFoundError:
            return False

    def _lock_of(self, digest: str) -> Path:
        return self._directory / f".{digest}{_LOCK}"


@contextmanager
def _opened(place: Path) -> Generator[int]:
    file = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)
