# ruff: noqa: T201, S311 -- a report prints, and a simulation draws lots
"""Simulate policies on two traces: how much of the prompts is cached, how even is the load.

Eight workers behind three routers that share nothing; each request comes through any router. A
worker computes prompts one after the other (8000 tokens a second of what its cache has not),
generates what it has at 20 ms a token and slower the more it has, and keeps the most recently used
blocks of prompts and answers. Time is simulated: the same command gives the same figures anywhere.

python bench/policies.py            # both traces, every policy
python bench/policies.py --requests 20000 --load 1.5
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import statistics
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from policies_peer import PeerCacheAware

from sglr_dataplane.fleet.policies import Policy
from sglr_dataplane.fleet.policies.named import new_policy
from sglr_dataplane.fleet.policies.prefix_index import block_hashes
from sglr_dataplane.job import Job
from sglr_proto.backend import ConsistentHash, PolicyName, Routing

WORKERS, ROUTERS = 8, 3
PREFILL, DECODE, BLOCK = 8000.0, 0.02, 16
CACHE_BLOCKS = 200_000 // BLOCK
"""Tokens that a worker's cache holds: an 8B model in the 30 GB that weights leave of a big GPU."""


@dataclass
class Request:
    """One request of a trace; answers are part of the next turn's prompt."""

    at: float
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    session: str


@dataclass
class Worker:
    """One worker's cache and queue."""

    id: str
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    free_at: float = 0.0
    in_flight: int = 0
    computed: int = 0

    def begin(self, now: float, request: Request) -> tuple[float, float, int]:
        """Return when the first token and the last are there, and how many tokens were cached."""
        cached = 0
        for block in block_hashes(request.prompt, BLOCK, 10**6):
            if block not in self.cache:
                break
            self.cache.move_to_end(block)
            cached += BLOCK
        uncached = len(request.prompt) - cached
        self.computed += uncached
        self.in_flight += 1
        self.free_at = max(self.free_at, now) + uncached / PREFILL
        pace = DECODE * (1 + self.in_flight / 32)
        self.keep(request.prompt)
        return self.free_at, self.free_at + pace * len(request.answer), cached

    def keep(self, ids: tuple[int, ...]) -> None:
        """Remember *ids*, forget what was used longest ago."""
        for block in block_hashes(ids, BLOCK, 10**6):
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > CACHE_BLOCKS:
            self.cache.popitem(last=False)


@dataclass
class View:
    """A worker as one router sees it: only the jobs that this router sent."""

    id: str
    in_flight: int = 0


def multi_turn(chance: random.Random, count: int, load: float) -> Iterator[Request]:
    """Yield conversations of one to twelve turns on one short system prompt, in no order."""
    fresh = itertools.count(1)
    system = _text(fresh, 200)
    begin, made = 0.0, 0
    while made < count:
        begin += chance.expovariate(3.0 * load)
        at, history, session = begin, system, f"s{made}"
        for _ in range(chance.randint(1, 12)):
            history += _text(fresh, chance.randint(30, 400))
            answer = _text(fresh, chance.randint(50, 400))
            yield Request(at, history, answer, session)
            made += 1
            history += answer
            at += len(answer) * DECODE * 1.5 + chance.expovariate(1 / 15)


def shared_prompts(chance: random.Random, count: int, load: float) -> Iterator[Request]:
    """Yield single requests on forty long system prompts, some far more asked than others."""
    fresh = itertools.count(1)
    prompts = [_text(fresh, chance.randint(1000, 5000)) for _ in range(40)]
    weights = [1 / (rank + 1) for rank in range(len(prompts))]
    at = 0.0
    for number in range(count):
        at += chance.expovariate(25.0 * load)
        (system,) = chance.choices(prompts, weights)
        question = _text(fresh, chance.randint(30, 300))
        yield Request(at, system + question, _text(fresh, chance.randint(50, 300)), f"s{number}")


def _text(fresh: Iterator[int], length: int) -> tuple[int, ...]:
    return tuple(itertools.islice(fresh, length))


@dataclass
class Result:
    """What a policy reached."""

    hit_percent: float
    imbalance: float
    """The busiest worker's jobs over the mean, as the mean over all arrivals."""
    computed: float
    """The tokens the hardest-working worker computed, over the mean."""
    first_token_50: float
    first_token_99: float


def simulate(requests: list[Request], make: Callable[[int], Policy]) -> Result:
    """Return how *requests* fare with a policy of its own in each router."""
    workers = [Worker(f"pod-{n:02}") for n in range(WORKERS)]
    by_id = {worker.id: worker for worker in workers}
    policies = [make(router) for router in range(ROUTERS)]
    views = [[View(worker.id) for worker in workers] for _ in range(ROUTERS)]
    arrivals = random.Random(11)
    ends: list[tuple[float, int, int, str, tuple[int, ...]]] = []
    waits: list[float] = []
    shares: list[float] = []
    hits = total = 0
    for number, request in enumerate(requests):
        _clock.now = request.at
        while ends and ends[0][0] <= request.at:
            _, _, router, id, text = heapq.heappop(ends)
            by_id[id].in_flight -= 1
            by_id[id].keep(text)
            next(view for view in views[router] if view.id == id).in_flight -= 1
        router = arrivals.randrange(ROUTERS)
        job = Job(id="", model="m", input_ids=request.prompt)
        view = policies[router].choose(job, views[router], request.session)
        view.in_flight += 1
        worker = by_id[view.id]
        first, last, cached = worker.begin(request.at, request)
        heapq.heappush(ends, (last, number, router, worker.id, request.prompt + request.answer))
        hits, total = hits + cached, total + len(request.prompt)
        waits.append(first - request.at)
        loads = [each.in_flight for each in workers]
        shares.append(max(loads) * WORKERS / sum(loads))
    waits.sort()
    computed = [worker.computed for worker in workers]
    return Result(
        100 * hits / total,
        statistics.fmean(shares[len(shares) // 10 :]),
        max(computed) * WORKERS / sum(computed),
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
    )


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


_clock = _Clock()


def contenders() -> dict[str, Callable[[int], Policy]]:
    """Return how to make each policy for a router."""

    def ours(name: PolicyName) -> Callable[[int], Policy]:
        routing = Routing(policy=name, consistent_hash=ConsistentHash(header="x-session-id"))
        return lambda router: new_policy(routing, clock=_clock, chance=random.Random(router).random)

    return {name.value: ours(name) for name in PolicyName} | {
        "SMG cache_aware (1.13 rule)": lambda _router: PeerCacheAware(newer=True),
        "SMG cache_aware (0.3 rule)": lambda _router: PeerCacheAware(newer=False),
    }


def main() -> None:
    """Print a table for each trace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--load", type=float, default=1.0, help="times the usual arrivals")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for trace in (multi_turn, shared_prompts):
        made = trace(random.Random(given.seed), given.requests, given.load)
        requests = sorted(made, key=lambda request: request.at)
        print(f"\n{trace.__name__}: {len(requests)} requests, {WORKERS} workers, {ROUTERS} routers")
        print(f"{'policy':28} {'hit %':>6} {'imbalance':>9} {'computed':>8} {'p50':>7} {'p99':>7}")
        for name, make in contenders().items():
            found = simulate(requests, make)
            print(
                f"{name:28} {found.hit_percent:6.1f} {found.imbalance:9.2f} {found.computed:8.2f} "
                f"{found.first_token_50 * 1000:5.0f}ms {found.first_token_99 * 1000:5.0f}ms"
            )


if __name__ == "__main__":
    main()
