"""The tokenizers that workers send: taken once from each, compared, and adopted by their backend.

All workers of a backend get the same token ids, so that they must have one vocabulary. The first to
send its own decides, and keeps deciding as long as a worker that has the same can take jobs: a
worker with another one is not used meanwhile. When none is left, as after an upgrade, the next one
decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final
from weakref import WeakKeyDictionary, finalize

from sglr_dataplane.engine import TokenizerBundle
from sglr_dataplane.errors import WorkerError
from sglr_dataplane.fleet.worker import Worker, WorkerState
from sglr_dataplane.recipe.sources import Folder
from sglr_dataplane.vocab import TokenizerLoadError
from sglr_dataplane.vocab.bundle_cache import BundleCache
from sglr_dataplane.vocab.sources import sources_digest

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Downloads at the same time: a fleet that starts together must not fill the memory with archives
of up to 128 MiB."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What one worker sent."""

    folder: Folder
    vocabulary: str
    """Digest of the files that make the vocabulary; templates may differ."""


class WorkerBundles:
    """Who sent which tokenizer, and which one each backend uses."""

    def __init__(self, cache: Path | None, on_adopted: Callable[[str], None]) -> None:
        """Know nothing yet.

        Args:
            cache: A directory for the unpacked files, by the archives' digests; None: a new one
                for this process alone.
            on_adopted: Called with the key of a backend that uses another tokenizer than before.
        """
        self._cache = BundleCache(cache) if cache is not None else None
        self._on_adopted = on_adopted
        self._sent: WeakKeyDictionary[Worker, Sent] = WeakKeyDictionary()
        self._adopted: dict[str, Sent] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def __repr__(self) -> str:
        digests = {key: sent.vocabulary[:12] for key, sent in self._adopted.items()}
        return f"<WorkerBundles {digests}>"

    def folder(self, backend_key: str) -> Folder | None:
        """Return the tokenizer of *backend_key*; None while no worker has sent one."""
        adopted = self._adopted.get(backend_key)
        return adopted.folder if adopted is not None else None

    def forget(self, backend_key: str) -> None:
        """Drop what is known of *backend_key*, which is gone or has its tokenizer elsewhere."""
        self._adopted.pop(backend_key, None)

    async def inspect(self, worker: Worker, *, again: bool) -> str | None:
        """Return why *worker* is not to be used beside the others; None when it is.

        Args:
            worker: Is healthy.
            again: Whether what it sent before may be another process's.

        Raises:
            RouterError: It did not send its tokenizer, or one that cannot be used.
        """
        if again:
            self._sent.pop(worker, None)
        sent = self._sent.get(worker)
        if sent is None:
            sent = await self._fetched(worker)
            self._sent[worker] = sent
        key = worker.backend_key
        adopted = self._adopted.get(key)
        if adopted is not None and adopted.vocabulary == sent.vocabulary:
            return None
        if adopted is not None and self._is_used(key, adopted, besides=worker):
            return (
                "The worker's vocabulary differs from the one that other workers of its backend "
                "have; all of them must serve the same model."
            )
        self._adopted[key] = sent
        logger.info(
            "tokenizer adopted",
            extra={"backend": key, "worker": worker.id, "source": sent.folder.source},
        )
        self._on_adopted(key)
        return None

    def _is_used(self, backend_key: str, adopted: Sent, *, besides: Worker) -> bool:
        """Return whether a worker other than *besides* has this vocabulary and can take jobs."""
        return any(
            sent.vocabulary == adopted.vocabulary
            for worker, sent in self._sent.items()
            if worker is not besides and worker.backend_key == backend_key and _is_well(worker)
        )

    async def _fetched(self, worker: Worker) -> Sent:
        async with self._slots:
            bundle = await worker.engine.tokenizer_bundle()
            try:
                return await asyncio.to_thread(self._unpacked, bundle)
            except TokenizerLoadError as error:
                raise WorkerError(str(error)) from error
            except OSError as error:
                raise WorkerError(
                    f"The worker's tokenizer cannot be kept in the cache directory: "
                    f"{error.strerror}."
                ) from error

    def _unpacked(self, bundle: TokenizerBundle) -> Sent:
        path = (self._cache or self._own_cache()).unpacked(bundle.archive, bundle.sha256)
        return Sent(Folder(path, f"a worker's ({path.name[:12]})"), sources_digest(path))

    def _own_cache(self) -> BundleCache:
        """Return a new cache, which goes with this object or, at the latest, with the process."""
        directory = mkdtemp(prefix="sglr-")
        finalize(self, rmtree, directory, ignore_errors=True)
        self._cache = BundleCache(Path(directory))
        return self._cache


def _is_well(worker: Worker) -> bool:
    """Return whether *worker* takes jobs, or is about to."""
    starting = worker.state is WorkerState.PENDING and worker.problem is None
    return (worker.is_ready or starting) and not worker.suspect
