"""What probes, scrapes and people ask a router about itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from sglr_dataplane.fleet.ailments import ailment
from sglr_proto import __version__

if TYPE_CHECKING:
    from starlette.requests import Request

    from sglr_dataplane.api.drain import Drain
    from sglr_dataplane.fleet.registry import Counts, Registry
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_dataplane.recipe import Recipes

_START_SECONDS: Final = 20.0
"""How long a new router waits for tokenizers and workers before it is ready without: loading takes
seconds, a worker that does not answer may never."""

_MOST_TOLD: Final = 5
"""Workers of a backend whose problems /readyz tells: probes read it every few seconds."""


class Synced(Protocol):
    """A source of backends that knows whether it has a complete list."""

    @property
    def is_synced(self) -> bool:
        """Whether a complete list is in force."""
        ...


class Source(Protocol):
    """A file of backends that may be wrong."""

    problem: str | None
    """Why its newest edit is not in force, as a sentence; None when it is."""


class Ops:
    """``/livez``, ``/readyz``, ``/health``, ``/metrics`` and ``/version``."""

    def __init__(
        self,
        registry: Registry,
        recipes: Recipes,
        metrics: RouterMetrics,
        drain: Drain,
        intake: Synced | None = None,
        *,
        manifest: Source | None = None,
        is_alive: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Answer from these; a router that drains is not ready, one that is not alive is to end.

        With an *intake* a router is ready as soon as a complete list is in force and it can serve
        those backends of it that have workers, and stays so, workers or none: a backend that is
        scaled to zero is woken by the request that finds nobody.
        """
        self._clock = clock
        self._is_alive = is_alive
        self._manifest = manifest
        self._synced_at: float | None = None
        self._has_started = False
        self._drain = drain
        self._intake = intake
        self._registry = registry
        self._recipes = recipes
        self._metrics = metrics

    async def livez(self, _request: Request) -> Response:
        """Answer 200 as long as the event loop turns and the fleet is tended."""
        if not self._is_alive():
            return _json({"status": "failed"}, 503)
        return _json({"status": "alive"})

    async def readyz(self, _request: Request) -> Response:
        """Answer 200 when requests may come, else 503 with the reasons.

        That is with one backend that can take a request, or under an operator with its list.

        A router that drains is not ready from the first moment, while it still takes requests.
        """
        backends = self._facts()
        if self._drain.has_begun:
            return self._standing("draining", backends, 503)
        if self._intake is not None:
            ready = self._intake.is_synced and self._is_started(backends)
        else:
            ready = any(facts["ready"] for facts in backends.values())
        if ready:
            return self._standing("ready", backends, 200)
        return self._standing("not ready", backends, 503)

    def _standing(self, word: str, backends: dict[str, dict[str, Any]], status: int) -> Response:
        problem = self._manifest.problem if self._manifest is not None else None
        return _json({"status": word, "manifest_problem": problem, "backends": backends}, status)

    def _is_started(self, backends: dict[str, dict[str, Any]]) -> bool:
        """Return whether a router with a list can serve, or has waited long enough.

        A rollout ends an old router as soon as the new one is ready: one that still loads would
        answer 503 for what the old one served.
        """
        now = self._clock()
        self._synced_at = now if self._synced_at is None else self._synced_at
        waiting = any(facts["known_workers"] and not facts["ready"] for facts in backends.values())
        if not waiting or now - self._synced_at >= _START_SECONDS:
            self._has_started = True
        return self._has_started

    async def health(self, request: Request) -> Response:
        """Answer as ``/readyz`` does: what load balancers expect under this name."""
        return await self.readyz(request)

    async def metrics(self, _request: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        # Thousands of lines take tens of milliseconds: not on the event loop.
        text = await asyncio.to_thread(generate_latest, self._metrics.exposed)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def version(self, _request: Request) -> Response:
        """Return the product's name and version."""
        return _json({"name": "sglr", "version": __version__})

    def _facts(self) -> dict[str, dict[str, Any]]:
        return {
            key: {
                "model": self._registry.backend(key).spec.model.name,
                "ready": counts.ready > 0 and self._is_prepared(key),
                "known_workers": counts.known,
                "ready_workers": counts.ready,
                "problem": self._problem(key, counts),
            }
            for key, counts in self._registry.counts().items()
        }

    def _is_prepared(self, key: str) -> bool:
        """Return whether prompts can be made; HTTP workers make them themselves."""
        return self._registry.is_http(key) or self._recipes.get(key) is not None

    def _problem(self, key: str, counts: Counts) -> str | None:
        """Return what keeps *key* from serving as it is meant to, with addresses; None if nothing."""
        problem = self._recipes.problem(key)
        found = [problem] if problem is not None else []
        if not counts.ready:
            workers = self._registry.workers(key)
            found += [f"{each.id}: {ailment(each)}" for each in workers[:_MOST_TOLD]]
            if len(workers) > _MOST_TOLD:
                found.append(f"and {len(workers) - _MOST_TOLD} more workers")
        return "; ".join(found) or None


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
