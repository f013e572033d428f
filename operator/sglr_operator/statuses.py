"""Writes statuses and Events, and no more of them than there is news.

A status is written by server-side apply, whole each time, under our own field manager; only when
it differs from what the API server has; and per backend at most once in a while. State: what was
written last, and when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from sglr_operator.config import StatusConfig
from sglr_operator.errors import KubeError, NotFoundError
from sglr_operator.kube import Kube
from sglr_operator.metrics import Metrics
from sglr_operator.objects import ObjectMeta
from sglr_operator.reflector import Key
from sglr_operator.resources import BACKENDS, EVENTS
from sglr_operator.schema import PLURAL
from sglr_operator.status import BackendStatus
from sglr_proto.backend import API_VERSION, GROUP, KIND

logger = logging.getLogger(__name__)

MANAGER: Final = "sglr-operator"

_RETRY: Final = 2.0
"""Seconds before a write that failed is tried again; the level is kept, so nothing is lost."""

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Note:
    """An Event to post about a backend."""

    type: EventType
    reason: str
    message: str


class _Answer(msgspec.Struct, frozen=True):
    status: BackendStatus | None = None


class StatusWriter:
    """The writer of one leadership."""

    def __init__(
        self,
        kube: Kube,
        config: StatusConfig,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        may_write: Callable[[], bool],
        operator: str,
    ) -> None:
        """Write through *kube* as *operator*, while *may_write* says that this replica leads."""
        self._operator = operator
        self._kube = kube
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._may_write = may_write
        self._written: dict[Key, tuple[BackendStatus, BackendStatus | None]] = {}
        """What was written, and what the cache held at that time."""
        self._next: dict[Key, float] = {}
        """By backend: the earliest time of the next write."""
        self._foreign: str = ""
        """Another operator that writes the same statuses, as it was told last."""
        self._posted: dict[tuple[Key, str], float] = {}
        self._is_pruned = False

    def __repr__(self) -> str:
        return f"<StatusWriter {len(self._written)} written>"

    def wait(self, key: Key) -> float:
        """Return how many seconds the next write about *key* must wait; 0 when it may come."""
        return max(0.0, self._next.get(key, 0.0) - self._clock())

    def last(self, key: Key) -> BackendStatus | None:
        """Return what was written last about *key*."""
        written = self._written.get(key)
        return written[0] if written is not None else None

    def stands(self, key: Key, status: BackendStatus, seen: BackendStatus | None) -> bool:
        """Return whether nothing is to be written: *seen* is what the cache has now.

        It may be what was there before our last write, which the cache has not heard of yet.
        Anything else was written by somebody else, and is replaced.
        """
        return seen == status or self._written.get(key) == (status, seen)

    def yields_to(self, key: Key, seen: BackendStatus | None) -> str:
        """Return which other operator the status of *key* is left to; ``""`` when to none.

        Two operators with different Leases over one namespace would overwrite each other for
        ever. The one whose Lease comes first by name writes; the other one says so and tries again
        now and then, in case it is alone by then.
        """
        written = self._written.get(key)
        foreign = seen.operator if seen is not None else ""
        if written is None or seen in written or foreign in {"", self._operator}:
            return ""
        self._metrics.foreign_writes.inc()
        if self._foreign != foreign:
            self._foreign = foreign
            logger.error(
                "another operator writes the same statuses; let one of them watch a namespace",
                extra={"backend": key, "operator": self._operator, "other": foreign},
            )
        if self._operator < foreign:
            return ""
        self._next[key] = self._clock() + self._config.yield_interval
        # The next attempt is a first one: whoever overwrites it is still there.
        del self._written[key]
        return foreign

    def forget(self, key: Key) -> None:
        """Drop what is known about a backend that is gone."""
        self._written.pop(key, None)
        self._next.pop(key, None)
        for known in [known for known in self._posted if known[0] == key]:
            del self._posted[known]

    def rfc3339(self) -> str:
        """Return the time as conditions have it."""
        return self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def write(self, key: Key, status: BackendStatus, seen: BackendStatus | None) -> bool:
        """Write *status* and return whether it stands; on False the caller tries again later."""
        if not self._may_write():
            return False
        self._next[key] = self._clock() + self._config.interval
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": key[1], "namespace": key[0]},
            "status": msgspec.to_builtins(status),
        }
        try:
            answer = await self._kube.apply(BACKENDS.path(*key, "status"), body, manager=MANAGER)
        except NotFoundError:
            self.forget(key)
            return True
        except KubeError as error:
            self._metrics.status_writes.labels("failed").inc()
            self._next[key] = self._clock() + _RETRY
            logger.warning("status not written", extra={"backend": key, "problem": str(error)})
            return False
        self._metrics.status_writes.labels("ok").inc()
        self._written[key] = (status, seen)
        self._look_for_pruning(answer, status)
        return True

    async def post(self, meta: ObjectMeta, note: Note) -> None:
        """Post an Event, unless one with the same reason was posted a moment ago."""
        known = (meta.key, note.reason)
        now = self._clock()
        if self._posted.get(known, -1e9) > now - self._config.event_interval:
            return
        if not self._may_write():
            return
        self._posted[known] = now
        try:
            await self._kube.create(EVENTS.path(meta.namespace), self._event(meta, note))
        except KubeError as error:
            # Events tell people; the conditions hold the truth, and are retried.
            logger.warning("event not posted", extra={"backend": meta.key, "problem": str(error)})

    def _event(self, meta: ObjectMeta, note: Note) -> dict[str, Any]:
        stamp = self.rfc3339()
        unique = f"{int(self._now().timestamp() * 1e6):x}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta.name}.{unique}", "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message[:1024],
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": MANAGER,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }

    def _look_for_pruning(self, answer: bytes, status: BackendStatus) -> None:
        """Say once that the served schema drops what we write: the CRD is older than we are."""
        try:
            kept = msgspec.json.decode(answer, type=_Answer).status
        except msgspec.MsgspecError:
            kept = None
        if kept != status and not self._is_pruned:
            self._is_pruned = True
            logger.error(
                "the CRD is too old: it drops parts of the status; apply the current one",
                extra={"crd": f"{PLURAL}.{GROUP}"},
            )


async def gather_limited(jobs: list[Callable[[], Awaitable[None]]], *, at_once: int) -> None:
    """Run coroutine functions, *at_once* of them at a time."""
    waiting = list(reversed(jobs))

    async def work() -> None:
        while waiting:
            await waiting.pop()()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, len(jobs))):
            tasks.create_task(work())
