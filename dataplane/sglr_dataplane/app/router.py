"""One router process: its parts, and how they are joined."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route
from starlette.routing import Router as Routes

from sglr_dataplane.api.access import Access
from sglr_dataplane.api.auth import Guard
from sglr_dataplane.api.cors import open_to
from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.front_door import FrontDoor
from sglr_dataplane.api.http_protocol import COUNT_REFUSAL
from sglr_dataplane.api.models import Models
from sglr_dataplane.api.openapi import openapi
from sglr_dataplane.api.ops import Ops
from sglr_dataplane.api.routes import inference_endpoints
from sglr_dataplane.api.traces import new_tracing
from sglr_dataplane.fleet.across import AcrossCollector, families_of
from sglr_dataplane.fleet.ailments import BackendHealth, ailment
from sglr_dataplane.fleet.backend_keys import BackendKeys
from sglr_dataplane.fleet.credentials import CredentialFiles
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.engines import engine_for
from sglr_dataplane.fleet.keys import Keys
from sglr_dataplane.fleet.listener import Listener
from sglr_dataplane.fleet.manifest_file import ManifestFile
from sglr_dataplane.fleet.observe import FleetCollector, describe
from sglr_dataplane.fleet.prober import Prober
from sglr_dataplane.fleet.rates import Meter
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.shares import share_of_snapshot
from sglr_dataplane.fleet.siblings import Siblings, Standing
from sglr_dataplane.fleet.signpost import Signpost
from sglr_dataplane.metrics import RouterMetrics
from sglr_dataplane.recipe import Recipes

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable

    from starlette.types import ASGIApp

    from sglr_dataplane.config import RouterConfig
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.fleet.breaker import Outcome
    from sglr_dataplane.fleet.intake import Health, Intake
    from sglr_dataplane.fleet.intake_config import IntakeConfig
    from sglr_dataplane.fleet.worker import Worker
    from sglr_proto.snapshot import Snapshot

logger = logging.getLogger(__name__)


class FleetEndedError(Exception):
    """What follows the backends and their workers ended although the router serves."""


_READY_SECONDS: Final = 10.0
"""How long a process that takes another's place waits for workers before it accepts connections:
the others serve meanwhile, and a worker that does not answer may never."""
_LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Inherited:
    """What one process of several has from the supervisor that started it."""

    siblings: Siblings
    listener: socket.socket
    admin: socket.socket | None = None
    """The admin port's; None when there is none."""
    recipes: Recipes | None = None
    """Those loaded already, whose memory the processes share; None: each loads its own."""
    replaces: bool = False
    """Whether it takes the place of one that died, while the others serve."""


class Router:
    """One router process: its fleet, its recipes and its HTTP application."""

    def __init__(
        self,
        config: RouterConfig,
        operator: IntakeConfig | None = None,
        inherited: Inherited | None = None,
    ) -> None:
        """Build every part; nothing runs yet. With an *operator* there is no manifest."""
        self._config = config
        self._inherited = inherited
        self._siblings = inherited.siblings if inherited is not None else None
        self._processes = self._siblings.count if self._siblings is not None else 1
        self.metrics = RouterMetrics(self._siblings.folder if self._siblings is not None else None)
        self.registry = Registry(engine_for, processes=self._processes, zone=config.zone)
        self._gauges = FleetCollector(self.registry)
        self.metrics.exposed.register(
            self._gauges
            if self._siblings is None
            else AcrossCollector(self._gauges, self._siblings)
        )
        ready_made = inherited.recipes if inherited is not None else None
        self.recipes = ready_made or Recipes(
            config.cache_dir, max_prompt_chars=config.limits.max_prompt_chars
        )
        self.recipes.follow(Signpost(self.registry))
        self.recipes.listen(self.registry.facts)
        self.manifest = ManifestFile(config.manifest)
        self.intake = self._intake(operator) if operator is not None else None
        if self.intake is not None:
            self.registry.is_outdated = self.intake.is_outdated
        self.drain = Drain(config.drain)
        self.keys = Keys(config.keys, self._processes)
        self._meter = Meter(time.monotonic)
        self._tracing = new_tracing(config.tracing)
        self._dispatcher = Dispatcher(
            self.registry,
            on_outcome=self._count_attempt,
            meter=self._meter,
            stages=self.metrics.stages,
            tracer=self._tracing,
        )
        self.failure: Exception | None = None
        """Why the fleet is no longer tended; None while it is."""
        self.on_failure: Callable[[], None] = _unheard
        """Called when that happens: what is served from then on grows old."""
        self._backend_keys = BackendKeys()
        self.app = self._build_app()

    def apply(self, snapshot: Snapshot) -> None:
        """Make *snapshot* the truth: its workers and its models."""
        before = {each.key: each.spec.model.every_name for each in self.registry.backends()}
        self.registry.apply(share_of_snapshot(snapshot, self._processes))
        self.recipes.apply(snapshot)
        self._backend_keys.tell(snapshot)
        for key in before.keys() - self.registry.counts().keys():
            gone = [name for name in before[key] if not self.registry.routes.ways(name)]
            self.metrics.forget(key, gone)

    def load_manifest(self) -> None:
        """Put the manifest in force; with siblings, their last good one while it is broken.

        Raises:
            ManifestError: It is wrong, and there is no other.
        """
        kept = self._siblings.kept_manifest() if self._siblings is not None else None
        self._apply_manifest(self.manifest.load() if kept is None else self.manifest.load_or(kept))

    def _apply_manifest(self, snapshot: Snapshot) -> None:
        self.apply(snapshot)
        if self._siblings is not None and self.manifest.text is not None:
            self._siblings.keep_manifest(self.manifest.text)

    async def run_fleet(self) -> None:
        """Follow the operator or the manifest, load recipes and probe workers, for ever."""
        prober = Prober(self.registry, inspect=self.recipes.inspect)
        async with asyncio.TaskGroup() as group:
            if self.intake is not None:
                group.create_task(self.intake.run())
            else:
                group.create_task(
                    self.manifest.follow(
                        self._apply_manifest, interval=self._config.reload_interval
                    )
                )
            if self._siblings is not None:
                group.create_task(self._siblings.tell(self._standing))
            group.create_task(self.keys.follow(self._config.reload_interval))
            group.create_task(
                CredentialFiles().follow(
                    self.registry.backends, self.registry.reconnect, self._config.reload_interval
                )
            )
            group.create_task(self.recipes.load_as_needed())
            group.create_task(prober.run())
            group.create_task(Listener(self.registry).run())

    async def _keep_fleet(self) -> None:
        """Run the fleet until cancelled; should it end by itself, so does the router.

        Half a fleet would answer as if all were well: with workers that are gone, and deaf to
        every change. A new process starts from what is true.
        """
        try:
            await self.run_fleet()
            self.failure = FleetEndedError("It ended without an error.")
        except Exception as failure:
            logger.exception("fleet ended")
            self.failure = failure
        self.on_failure()

    def _standing(self) -> Standing:
        """Return what this process tells its siblings."""
        return Standing(
            self.drain.phase.value,
            self.drain.active,
            families_of(self._gauges),
            tuple(describe(self.registry, time.monotonic())),
        )

    def _intake(self, operator: IntakeConfig) -> Intake:
        # gRPC's own stack, which a router with a manifest has no use for: 15 MB, 0.1 s.
        from sglr_dataplane.fleet.intake import Intake

        return Intake(
            operator,
            apply=self.apply,
            health=self._health,
            metrics=self.metrics,
            clock=time.monotonic,
            chance=random.random,
        )

    def _health(self) -> Health:
        """Return which backends and workers can be used, for the operator."""
        return {
            key: BackendHealth(
                {
                    worker.id: None if worker.is_ready else ailment(worker)
                    for worker in self.registry.workers(key)
                },
                self.recipes.failure(key),
            )
            for key in self.registry.counts()
        }

    def _is_prepared(self, backend_key: str) -> bool:
        """Return whether there is a recipe; a backend of HTTP workers needs none."""
        return self.registry.is_http(backend_key) or self.recipes.get(backend_key) is not None

    def _count_attempt(self, worker: Worker, outcome: Outcome) -> None:
        self.metrics.attempted(worker.backend_key, outcome)

    def _build_app(self) -> ASGIApp:
        ops = Ops(
            self.registry,
            self.recipes,
            self.metrics,
            self.drain,
            self.intake,
            manifest=self.manifest if self.intake is None else None,
            is_alive=lambda: self.failure is None,
        )
        models = Models(self.registry, self.recipes, created=int(time.time()))
        others = Routes(
            routes=[
                Route("/openapi.json", openapi),
                Route("/", ops.version),
                Route("/v1/models", models.all),
                Route("/v1/models/{id:path}", models.one),
                Route("/livez", ops.livez),
                Route("/readyz", ops.readyz),
                Route("/health", ops.health),
                Route("/metrics", ops.metrics),
                Route("/version", ops.version),
            ],
            lifespan=lambda _: self.running(),
        )
        door = FrontDoor(
            inference_endpoints(
                self.recipes, self.registry, self._dispatcher, self.metrics, self._config
            ),
            others,
            guard=Guard(keys=self.keys, backend_keys=self._backend_keys, meter=self._meter),
            drain=self.drain,
            access=Access(self.metrics, clock=time.monotonic, log=self._config.access_log),
            tracing=self._tracing,
        )
        return open_to(self._config.cors_origins, door)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[dict[str, Any]]:
        """Follow backends and workers within the block, and return what the server is told."""
        fleet = asyncio.create_task(self._keep_fleet())
        try:
            if self._inherited is not None and self._inherited.replaces:
                await self._until_it_can_serve()
            yield {COUNT_REFUSAL: self._count_refusal}
        finally:
            fleet.cancel()
            await asyncio.gather(fleet, return_exceptions=True)
            await self.registry.aclose()
            if self._tracing is not None:
                await self._tracing.aclose()

    def _count_refusal(self, error: RouterError) -> None:
        """Count a request that was refused before it was one."""
        self.metrics.requests.labels("other", error.code or error.type).inc()

    async def _until_it_can_serve(self) -> None:
        """Wait until a request would find a worker and a recipe, but not for ever."""
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            counts = self.registry.counts()
            if any(counts[key].ready and self._is_prepared(key) for key in counts):
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _unheard() -> None:
    """Be the listener when there is none."""
