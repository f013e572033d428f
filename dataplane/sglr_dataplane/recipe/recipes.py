"""The recipes of every backend."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sglr_dataplane.errors import TokenizerUnavailableError
from sglr_dataplane.fleet.caller import NOBODY, Caller
from sglr_dataplane.output.formats import UnknownFormatError
from sglr_dataplane.prompt.template import BrokenTemplateError
from sglr_dataplane.recipe.loading import load_recipe
from sglr_dataplane.recipe.recipe import Recipe
from sglr_dataplane.recipe.sources import Folder, named_folder, named_source
from sglr_dataplane.recipe.worker_bundles import WorkerBundles
from sglr_dataplane.vocab import TokenizerLoadError
from sglr_proto.backend import Protocol, SGLangBackend
from sglr_proto.snapshot import Snapshot

if TYPE_CHECKING:
    from sglr_dataplane.engine import EngineFacts
    from sglr_dataplane.fleet.routes import Target
    from sglr_dataplane.fleet.signpost import Signpost
    from sglr_dataplane.fleet.worker import Worker

logger = logging.getLogger(__name__)

_UNLOADABLE: Final = (TokenizerLoadError, BrokenTemplateError, UnknownFormatError)
"""What a recipe may fail to load with."""
_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 30.0
"""Seconds between two tries to load a recipe: a volume may be mounted, or filled, later."""
_LOADS_AT_ONCE: Final = 2
"""Recipes loaded at the same time: a comparison of encoders takes a core and 500 MB."""
_FEWEST_THREADS: Final = 2
"""For prompts: one that takes seconds must not hold up every other on a machine with one core."""


class Recipes:
    """The recipes of every backend: loads them when a snapshot needs them, keeps what is unchanged.

    A backend that needs another one keeps the last good one until the new one is loaded. Nothing is loaded during a request; a backend whose recipe is missing says so, and the others
    serve.
    """

    def __init__(self, cache_dir: str | None, *, max_prompt_chars: int) -> None:
        """Start empty.

        Args:
            cache_dir: Where comparisons of encoders and workers' tokenizers are kept; None: no
                encoders are compared, and tokenizers are kept for this process alone.
            max_prompt_chars: Longer prompts are refused.
        """
        self._cache_dir = Path(cache_dir) if cache_dir is not None else None
        self._max_prompt_chars = max_prompt_chars
        self._wanted: dict[str, SGLangBackend] = {}
        self._facts: Callable[[str], EngineFacts | None] = _nothing
        self._signpost: Signpost | None = None
        self._loaded: dict[str, tuple[SGLangBackend, Recipe]] = {}
        self._completed: dict[str, tuple[Recipe, EngineFacts, Recipe]] = {}
        """Recipes as what workers said completed them, and from what."""
        self._problems: dict[str, str] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        """One for each backend that somebody is loading for."""
        self._changed = asyncio.Event()
        self._loads = asyncio.Semaphore(_LOADS_AT_ONCE)
        self._threads = ThreadPoolExecutor(
            max(len(os.sched_getaffinity(0)), _FEWEST_THREADS), thread_name_prefix="prompt"
        )
        bundles = self._cache_dir / "tokenizers" if self._cache_dir is not None else None
        self._bundles = WorkerBundles(bundles, self._adopted)

    def __repr__(self) -> str:
        return f"<Recipes loaded={sorted(self._loaded)} problems={self._problems}>"

    def apply(self, snapshot: Snapshot) -> None:
        """Want the recipes of *snapshot*'s backends, and no others."""
        # Prompts for HTTP workers are not made here.
        backends = [
            each.backend
            for each in snapshot.backends
            if each.backend.spec.workers.protocol is not Protocol.HTTP
        ]
        self._wanted = {backend.key: backend for backend in backends}
        self._loaded = {
            key: (backend, recipe)
            for key, (backend, recipe) in self._loaded.items()
            if key in self._wanted and _may_stay(backend, self._wanted[key])
        }
        self._completed.clear()
        self._problems = {k: v for k, v in self._problems.items() if self._lacks(k) is not None}
        self._changed.set()
        for wake in self._wakes.values():
            wake.set()

    async def inspect(self, worker: Worker, again: bool) -> str | None:  # noqa: FBT001  # the prober's
        """Return why *worker* is not to be used; None when it is. For the prober.

        Raises:
            RouterError: Its backend needs its tokenizer, and it did not send one that can be used.
        """
        backend = self._wanted.get(worker.backend_key)
        if backend is None or not backend.spec.tokenizer.is_from_worker:
            self._bundles.forget(worker.backend_key)
            return None
        return await self._bundles.inspect(worker, again=again)

    def follow(self, signpost: Signpost) -> None:
        """Have *signpost* say from now on which backend a request goes to."""
        self._signpost = signpost
        # What is not wanted here, as of HTTP workers, needs no recipe.
        signpost.is_prepared = lambda key: key in self._loaded or key not in self._wanted

    def listen(self, facts: Callable[[str], EngineFacts | None]) -> None:
        """Have *facts* tell from now on what the workers of a backend say of themselves."""
        self._facts = facts

    def find(self, model: str | None, caller: Caller = NOBODY) -> Recipe:
        """Return the recipe for *caller*'s request for *model*; None: the only model there is.

        Raises:
            InvalidRequestError: None is named, and there are several.
            UnknownModelError: No backend has that name, or the caller may not use it.
            NoAvailableWorkersError: Every backend of that name wants no requests like this one.
            TokenizerUnavailableError: Its recipe is not loaded (yet).
        """
        assert self._signpost is not None  # noqa: S101  # who is asked follows one
        # Who comes here goes to no HTTP worker: it was asked before, of all backends.
        return self.at(self._signpost.target(model, caller, self._wanted.__contains__))

    def spare(self, model: str | None, caller: Caller, without: Collection[str]) -> Recipe | None:
        """Return the recipe of another backend that can take a request; None when there is none.

        Args:
            model: As for :meth:`find`.
            caller: As for :meth:`find`.
            without: Keys of the backends that were asked.
        """
        assert self._signpost is not None  # noqa: S101  # who is asked follows one
        target = self._signpost.spare(
            model, caller, lambda key: key in self._wanted and key not in without
        )
        return self.at(target) if target is not None else None

    def at(self, target: Target) -> Recipe:
        """Return the recipe for a request that goes to *target*.

        Raises:
            TokenizerUnavailableError: It is not loaded (yet).
        """
        key = target.backend_key
        if key not in self._loaded:
            name = self._wanted[key].spec.model.name
            raise TokenizerUnavailableError(
                f"The tokenizer of model {name!r} is not loaded yet."
                if key not in self._problems
                else f"The tokenizer of model {name!r} cannot be loaded; the router's log and "
                "/readyz have the reason."
            )
        recipe = self._told(key, self._loaded[key][1])
        return replace(recipe, adapter=target.adapter) if target.adapter else recipe

    def get(self, backend_key: str) -> Recipe | None:
        """Return the recipe of *backend_key*; None while there is none."""
        loaded = self._loaded.get(backend_key)
        return self._told(backend_key, loaded[1]) if loaded is not None else None

    def _told(self, key: str, recipe: Recipe) -> Recipe:
        """Return *recipe* as the workers' parsers complete it."""
        facts = self._facts(key)
        if facts is None:
            return recipe
        known = self._completed.get(key)
        if known is None or known[0] is not recipe or known[1] is not facts:
            told = recipe.told(facts.tool_call_parser, facts.reasoning_parser)
            known = self._completed[key] = recipe, facts, told
        return known[2]

    def problem(self, backend_key: str) -> str | None:
        """Return why *backend_key* has not the recipe it needs; None when it has."""
        if self._lacks(backend_key) is None:
            return None
        return self._problems.get(backend_key, "its tokenizer is being loaded")

    def failure(self, backend_key: str) -> str | None:
        """Return as :meth:`problem` does, but None also while nothing has failed yet."""
        return self._problems.get(backend_key) if self._lacks(backend_key) is not None else None

    async def load_as_needed(self) -> None:
        """Load what is wanted and missing, for ever, each backend's for itself."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    for key in self._missing().keys() - self._wakes.keys():
                        self._wakes[key] = asyncio.Event()
                        group.create_task(self._load_until_there(key))
                    await self._changed.wait()
        finally:
            self.close()

    async def load(self, backend_key: str) -> Recipe | None:
        """Try once to load the recipe of *backend_key* and return it; None when that fails."""
        backend = self._lacks(backend_key)
        if backend is not None:
            await self._load(backend_key, backend)
        return self.get(backend_key)

    def load_folders(self, is_time: Callable[[], bool]) -> None:
        """Load, here and now, what is wanted and comes from folders of this machine.

        For a process that others are forked from: they share the memory. Nothing is encoded, which
        starts threads, and no repository is asked. As soon as *is_time* is not true any more, what
        is left is left to them.
        """
        for key, backend in self._missing().items():
            if backend.spec.tokenizer.path is None or not is_time():
                continue
            try:
                recipe = self._load_now(backend, None)
            except _UNLOADABLE as error:
                self._failed(key, str(error))
                continue
            self._problems.pop(key, None)
            self._loaded[key] = (backend, recipe)
            _report(recipe)

    def close(self) -> None:
        """Let the threads end that long prompts are made in."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _missing(self) -> Mapping[str, SGLangBackend]:
        """Return the backends whose recipe is not loaded, or is that of an older version."""
        return {key: each for key, each in self._wanted.items() if self._lacks(key) is not None}

    def _lacks(self, key: str) -> SGLangBackend | None:
        """Return backend *key* if its recipe is not loaded, or is that of an older version."""
        backend, loaded = self._wanted.get(key), self._loaded.get(key)
        if backend is None or (loaded is not None and _needs_same(loaded[0], backend)):
            return None
        return backend

    def _adopted(self, backend_key: str) -> None:
        """Load anew, because the workers of *backend_key* have another tokenizer than before."""
        loaded = self._loaded.get(backend_key)
        if loaded is not None and loaded[0].spec.tokenizer.is_from_worker:
            del self._loaded[backend_key]
        self._changed.set()
        if backend_key in self._wakes:
            self._wakes[backend_key].set()

    async def _load_until_there(self, key: str) -> None:
        """Load the recipe of *key*, ever more rarely while that fails, as long as it is wanted."""
        wake, pause = self._wakes[key], _FIRST_RETRY
        try:
            while (backend := self._lacks(key)) is not None:
                wake.clear()
                try:
                    await self._load(key, backend)
                except Exception:
                    # One backend's files must not end the loading of every other's.
                    logger.exception("loading broke", extra={"backend": key})
                    self._failed(key, "its loading broke; the router's log says how")
                if self._lacks(key) is None:
                    return
                try:
                    async with asyncio.timeout(pause):
                        await wake.wait()
                    pause = _FIRST_RETRY
                except TimeoutError:
                    pause = min(pause * 2, _LAST_RETRY)
        finally:
            del self._wakes[key]

    async def _load(self, key: str, backend: SGLangBackend) -> None:
        from_worker = backend.spec.tokenizer.is_from_worker
        folder = self._bundles.folder(key) if from_worker else None
        if from_worker and folder is None:
            self._failed(key, "no worker has sent its tokenizer yet")
            return
        try:
            async with self._loads:
                recipe = await asyncio.to_thread(self._load_now, backend, folder)
        except _UNLOADABLE as error:
            self._failed(key, str(error))
            return
        wanted = self._wanted.get(key)
        if wanted is None or not _needs_same(backend, wanted):
            return  # the backend changed while its recipe was loading
        if from_worker and self._bundles.folder(key) != folder:
            return  # its workers did
        recipe.tokenizer.warm()  # in this thread, which encodes: not while the first chat waits
        self._problems.pop(key, None)
        self._loaded[key] = (backend, recipe)
        _report(recipe)

    def _load_now(self, backend: SGLangBackend, folder: Folder | None) -> Recipe:
        return load_recipe(
            backend,
            folder or named_folder(backend),
            threads=self._threads,
            cache_dir=self._cache_dir,
            max_prompt_chars=self._max_prompt_chars,
        )

    def _failed(self, key: str, problem: str) -> None:
        if key in self._wanted and self._problems.get(key) != problem:
            message = "recipe unavailable"
            if key in self._loaded:
                message += ", the last good one stays in force"
            source = named_source(self._wanted[key])
            logger.warning(message, extra={"backend": key, "source": source, "reason": problem})
            self._problems[key] = problem


def _nothing(_backend_key: str) -> None:
    """No worker has said anything."""


def _report(recipe: Recipe) -> None:
    logger.info(
        "recipe loaded",
        extra={
            "backend": recipe.backend_key,
            "source": recipe.source,
            "encoder": recipe.tokenizer.encoder_name,
            "encoder_reason": recipe.tokenizer.encoder_reason,
            "tool_format": recipe.tool_format and recipe.tool_format.name,
            "reasoning_format": recipe.reasoning_format and recipe.reasoning_format.name,
            "formats_reason": recipe.formats_reason,
        },
    )


def _needs_same(one: SGLangBackend, other: SGLangBackend) -> bool:
    """Return whether two versions of a backend need the same recipe."""
    return (one.spec.tokenizer, one.spec.parsers, one.spec.model.name) == (
        other.spec.tokenizer,
        other.spec.parsers,
        other.spec.model.name,
    )


def _may_stay(one: SGLangBackend, other: SGLangBackend) -> bool:
    """Return whether the recipe of *one* may serve *other* until that one's own is loaded.

    With another name and another tokenizer it is another model, to which the ids would mean
    nothing.
    """
    return (
        one.spec.tokenizer == other.spec.tokenizer or one.spec.model.name == other.spec.model.name
    )
