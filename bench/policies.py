# ruff: noqa: T201, S311 -- a report prints, and a simulation draws lots
"""Simulate policies on two traces: how much of the prompts is cached, how even is the load.

Eight workers behind three routers that share nothing; each request comes through any router. A
worker computes prompts one after the other (8000 tokens a second of what its cache has not),
generates what it has at 20 ms a token and slower the more it has, and keeps the most recently used
blocks of prompts and answers. Routers ask workers for their load every half second, as by default;
"with events" they hear at once what comes into caches and goes out of them, and how busy the worker
is. Time is simulated: the same command gives the same figures anywhere.

python bench/policies.py                    # both traces, every policy, means over fresh seeds
python bench/policies.py --seeds 1          # the seed that defaults were tuned on
python bench/policies.py --requests 20000 --load 1.5 --only CacheAware
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import statistics
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field

from policies_peer import PeerCacheAware

from sglr_dataplane.engine.telling import CacheBatch, CacheChange, Removed, Stored
from sglr_dataplane.fleet.policies import Policy
from sglr_dataplane.fleet.policies.cache_aware import CacheAware
from sglr_dataplane.fleet.policies.named import new_policy
from sglr_dataplane.fleet.policies.prefix_index import block_hashes
from sglr_dataplane.job import Job
from sglr_proto.backend import ConsistentHash, PolicyName, Routing

FRESH = [11, 12, 13]
"""Seeds of traces that no default was tuned on; that was seed 1."""
LOAD_INTERVAL = 0.5
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
    hear: Callable[[str, CacheBatch], None] = lambda _id, _batch: None
    """Told what comes into the cache and goes out of it."""

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
        parent: int | None = None
        changes: list[CacheChange] = []
        for place, block in enumerate(block_hashes(ids, BLOCK, 10**6)):
            if block not in self.cache:
                tokens = ids[place * BLOCK : (place + 1) * BLOCK]
                changes.append(Stored(((block, tokens),), parent=parent))
            self.cache[block] = None
            self.cache.move_to_end(block)
            parent = block
        while len(self.cache) > CACHE_BLOCKS:
            gone, _ = self.cache.popitem(last=False)
            changes.append(Removed((gone,)))
        if changes:
            self.hear(self.id, CacheBatch(0, tuple(changes)))


@dataclass
class View:
    """A worker as one router sees it: the jobs that this router sent, and what it was told."""

    id: str
    in_flight: int = 0
    foreign: int = 0
    weight: float = 1.0

    @property
    def load(self) -> int:
        """Everybody's jobs, as far as is known."""
        return self.in_flight + self.foreign


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


class Fleet:
    """Workers, routers with a policy each, and the jobs that run."""

    def __init__(self, make: Callable[[int], Policy], *, events: bool) -> None:
        """Begin with empty caches."""
        self.workers = [Worker(f"pod-{n:02}") for n in range(WORKERS)]
        self.by_id = {worker.id: worker for worker in self.workers}
        self.policies = [make(router) for router in range(ROUTERS)]
        self.views = [{each.id: View(each.id) for each in self.workers} for _ in range(ROUTERS)]
        self.ends: list[tuple[float, int, int, str, tuple[int, ...]]] = []
        self._poll_at = LOAD_INTERVAL
        if events:
            self._tell_caches()

    def _tell_caches(self) -> None:
        indexes = [each.told for each in self.policies if isinstance(each, CacheAware)]

        def hear(id: str, batch: CacheBatch) -> None:
            for index in indexes:
                index.apply(id, batch)
            for views in self.views:  # a worker's events carry its load
                views[id].foreign = self.by_id[id].in_flight - views[id].in_flight

        for worker in self.workers:
            worker.hear = hear
            for index in indexes:
                index.begin(worker.id)

    def go_on_until(self, now: float) -> None:
        """End the jobs that end before *now*, and have loads told when they are due."""
        while self.ends or self._poll_at <= now:
            at = self.ends[0][0] if self.ends else now
            if min(at, self._poll_at) > now:
                return
            if self._poll_at <= at:
                self._tell_loads()
            else:
                self._end()

    def _tell_loads(self) -> None:
        self._poll_at += LOAD_INTERVAL
        for views in self.views:
            for view in views.values():
                view.foreign = self.by_id[view.id].in_flight - view.in_flight

    def _end(self) -> None:
        _, _, router, id, text = heapq.heappop(self.ends)
        self.by_id[id].in_flight -= 1
        self.by_id[id].keep(text)
        self.views[router][id].in_flight -= 1


def simulate(requests: list[Request], make: Callable[[int], Policy], *, events: bool) -> Result:
    """Return how *requests* fare with a policy of its own in each router."""
    fleet = Fleet(make, events=events)
    arrivals = random.Random(11)
    waits: list[float] = []
    shares: list[float] = []
    hits = total = 0
    for number, request in enumerate(requests):
        _clock.now = request.at
        fleet.go_on_until(request.at)
        router = arrivals.randrange(ROUTERS)
        job = Job(id="", model="m", input_ids=request.prompt)
        views = list(fleet.views[router].values())
        view = fleet.policies[router].choose(job, views, request.session)
        view.in_flight += 1
        worker = fleet.by_id[view.id]
        first, last, cached = worker.begin(request.at, request)
        heapq.heappush(
            fleet.ends, (last, number, router, worker.id, request.prompt + request.answer)
        )
        hits, total = hits + cached, total + len(request.prompt)
        waits.append(first - request.at)
        loads = [each.in_flight for each in fleet.workers]
        shares.append(max(loads) * WORKERS / sum(loads))
    waits.sort()
    computed = [worker.computed for worker in fleet.workers]
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


def contenders() -> dict[str, tuple[Callable[[int], Policy], bool]]:
    """Return how to make each policy for a router, and whether it hears of caches."""

    def ours(name: PolicyName) -> Callable[[int], Policy]:
        routing = Routing(policy=name, consistent_hash=ConsistentHash(header="x-session-id"))
        return lambda router: new_policy(routing, clock=_clock, chance=random.Random(router).random)

    return {
        "CacheAware with events": (ours(PolicyName.CACHE_AWARE), True),
        **{name.value: (ours(name), False) for name in PolicyName},
        "SMG cache_aware (1.13 rule)": (lambda _router: PeerCacheAware(newer=True), False),
        "SMG cache_aware (0.3 rule)": (lambda _router: PeerCacheAware(newer=False), False),
    }


def main() -> None:
    """Print a table for each trace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--load", type=float, default=1.0, help="times the usual arrivals")
    parser.add_argument("--seeds", type=int, nargs="+", default=FRESH, metavar="SEED")
    parser.add_argument("--only", default="", help="policies whose name has this in it")
    given = parser.parse_args()
    for trace in (multi_turn, shared_prompts):
        print(f"\n{trace.__name__}: {given.requests} requests, {WORKERS} workers, ", end="")
        print(f"{ROUTERS} routers, means of seeds {given.seeds}")
        print(f"{'policy':28} {'hit %':>6} {'imbalance':>9} {'computed':>8} {'p50':>7} {'p99':>7}")
        runs = [
            sorted(trace(random.Random(seed), given.requests, given.load), key=lambda each: each.at)
            for seed in given.seeds
        ]
        for name, (make, events) in contenders().items():
            if given.only not in name:
                continue
            found = [astuple(simulate(run, make, events=events)) for run in runs]
            hits, imbalance, computed, p50, p99 = map(statistics.fmean, zip(*found, strict=True))
            print(
                f"{name:28} {hits:6.1f} {imbalance:9.2f} {computed:8.2f} "
                f"{p50 * 1000:5.0f}ms {p99 * 1000:5.0f}ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
