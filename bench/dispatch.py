# ruff: noqa: T201 -- a report prints
"""Measure what the fleet costs a job: from dispatch to the end of its stream, without a network.

Workers answer at once, so that what remains is the router's own: the gate, the look at the workers,
the policy, lease and breaker, and the stream around the worker's. CPU time, the best of some rounds.

python bench/dispatch.py                         # 1, 8 and 100 workers; in turn and cache-aware
python bench/dispatch.py --workers 1000 --tokens 4000
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Self

from sglr_dataplane.engine import EngineFacts
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.job import Chunk, Finish, Job, Usage, new_job_id
from sglr_proto.backend import (
    Metadata,
    Model,
    PolicyName,
    Routing,
    SGLangBackend,
    Spec,
    StaticEndpoint,
    StaticWorkers,
    Tokenizer,
    Workers,
)
from sglr_proto.snapshot import BackendSnapshot, Endpoint, Snapshot

ROUNDS, JOBS = 7, 400
POLICIES = (PolicyName.ROUND_ROBIN, PolicyName.CACHE_AWARE)
ANSWER = (Chunk((1,), Usage()), Chunk((2,), Usage(), 0, Finish("stop")))
FACTS = EngineFacts("m", "m", "m", None, None, 1024, "1", "")


class AtOnce:
    """The stream of a worker that needs no time: two tokens, after one turn of the event loop."""

    def __init__(self) -> None:
        """Have said nothing yet."""
        self._rest = list(reversed(ANSWER))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        """Return the next token."""
        if not self._rest:
            raise StopAsyncIteration
        if len(self._rest) == len(ANSWER):
            await asyncio.sleep(0)
        return self._rest.pop()

    async def aclose(self) -> None:
        """Have nothing to end."""


class Engine:
    """The client of such a worker; nothing asks it for more."""

    on_lost: Callable[[], None]

    def generate(self, _job: Job) -> AtOnce:
        """Return an answer."""
        return AtOnce()


def a_dispatcher(workers: int, policy: PolicyName) -> tuple[Dispatcher, str]:
    """Return the dispatcher of one backend with ready *workers*, and the backend's key."""
    backend = SGLangBackend(
        metadata=Metadata(name="b"),
        spec=Spec(
            model=Model(name="m"),
            tokenizer=Tokenizer(path="/m"),
            routing=Routing(policy=policy),
            workers=Workers(static=StaticWorkers(endpoints=(StaticEndpoint(host="10.0.0.1"),))),
        ),
    )
    endpoints = tuple(Endpoint(id=f"w{n}", host="10.0.0.1", port=n + 1) for n in range(workers))
    registry = Registry(lambda _endpoint, _backend: Engine())  # type: ignore[arg-type,return-value]  # all that is asked of it
    registry.apply(
        Snapshot(version=1, backends=(BackendSnapshot(backend=backend, endpoints=endpoints),))
    )
    for worker in registry.workers():
        worker.became_ready(FACTS)
    return Dispatcher(registry), backend.key


async def seconds_a_job(workers: int, policy: PolicyName, tokens: int) -> float:
    """Return the CPU seconds of one job with a prompt of *tokens*."""
    dispatcher, key = a_dispatcher(workers, policy)
    prompt = tuple(range(tokens))
    found: list[float] = []
    for _ in range(ROUNDS):
        jobs = [Job(id=new_job_id(), model="m", input_ids=prompt) for _ in range(JOBS)]
        began = time.process_time()
        for job in jobs:
            stream = await dispatcher.dispatch(key, job)
            async for _chunk in stream:
                pass
            await stream.aclose()
        found.append((time.process_time() - began) / JOBS)
    return min(found)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 100])
    parser.add_argument("--tokens", type=int, default=500, help="of a prompt (default: 500)")
    asked = parser.parse_args()
    print(
        "CPU microseconds a job\nworkers " + "".join(f"{policy.value:>12}" for policy in POLICIES)
    )
    for workers in asked.workers:
        costs = [asyncio.run(seconds_a_job(workers, each, asked.tokens)) for each in POLICIES]
        print(f"{workers:7} " + "".join(f"{cost * 1e6:12.1f}" for cost in costs))


if __name__ == "__main__":
    main()
