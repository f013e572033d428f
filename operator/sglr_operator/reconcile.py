"""The walk of one change: a dirty backend becomes an update for routers and a status.

Nothing here is told what changed, only that something may have: everything is read anew from the
caches, and equal content stops early. State: the dirty backends with the times they were marked,
and the last good spec of each backend. Runs while this replica leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from sglr_operator import endpoints
from sglr_operator.caches import Caches, wanted_by
from sglr_operator.compose import Ledger, Material, Permits, conflicts, lost_most, resolve
from sglr_operator.conditions import Facts, status_of
from sglr_operator.config import DebounceConfig
from sglr_operator.endpoints import Found
from sglr_operator.metrics import Metrics
from sglr_operator.objects import BackendObject
from sglr_operator.publish import Publisher
from sglr_operator.reflector import Key
from sglr_operator.status import READY, BackendStatus, EndpointCounts, condition
from sglr_operator.statuses import Note, StatusWriter, gather_limited
from sglr_proto.backend import API_VERSION, KIND, ManifestError, SGLangBackend, decode_backend
from sglr_proto.snapshot import BackendSnapshot, EndpointState, Snapshot

logger = logging.getLogger(__name__)

_WRITERS: Final = 8
"""Status writes at once: enough for a thousand backends at a start, few enough for any server."""

_AT_ONCE: Final = 20
"""Backends composed before others get a turn: about 10 ms for small ones."""
_LOOK: Final = 1.0
"""Seconds between two looks at routers that owe an answer: their silence makes no event."""


@dataclass(slots=True)
class _Known:
    """One backend as reconciled last."""

    object: BackendObject
    backend: SGLangBackend | None
    """The last good spec; None when there never was one."""
    problem: str = ""
    """Why the newest spec is refused."""
    found: Found = field(default_factory=Found)
    material: Material | None = None
    """The last spec everything of which could be resolved, with that."""
    version: int = 0
    published: BackendSnapshot | None = None
    oversize: str = ""
    """Why the newest version was not sent."""
    notes: list[Note] = field(default_factory=list[Note])
    """Events that no condition tells, to be posted."""


class Reconciler:
    """From caches to routers and statuses."""

    def __init__(
        self,
        caches: Caches,
        publisher: Publisher,
        statuses: StatusWriter,
        *,
        config: DebounceConfig,
        operator: str,
        crd_problem: Callable[[], str],
        permits: Permits,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        """Prepare one leadership of *operator*; nothing is read before :meth:`start`."""
        self._operator = operator
        self._crd_problem = crd_problem
        self._permits = permits
        self._caches = caches
        self._publisher = publisher
        self._statuses = statuses
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._ledger = Ledger()
        self._known: dict[Key, _Known] = {}
        self._conflicts: dict[str, str] = {}
        self._dirty: dict[Key, tuple[float, float]] = {}
        """By backend: when it was first and last marked since it was reconciled."""
        self._untold: set[Key] = set()
        """Backends whose status may have to be written."""
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Reconciler {len(self._known)} known, {len(self._dirty)} dirty>"

    # What others tell.

    def mark(self, keys: Iterable[Key]) -> None:
        """Note that something about these backends may have changed."""
        now = self._clock()
        for key in keys:
            first, _ = self._dirty.get(key, (now, now))
            self._dirty[key] = (first, now)
        self._wake.set()

    def mark_status(self, key: str) -> None:
        """Note that routers said something about a backend; *key* is ``namespace/name``."""
        namespace, _, name = key.partition("/")
        self._untold.add((namespace, name))
        self._wake.set()

    def snapshot(self) -> Snapshot:
        """Return everything that routers are told now, without what Secrets hold."""
        told = [known.published for _, known in sorted(self._known.items())]
        backends = tuple(
            msgspec.structs.replace(each, resolved=None) for each in told if each is not None
        )
        return Snapshot(
            epoch=self._publisher.epoch,
            version=sum(each.version for each in backends),
            backends=backends,
        )

    # The walk.

    async def start(self) -> None:
        """Reconcile everything, then let the publisher speak.

        The caches must be synced: from here on an absence is a removal.
        """
        now = self._clock()
        self._dirty = {item.metadata.key: (now, now) for item in self._caches.backends()}
        await self._reconcile(list(self._dirty))
        self._publisher.complete(self._existing())

    async def run(self) -> None:
        """Reconcile what is marked and write statuses, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_statuses())
            while True:
                due, wait = self._due()
                if due:
                    await self._reconcile(due)
                    self._publisher.complete(self._existing())
                    continue
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                self._wake.clear()

    def _due(self) -> tuple[list[Key], float | None]:
        """Return the backends that were quiet long enough, or else how long to wait for one."""
        now = self._clock()
        times = {
            key: min(last + self._config.quiet, first + self._config.most)
            for key, (first, last) in self._dirty.items()
        }
        due = [key for key, time in times.items() if time <= now]
        return due, min(times.values(), default=now) - now if times else None

    async def _reconcile(self, keys: list[Key]) -> None:
        since = {key: self._dirty.pop(key)[0] for key in keys}
        for key in keys:
            self._apart(key, partial(self._read, key))
        # Before anything is composed: a name's owner may be read after the one that loses it.
        for loser in self._find_conflicts():
            since.setdefault(loser, self._clock())
        for number, (key, first) in enumerate(since.items()):
            self._apart(key, partial(self._compose, key, first))
            if number % _AT_ONCE == _AT_ONCE - 1:
                # A thousand backends take a second; the Lease and the routers must not wait.
                await asyncio.sleep(0)
        self._count()

    def _apart(self, key: Key, step: Callable[[], None]) -> None:
        """Take one step of one backend; whatever goes wrong in it stops no other backend."""
        try:
            step()
        except Exception:
            # The top of this backend's walk: a bug that one object brings out must not take
            # endpoint lists away from all the others.
            logger.exception("backend not reconciled", extra={"backend": key})
            self._metrics.composed.labels("bug").inc()

    def _read(self, key: Key) -> None:
        """Take over the newest spec of *key*, or keep the last good one and say why."""
        item = self._caches.backend(key)
        if item is None:
            self._known.pop(key, None)
            self._caches.depends(key, None)
            return
        known = self._known.get(key)
        if known is not None and known.backend is not None and known.object.spec == item.spec:
            known.object = item
            return
        known = self._known.setdefault(key, _Known(item, None))
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": key[1], "namespace": key[0]},
            "spec": item.spec,
        }
        try:
            known.backend = decode_backend(document, lenient=True)
            known.problem = ""
        except ManifestError as error:
            known.problem = error.problem
            self._metrics.composed.labels("invalid").inc()
        known.object = item
        if known.backend is not None:
            self._caches.depends(key, wanted_by(known.backend))

    def _find_conflicts(self) -> list[Key]:
        """Return the backends that lost or regained their model's name since the last time."""
        before = self._conflicts
        self._conflicts = dict(
            conflicts(
                (known.object.metadata, known.backend)
                for known in self._known.values()
                if known.backend is not None
            )
        )
        changed = {key for key, _ in before.items() ^ self._conflicts.items()}
        return [key for key in self._known if "/".join(key) in changed]

    def _compose(self, key: Key, since: float) -> None:
        """Tell routers what is new about *key*."""
        known = self._known.get(key)
        if known is None or known.backend is None or "/".join(key) in self._conflicts:
            removed = self._ledger.remove("/".join(key))
            if removed is not None:
                self._publisher.remove(removed, since=since)
            if known is None:
                self._statuses.forget(key)
            else:
                known.found, known.version, known.published = Found(), 0, None
                known.material = None
                known.oversize = ""
                self._untold.add(key)
            return
        known.found = endpoints.find(known.backend, self._caches)
        self._untold.add(key)
        resolved = resolve(known.backend, self._caches, self._permits)
        if isinstance(resolved, Material):
            known.material = resolved
        else:
            known.found = replace(known.found, problem=resolved)
        if known.material is None:
            # Routers keep what they had of it, if they had anything.
            self._metrics.composed.labels("unresolved").inc()
            return
        composed = self._ledger.enter(
            known.material.backend, known.found.endpoints, known.material.resolved
        )
        if composed is None:
            self._metrics.composed.labels("unchanged").inc()
            return
        self._metrics.composed.labels("changed").inc()
        if lost_most(known.published, composed.snapshot):
            self._metrics.mass_losses.inc()
            known.notes.append(
                Note("Warning", "MassEndpointLoss", "More than half of the ready endpoints left.")
            )
        known.oversize = ""
        size = self._publisher.publish(composed, since=since)
        if size > self._publisher.max_update:
            self._metrics.composed.labels("too large").inc()
            known.oversize = (
                f"The update has {size} bytes for {len(composed.snapshot.endpoints)} endpoints, and"
                f" at most {self._publisher.max_update} are sent: divide the workers among several backends."
                " Routers keep the last version that was sent."
            )
            return
        known.version, known.published = composed.version, composed.snapshot

    def _existing(self) -> frozenset[str]:
        """Return the backends that routers may keep.

        One with an unusable spec and no good one is among them: routers keep what they had of it.
        One that lost its model's name is not.
        """
        return frozenset("/".join(key) for key in self._known) - self._conflicts.keys()

    def _count(self) -> None:
        for state in EndpointState:
            total = sum(known.found.count(state) for known in self._known.values())
            self._metrics.endpoints.labels(state.value.lower()).set(total)

    # Statuses.

    async def _write_statuses(self) -> None:
        """Write what is untold, each backend at its own pace."""
        looked = self._clock()
        while True:
            ready = [key for key in self._untold if not self._statuses.wait(key)]
            self._untold.difference_update(ready)
            await gather_limited([partial(self._tell, key) for key in ready], at_once=_WRITERS)
            await asyncio.sleep(self._config.quiet)
            if self._clock() - looked >= _LOOK:
                looked = self._clock()
                self._untold.update(
                    key for key in self._known if self._publisher.is_awaited("/".join(key))
                )

    async def _tell(self, key: Key) -> None:
        """Write the status of *key* and post its Events, if there is news."""
        known = self._known.get(key)
        item = self._caches.backend(key)
        if known is None or item is None:
            return
        last = self._statuses.last(key)
        previous = last or item.status
        status = status_of(self._facts(key, known), previous, self._statuses.rfc3339())
        notes = _notes(previous, status) + known.notes
        if other := self._statuses.yields_to(key, item.status):
            self._untold.add(key)
            words = f"{other} and {self._operator} both write this status; {other} goes on."
            await self._statuses.post(item.metadata, Note("Warning", "TwoOperators", words))
            return
        known.notes = []
        if not self._statuses.stands(key, status, item.status) and not await self._statuses.write(
            key, status, item.status
        ):
            known.notes = notes
            self._untold.add(key)
            return
        for note in notes:
            await self._statuses.post(item.metadata, note)

    def _facts(self, key: Key, known: _Known) -> Facts:
        name = "/".join(key)
        return Facts(
            generation=known.object.metadata.generation,
            found=known.found,
            routers=self._publisher.view(name),
            epoch=self._publisher.epoch,
            version=known.version,
            operator=self._operator,
            crd_problem=self._crd_problem(),
            oversize=known.oversize,
            spec_problem=known.problem,
            conflict=self._conflicts.get(name, ""),
            models=known.backend.spec.model.names if known.backend is not None else (),
        )


def _notes(previous: BackendStatus | None, status: BackendStatus) -> list[Note]:
    """Return the Events that tell the way from one status to the next."""
    notes: list[Note] = []
    for now in status.conditions:
        if now.type == READY:
            continue
        before = condition(previous, now.type) if previous is not None else None
        if before is not None and (before.status, before.reason) == (now.status, now.reason):
            continue
        if now.status == "False":
            notes.append(Note("Warning", now.reason, now.message))
        elif now.status == "True" and (before is None or before.status != "True"):
            notes.append(Note("Normal", now.reason, now.message))
    if previous is not None and previous.endpoints != status.endpoints:
        notes.append(Note("Normal", "EndpointsChanged", _counted(status.endpoints)))
    return notes


def _counted(endpoints: EndpointCounts) -> str:
    return f"{endpoints.ready} of {endpoints.total} endpoints ready, {endpoints.draining} draining."
