"""The operator process: who owns what, who starts when, and how it ends.

One loop holds the reflectors, the elector, the push server and the HTTP server; kopf has a thread
and a loop of its own. Caches are followed by every replica, so that a standby is warm; pushing,
statuses and kopf belong to the leader, and the push port is bound by the leader alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, Final

from kubernetes.aio.client import ApiClient

from sglr_operator.caches import Caches
from sglr_operator.cluster import CacheBuilder, crd_problem, credentials, slices_of
from sglr_operator.config import Address, OperatorConfig
from sglr_operator.elector import Clocks, Elector
from sglr_operator.errors import KubeError, OperatorError
from sglr_operator.kube import Kube
from sglr_operator.leadership import Leadership
from sglr_operator.metrics import Metrics
from sglr_operator.probes import debug_app, health_app, serving
from sglr_operator.reflector import Key, Timing
from sglr_operator.resources import POOLS, Resource
from sglr_proto.snapshot import Epoch

logger = logging.getLogger(__name__)

_POOLS_EVERY: Final = 60.0
"""Seconds between two looks whether InferencePools are served by now."""
_CRD_EVERY: Final = 60.0
"""Seconds between two looks at the definition that is served: an upgrade of it needs no restart."""


def since_boot() -> float:
    """Return seconds that also pass while the process is stopped or the machine sleeps.

    A leader that was frozen must find out by its own clock that its time is over.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Operator:
    """One replica."""

    def __init__(self, config: OperatorConfig, metrics: Metrics) -> None:
        """Build what needs no network; :meth:`run` does the rest."""
        self._config = config
        self._metrics = metrics
        self._stopping = asyncio.Event()
        self._leadership: Leadership | None = None
        self._elector: Elector | None = None
        self._problem = "The operator is starting."
        self._crd_problem = ""
        self._caches = Caches(
            lambda keys: self._leadership.mark(keys) if self._leadership is not None else None,
            self._status_seen,
        )
        self.http_port: int | None = None
        """Where health and metrics are served; None before :meth:`run`."""
        self.debug_port: int | None = None
        """Where the debug page is served; None when it is not."""

    def __repr__(self) -> str:
        return f"<Operator {self._config.lease.identity} leads={self.leads}>"

    @property
    def leads(self) -> bool:
        """Whether this replica pushes and writes at this moment."""
        return self._elector is not None and self._elector.leads

    @property
    def push_port(self) -> int | None:
        """Where routers are served; None while this replica does not lead."""
        return self._leadership.port if self._leadership is not None else None

    @property
    def leadership(self) -> Leadership | None:
        """The leader's work; None before the API server was found."""
        return self._leadership

    def stop(self) -> None:
        """Begin the end: readiness goes, routers are sent away, the Lease is released."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until :meth:`stop`.

        Raises:
            OperatorError: The API server cannot be found, or an address is taken.
        """
        configuration = await credentials(self._config.kubeconfig)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(ApiClient(configuration))
            self.http_port = (await self._serve_http(stack)).port
            kube = Kube(client)
            clocks = Clocks(since_boot, lambda: datetime.now(UTC), asyncio.sleep)
            elector = self._elector = Elector(kube, self._config.lease, clocks)
            self._leadership = Leadership(
                self._config,
                self._caches,
                kube=kube,
                elector=elector,
                configuration=configuration,
                metrics=self._metrics,
                clock=since_boot,
                failed=self.stop,
                crd_problem=lambda: self._crd_problem,
            )
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow(kube))
                await self._lead(elector, self._leadership)
                following.cancel()

    async def _lead(self, elector: Elector, leadership: Leadership) -> None:
        """Lead whenever elected, until the end."""
        while not self._stopping.is_set():
            epoch = await self._elected(elector)
            if epoch is not None:
                await leadership.reign(epoch, self._stopping)

    async def _elected(self, elector: Elector) -> Epoch | None:
        """Return the epoch of a new leadership; None when the end comes first."""
        acquiring = asyncio.ensure_future(elector.acquire())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return acquiring.result() if acquiring.done() else None
        finally:
            acquiring.cancel()
            stopping.cancel()

    # Following.

    async def _follow(self, kube: Kube) -> None:
        """Keep the caches, for ever."""
        timing = Timing(since_boot, asyncio.sleep, random.random)
        builder = CacheBuilder(
            kube, self._config, self._caches, timing=timing, metrics=self._metrics
        )
        builder.build(await self._slices(kube))
        self._problem = ""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._caches.reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._look_at_crd(kube))
            while not await self._serves_pools(kube):  # noqa: ASYNC110  # the API server tells nobody
                await asyncio.sleep(_POOLS_EVERY)
            for pools in builder.build_pools():
                tasks.create_task(pools.run())
            self._mark_all()

    async def _slices(self, kube: Kube) -> Resource:
        """Return the EndpointSlice API to follow, as soon as the API server says."""
        while True:
            try:
                return await slices_of(kube)
            except KubeError as error:
                if self._problem != str(error):
                    self._problem = str(error)
                    logger.warning("API server not reached", extra={"problem": self._problem})
            await asyncio.sleep(self._config.watch.backoff_first)

    async def _look_at_crd(self, kube: Kube) -> None:
        """Compare the served definition with ours, for ever; backends are served either way."""
        while True:
            with suppress(KubeError):
                problem = await crd_problem(kube)
                if problem != self._crd_problem:
                    self._crd_problem = problem
                    self._metrics.crd_outdated.set(bool(problem))
                    logger.error("the CRD is too old", extra={"problem": problem or "no more"})
                    self._mark_all()
            await asyncio.sleep(_CRD_EVERY)

    async def _serves_pools(self, kube: Kube) -> bool:
        try:
            return await kube.serves(POOLS)
        except KubeError:
            return False

    def _mark_all(self) -> None:
        if self._leadership is not None:
            self._leadership.mark([item.metadata.key for item in self._caches.backends()])

    def _status_seen(self, key: Key) -> None:
        if self._leadership is not None:
            self._leadership.mark_status("/".join(key))

    # HTTP.

    async def _serve_http(self, stack: AsyncExitStack) -> Address:
        app = health_app(
            live=self._live,
            ready=self._ready,
            refresh=self._refresh,
            registry=self._metrics.registry,
        )
        try:
            address = await stack.enter_async_context(serving(app, self._config.http))
            if self._config.debug is not None:
                debug = serving(debug_app(self._snapshot), self._config.debug)
                self.debug_port = (await stack.enter_async_context(debug)).port
        except OSError as error:
            raise OperatorError(f"The HTTP server cannot listen: {error}") from error
        return address

    def _live(self) -> tuple[str, ...]:
        """Return which reflectors have stopped even trying; a server that is away is no reason."""
        late = since_boot() - self._config.watch.dead_after
        return tuple(
            f"The watch of {each.resource} is dead: nothing was tried for too long."
            for each in self._caches.reflectors
            if each.last_attempt < late
        )

    def _ready(self) -> tuple[str, ...]:
        """Return why this replica is no use yet; a standby is ready, or rollouts would wait."""
        if self._stopping.is_set():
            return ("The operator is stopping.",)
        if self._problem:
            return (self._problem,)
        return tuple(
            f"{each.resource}: {each.problem or 'not listed yet.'}"
            for each in self._caches.reflectors
            if not each.synced or each.failure in {"forbidden", "not served"}
        )

    def _refresh(self) -> None:
        now = since_boot()
        for each in self._caches.reflectors:
            if each.last_contact is not None:
                self._metrics.stale_seconds.labels(each.resource).set(now - each.last_contact)

    def _snapshot(self) -> Mapping[str, Any]:
        leadership = self._leadership
        published: Mapping[str, Any] = (
            leadership.publisher.snapshot() if leadership is not None else {}
        )
        return {
            "leads": self.leads,
            "identity": self._config.lease.identity,
            "caches": [repr(each) for each in self._caches.reflectors],
            "published": published,
        }
