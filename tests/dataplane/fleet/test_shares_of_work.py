"""Weights, tiers, zones and warm-up: who gets how much of the work."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from sglr_dataplane.fleet.policies.named import new_policy
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.job import Job, new_job_id
from sglr_proto.backend import (
    Admission,
    CacheAware,
    ConsistentHash,
    PolicyName,
    Routing,
)
from sglr_proto.snapshot import Endpoint
from sglr_proto.spec_routing import ZonePreference
from support.engines import FakeClock, ScriptedEngine, some_facts
from support.fleets import KEY, a_backend, a_snapshot


@dataclass
class A:
    """A candidate."""

    id: str
    weight: float = 1.0
    in_flight: int = 0

    @property
    def load(self) -> int:
        """Everybody's jobs."""
        return self.in_flight


@pytest.mark.parametrize("name", list(PolicyName))
def test_work_is_shared_by_weight(name: PolicyName) -> None:
    """Of a hundred jobs that run at once a worker of weight 3 has about three times as many."""
    routing = Routing(policy=name, consistent_hash=ConsistentHash(header="x-key"))
    policy = new_policy(routing, clock=FakeClock(), chance=random.Random(3).random)
    workers = [A("w0"), A("w1", 3.0)]
    for n in range(400):
        job = Job(id=new_job_id(), model="m", input_ids=(n, *range(60)))
        policy.choose(job, workers, f"s{n}").in_flight += 1

    assert 0.7 < workers[1].in_flight / 400 < 0.8


def test_weighted_turns_are_exact_and_interleaved() -> None:
    """Five, one and one of seven, never all five in a row."""
    policy = new_policy(
        Routing(policy=PolicyName.ROUND_ROBIN), clock=FakeClock(), chance=lambda: 0.0
    )
    workers = [A("a", 5.0), A("b"), A("c")]
    turns = "".join(
        policy.choose(Job(id=new_job_id(), model="m", input_ids=(1,)), workers).id
        for _ in range(14)
    )

    assert Counter(turns[:7]) == Counter(turns[7:]) == Counter("aaaaabc")
    assert "aaaaa" not in turns


def test_a_weight_that_changes_moves_only_what_it_must() -> None:
    """Keys leave for the heavier worker, and nobody else's keys move."""
    routing = Routing(
        policy=PolicyName.CONSISTENT_HASH,
        consistent_hash=ConsistentHash(header="x", load_factor_percent=1000),
    )
    policy = new_policy(routing, clock=FakeClock(), chance=lambda: 0.0)

    def homes(weight: float) -> list[str]:
        workers = [A("w0", weight), A("w1"), A("w2")]
        job = Job(id=new_job_id(), model="m", input_ids=(1,))
        return [policy.choose(job, workers, f"k{n}").id for n in range(300)]

    before, after = homes(1.0), homes(2.0)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]

    assert set(moved) == {"w0"}
    assert 20 < len(moved) < 90  # from a third of the keys to a half


def a_fleet(
    *endpoints: Endpoint,
    zone: str = "",
    clock: FakeClock | None = None,
    routing: Routing | None = None,
) -> Registry:
    """Return a registry of ready workers that take one job each."""
    registry = Registry(
        lambda _endpoint, _backend: ScriptedEngine(), zone=zone, clock=clock or FakeClock()
    )
    backend = a_backend(
        routing=routing or Routing(), admission=Admission(max_inflight_per_endpoint=1)
    )
    registry.apply(a_snapshot(*endpoints, backend=backend))
    for worker in registry.workers():
        worker.became_ready(some_facts())
    return registry


def an_endpoint(id: str, *, priority: int = 0, zone: str = "", weight: int = 1) -> Endpoint:
    """Return where worker *id* is."""
    return Endpoint(id=id, host="10.0.0.1", port=1, priority=priority, zone=zone, weight=weight)


def offered(registry: Registry) -> list[str]:
    """Return who may take the next job."""
    return sorted(worker.id for worker in registry.candidates(KEY))


def test_a_tier_is_used_when_nobody_of_a_better_one_has_room() -> None:
    """Full or failing: then the next tier, and back as soon as there is room again."""
    registry = a_fleet(an_endpoint("a"), an_endpoint("b"), an_endpoint("c", priority=1))
    a, b, _ = registry.workers()
    first, room = offered(registry), registry.room(KEY)
    engine = a.begin()
    b.suspected()
    spilled = offered(registry)
    a.end(engine)

    assert (first, room) == (["a", "b"], 3)
    assert spilled == ["c"]
    assert offered(registry) == ["a"]


def test_a_doubtful_worker_of_a_good_tier_comes_after_a_well_one_of_a_bad_tier() -> None:
    """A tier is a preference, not a reason to fail."""
    registry = a_fleet(an_endpoint("a"), an_endpoint("b", priority=3))
    registry.workers()[0].suspected()
    before = offered(registry)
    registry.workers()[1].suspected()

    assert before == ["b"]
    assert offered(registry) == ["a"]


def test_the_routers_zone_is_preferred_while_it_has_room() -> None:
    """Then the other zones, of the same tier."""
    routing = Routing(zone_preference=ZonePreference.PREFER)
    registry = a_fleet(
        *(
            an_endpoint("a", zone="x"),
            an_endpoint("b", zone="y"),
            an_endpoint("c", zone="x", priority=1),
        ),
        zone="x",
        routing=routing,
    )
    near = offered(registry)
    registry.workers()[0].begin()

    assert near == ["a"]
    assert offered(registry) == ["b"]


@pytest.mark.parametrize(
    ("zone", "preference"),
    [("x", ZonePreference.NONE), ("", ZonePreference.PREFER), ("z", ZonePreference.PREFER)],
)
def test_zones_do_not_matter_unless_they_are_known_and_asked_for(
    zone: str, preference: ZonePreference
) -> None:
    """Not by default, not in a router that knows no zone of its own, not where nobody is."""
    registry = a_fleet(
        an_endpoint("a", zone="x"),
        an_endpoint("b", zone="y"),
        zone=zone,
        routing=Routing(zone_preference=preference),
    )

    assert offered(registry) == ["a", "b"]


def test_a_new_worker_gets_its_share_little_by_little() -> None:
    """A tenth at first, all of it after the time; again after its connection was lost."""
    clock = FakeClock()
    registry = a_fleet(an_endpoint("a", weight=4), clock=clock, routing=Routing(warm_up="100s"))
    (worker,) = registry.workers()
    weights = [worker.weight]
    for _ in range(2):
        clock.pass_by(50)
        weights.append(worker.weight)
    worker.became_ready(some_facts())  # as every probe says
    weights.append(worker.weight)
    worker.was_lost()
    worker.became_ready(some_facts())
    weights.append(worker.weight)

    assert weights == [0.4, 2.0, 4.0, 4.0, 0.4]


def test_a_worker_has_its_whole_share_at_once_by_default() -> None:
    """SGLang is warm before it says that it serves."""
    registry = a_fleet(an_endpoint("a", weight=4))

    assert registry.workers()[0].weight == 4.0


def test_a_cold_worker_is_not_flooded() -> None:
    """Of a hundred new conversations a worker that is a tenth warm gets a few, not its third."""
    policy = new_policy(
        Routing(cache_aware=CacheAware(load_tokens=512)), clock=FakeClock(), chance=lambda: 0.0
    )
    workers = [A("w0", 0.1), A("w1"), A("w2")]
    for n in range(100):
        job = Job(id=new_job_id(), model="m", input_ids=(n, *range(60)))
        policy.choose(job, workers).in_flight += 1

    assert 1 <= workers[0].in_flight <= 10
