"""A whole router on loopback, inside the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import yaml

from sglr_dataplane.app import serve
from sglr_dataplane.config import Limits, RouterConfig
from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_dataplane.sim.worker import SimWorker
from support.sim import sim_worker

DEMO_MODEL = Path(__file__).parents[2] / "dataplane" / "sglr_dataplane" / "demo_model"
SECONDS = 15.0
# Finding out which encoder is exact takes a second: once for all tests.
_VERDICTS = Path(__file__).parents[2] / ".cache" / "verdicts"


def manifest(*addresses: str, model: str = "m", tokenizer: Path = DEMO_MODEL) -> str:
    """Return a manifest with one backend over the workers at *addresses*."""
    endpoints = [
        {"host": host.strip("[]"), "port": int(port)}
        for host, _, port in (address.rpartition(":") for address in addresses)
    ]
    return yaml.safe_dump(
        {
            "apiVersion": "sglr.dev/v1alpha1",
            "kind": "SGLangBackend",
            "metadata": {"name": "backend"},
            "spec": {
                "model": {"name": model, "aliases": ["org/alias", "/leading"]},
                "tokenizer": {"path": str(tokenizer)},
                "workers": {"static": {"endpoints": endpoints}},
                "routing": {"policy": "RoundRobin"},
            },
        }
    )


@dataclass
class RunningRouter:
    """A router that listens, and clients of it."""

    url: str
    manifest: Path
    http: httpx2.AsyncClient

    def sdk(self) -> openai.AsyncOpenAI:
        """Return the openai SDK pointed at the router; it does not retry."""
        return openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="any", max_retries=0, timeout=SECONDS
        )

    async def until_ready(self) -> None:
        """Wait until ``/readyz`` says 200."""
        await eventually(self._is_ready)

    async def until_workers_are(self, count: int) -> None:
        """Wait until *count* workers of the first backend can be used."""

        async def are_ready() -> bool:
            facts = (await self.http.get("/readyz")).json()["backends"]
            return bool(next(iter(facts.values()))["ready_workers"] >= count)

        await eventually(are_ready)

    async def _is_ready(self) -> bool:
        return (await self.http.get("/readyz")).status_code == 200


async def eventually(claim: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until *claim*, a function or a coroutine function, returns something true."""
    async with asyncio.timeout(seconds):
        while True:
            answer = claim()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running_router(
    folder: Path,
    text: str,
    *,
    ready: bool = True,
    limits: Limits | None = None,
    **fields: Any,
) -> AsyncIterator[RunningRouter]:
    """Run a router on the manifest *text*; with *ready*, wait until it says so.

    Args:
        folder: Takes the manifest.
        text: The manifest.
        ready: Whether to wait until it can take requests.
        limits: What one request may use.
        fields: More fields of RouterConfig.
    """
    path = folder / "backends.yaml"
    path.write_text(text)
    settings = RouterConfig(
        port=0,
        manifest=str(path),
        cache_dir=str(_VERDICTS),
        reload_interval=0.05,
        limits=limits or Limits(),
        **fields,
    )
    listening: asyncio.Future[tuple[str, Callable[[], None]]] = asyncio.Future()
    serving = asyncio.create_task(
        serve(settings, on_listening=lambda address, stop: listening.set_result((address, stop)))
    )
    serving.add_done_callback(lambda _: listening.cancel())
    try:
        address, stop = await asyncio.wait_for(listening, SECONDS)
    except asyncio.CancelledError:
        await serving  # it ended before it listened: its exception is the news
        raise
    try:
        async with httpx2.AsyncClient(base_url=f"http://{address}", timeout=SECONDS) as http:
            router = RunningRouter(f"http://{address}", path, http)
            if ready:
                await router.until_ready()
            yield router
    finally:
        stop()
        await asyncio.wait_for(serving, SECONDS)


def a_worker(
    *answers: Play, die: Callable[[str], None] | None = None
) -> AbstractAsyncContextManager[SimWorker]:
    """Return a simulated worker of model ``m`` that plays *answers* in turn, the last for ever."""
    *first, last = answers
    rules = (*(Rule(play=play, times=1) for play in first), Rule(play=last))
    return sim_worker(Script(rules=rules), die=die, model_name="m")
