"""A list-replacing cache of one resource.

What the API server lists is the truth, and replaces everything held. A watch only says what
changed since; it is never trusted to report a removal that happened while it was down. So every
watch that ends, for whatever reason, is followed by a full list, and every list is compared with
what is held, by value.

State: an empty store that is not synced; from the first list on, the store of the newest list
plus the events since. Errors keep the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, Literal, Protocol, TypeVar

from sglr_operator.config import WatchConfig
from sglr_operator.errors import (
    ExpiredError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    StatusError,
    UnreachableError,
)
from sglr_operator.metrics import Metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name."""
Failure = Literal["", "expired", "forbidden", "not served", "silent", "stale list", "error", "bug"]

_STALE_LISTS = 5
"""Lists older than what was already seen that are refused in a row. After that the server's
history itself went back (etcd restored from a backup), and the list is the truth again."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A complete list at one version."""

    objects: Mapping[Key, T]
    version: str


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One line of a watch; *object* is None for bookmarks and deletions, *key* for bookmarks."""

    version: str
    key: Key | None = None
    object: T | None = None


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One object came (*old* is None), changed, or went (*new* is None)."""

    key: Key
    old: T | None
    new: T | None


class Source(Protocol[T]):
    """Where a reflector reads from."""

    async def list(self) -> Listing[T]:
        """Return everything there is.

        Raises:
            KubeError: The list could not be read to its end.
        """
        ...

    def watch(self, version: str) -> AsyncGenerator[Event[T]]:
        """Yield what changed since *version*, until the server ends the stream.

        Raises:
            KubeError: The stream ended otherwise.
        """
        ...


class SilentError(KubeError):
    """A watch delivered neither an event nor a bookmark for too long."""


class StaleListError(KubeError):
    """A list is older than what the same server has already shown."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock, sleep and chance, as arguments so that tests need neither time nor luck."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]
    """A number in [0, 1)."""


class Reflector(Generic[T]):
    """The cache of one resource in one namespace, or in all."""

    def __init__(
        self,
        resource: str,
        source: Source[T],
        changed: Callable[[tuple[Change[T], ...]], None],
        *,
        config: WatchConfig,
        timing: Timing,
        metrics: Metrics,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            resource: The name in logs and metrics, such as ``pods``.
            source: Where to list and watch.
            changed: Called with what a list or an event changed; never with nothing. Also called
                with ``()`` once, when the first list is complete.
            config: Deadlines and backoff.
            timing: Clock, sleep and chance.
            metrics: Where lists, failures and sizes are counted.
        """
        self.resource = resource
        self.synced = False
        self.failure: Failure = ""
        """What keeps the cache from being current; empty while it is."""
        self.problem = ""
        """The same as a sentence."""
        self.last_attempt = timing.clock()
        """When the reflector last asked or heard anything, by the given clock."""
        self.last_contact: float | None = None
        """When the API server last said anything; None before the first list."""
        self._source = source
        self._changed = changed
        self._config = config
        self._timing = timing
        self._metrics = metrics
        self._store: dict[Key, T] = {}
        self._newest = 0
        self._stale = 0
        self._failures = 0
        self._bookmarks = False
        """Whether a watch of this resource ever brought one."""

    def __repr__(self) -> str:
        state = self.failure or ("synced" if self.synced else "not synced")
        return f"<Reflector {self.resource}: {len(self._store)} objects, {state}>"

    @property
    def objects(self) -> Mapping[Key, T]:
        """Everything held, by namespace and name; a live, read-only view."""
        return MappingProxyType(self._store)

    async def run(self) -> None:
        """List and watch until cancelled; no error ends it."""
        cause = "start"
        while True:
            began = self._timing.clock()
            try:
                await self._round(cause)
            except KubeError as error:
                delay = self._failed(error, began)
                cause = self.failure
            except Exception:
                # The top of this task: a bug in one reflector must not leave a cache that
                # looks alive and never changes.
                logger.exception("reflector failed", extra={"resource": self.resource})
                self._note("bug", "The reflector failed; the log holds the traceback.")
                delay = self._backoff(None)
                cause = "bug"
            else:
                delay = 0.0 if self._was_steady(began) else self._backoff(None)
                cause = "watch ended"
            if delay:
                await self._timing.sleep(delay)

    async def _round(self, cause: str) -> None:
        """Read one full list, then follow the watch to its end."""
        self.last_attempt = self._timing.clock()
        listing = await self._source.list()
        self._refuse_stale(listing)
        self._metrics.lists.labels(self.resource, cause).inc()
        self._replace(listing)
        version = listing.version
        async with aclosing(self._source.watch(version)) as events:
            while (event := await self._next(events)) is not None:
                self._heard(by_watch=True)
                version = self._apply(event, version)

    async def _next(self, events: AsyncGenerator[Event[T]]) -> Event[T] | None:
        """Return the next event; None at the end of the stream."""
        try:
            async with asyncio.timeout(self._config.silence):
                event = await anext(events, None)
        except TimeoutError as error:
            if not self._bookmarks:
                # Servers before 1.21 send none for a resource that nobody has written since they
                # started. Silence then means nothing; the list that follows settles it either way.
                return None
            raise SilentError(
                f"The watch of {self.resource} delivered nothing for {self._config.silence} s,"
                " although bookmarks come every 60 s."
            ) from error
        self._bookmarks = self._bookmarks or (event is not None and event.key is None)
        return event

    def _refuse_stale(self, listing: Listing[T]) -> None:
        version = _number(listing.version)
        if version < self._newest and self._stale < _STALE_LISTS:
            self._stale += 1
            raise StaleListError(
                f"A list of {self.resource} is at version {listing.version!r},"
                f" but {self._newest} was already seen."
            )
        self._stale = 0
        self._newest = version

    def _replace(self, listing: Listing[T]) -> None:
        """Make *listing* the store, and report what differs."""
        old = self._store
        self._store = dict(listing.objects)
        changes = [
            Change(key, old.get(key), new)
            for key, new in self._store.items()
            if old.get(key) != new
        ]
        changes += [Change(key, gone, None) for key, gone in old.items() if key not in self._store]
        first = not self.synced
        self.synced = True
        self._heard(by_watch=False)
        if changes or first:
            self._report(tuple(changes))

    def _apply(self, event: Event[T], version: str) -> str:
        """Apply *event* and return the version the stream is at."""
        number = _number(event.version)
        if number <= _number(version):
            # A replayed line: a version is never older than the one the watch started from.
            return version
        self._newest = max(self._newest, number)
        if event.key is not None:
            old = self._store.get(event.key)
            if event.object is None:
                self._store.pop(event.key, None)
            else:
                self._store[event.key] = event.object
            if old != event.object:
                self._report((Change(event.key, old, event.object),))
        return event.version

    def _report(self, changes: tuple[Change[T], ...]) -> None:
        self._metrics.objects.labels(self.resource).set(len(self._store))
        self._changed(changes)

    def _heard(self, *, by_watch: bool) -> None:
        self.last_attempt = self.last_contact = self._timing.clock()
        # A list says nothing about whether watches work again.
        if self.failure and (by_watch or self.failure not in {"expired", "silent"}):
            logger.info("cache is current again", extra={"resource": self.resource})
            self.failure, self.problem = "", ""

    def _was_steady(self, began: float) -> bool:
        """Return whether the round since *began* was a normal one; if so, forget failures."""
        if self._timing.clock() - began < self._config.steady_after:
            return False
        self._failures = 0
        return True

    def _failed(self, error: KubeError, began: float) -> float:
        """Note *error* and return how long to wait before the next list."""
        self._note(_failure(error), str(error))
        self._was_steady(began)
        if isinstance(error, ExpiredError | SilentError) and self._failures == 0:
            # The first time a list at once is all it takes; a server that always says so must
            # not be asked in a loop.
            self._failures = 1
            return 0.0
        return self._backoff(error.retry_after if isinstance(error, StatusError) else None)

    def _note(self, failure: Failure, problem: str) -> None:
        self._metrics.watch_failures.labels(self.resource, failure).inc()
        if failure != self.failure:
            # Once per change of state: an API server that is away for an hour is one line.
            logger.warning(
                "cache is not current",
                extra={"resource": self.resource, "failure": failure, "problem": problem},
            )
        self.failure, self.problem = failure, problem

    def _backoff(self, retry_after: float | None) -> float:
        self._failures += 1
        limit = min(
            self._config.backoff_most,
            self._config.backoff_first * 2.0 ** min(self._failures - 1, 16),
        )
        jittered = limit * (0.5 + 0.5 * self._timing.chance())
        return jittered if retry_after is None else retry_after + jittered


def _failure(error: KubeError) -> Failure:
    kinds: tuple[tuple[type[KubeError], Failure], ...] = (
        (ExpiredError, "expired"),
        (ForbiddenError, "forbidden"),
        (NotFoundError, "not served"),
        (SilentError, "silent"),
        (StaleListError, "stale list"),
        (UnreachableError, "error"),
    )
    for kind, name in kinds:
        if isinstance(error, kind):
            return name
    return "error"


def _number(version: str) -> int:
    """Return *version* as a number; 0 when it is none, so that it never counts as newer.

    Kubernetes documents resource versions as comparable decimal numbers since 1.35, and every
    older release writes etcd's revision.
    """
    return int(version) if version.isascii() and version.isdigit() else 0
