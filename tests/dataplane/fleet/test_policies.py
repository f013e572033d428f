"""Policies: what each promises, on workers that are only an id and a count."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sglr_dataplane.fleet.caller import Caller, routing_key
from sglr_dataplane.fleet.policies.affinity import SessionSticky
from sglr_dataplane.fleet.policies.hashing import best, best_with_room, key_of
from sglr_dataplane.fleet.policies.least_request import LeastRequest, Random
from sglr_dataplane.fleet.policies.named import new_policy
from sglr_dataplane.fleet.policies.round_robin import RoundRobin
from sglr_dataplane.job import Job, new_job_id
from sglr_proto.backend import (
    BodyField,
    CacheAware,
    ConsistentHash,
    PolicyName,
    PrefixHash,
    Routing,
)
from support.engines import FakeClock


@dataclass
class A:
    """A candidate."""

    id: str
    in_flight: int = 0
    foreign: int = 0
    weight: float = 1.0

    @property
    def load(self) -> int:
        """Everybody's jobs."""
        return self.in_flight + self.foreign


def some(count: int, *loads: int) -> list[A]:
    """Return candidates w0, w1 and so on, the first ones with *loads*."""
    padded = (*loads, *(0,) * count)
    return [A(f"w{n}", padded[n]) for n in range(count)]


def a_job(*ids: int) -> Job:
    """Return a job with a prompt of *ids*."""
    return Job(id=new_job_id(), model="m", input_ids=ids or (1,))


def a_policy(name: PolicyName, clock: Callable[[], float] | None = None, **sections: object):  # type: ignore[no-untyped-def]  # noqa: ANN201  # as many types as policies
    """Return the policy called *name*, drawing from a fixed seed."""
    routing = Routing(policy=name, **sections)  # type: ignore[arg-type]  # sections of the spec
    return new_policy(routing, clock=clock or FakeClock(), chance=random.Random(7).random)


def text(topic: int, length: int) -> tuple[int, ...]:
    """Return token ids that no other topic begins with."""
    return tuple(topic * 100_000 + n for n in range(length))


ALL = [Routing(policy=name, consistent_hash=ConsistentHash(header="x-user")) for name in PolicyName]


@given(
    which=st.sampled_from(ALL),
    loads=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    prompts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=80), min_size=1, max_size=8),
    key=st.text(max_size=3),
)
def test_every_policy_takes_one_of_the_candidates(
    which: Routing, loads: list[int], prompts: list[list[int]], key: str
) -> None:
    """Whatever is offered, the choice is one of it: nobody who was left out for a reason."""
    policy = new_policy(which, clock=FakeClock(), chance=random.Random(1).random)
    for turn, prompt in enumerate(prompts):
        offered = [A(f"w{n}", load) for n, load in enumerate(loads) if (n + turn) % 3 or n == 0]
        assert policy.choose(a_job(*prompt), offered, key) in offered


def test_random_takes_everybody_alike() -> None:
    """Each of four takes a quarter, give or take."""
    policy, workers = Random(random.Random(3).random), some(4)
    taken = Counter(policy.choose(a_job(), workers).id for _ in range(4000))

    assert all(900 < count < 1100 for count in taken.values())


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_least_request_never_takes_the_busiest_of_several(count: int) -> None:
    """Of two that differ the less busy one is taken; alone, the busy one."""
    policy, workers = LeastRequest(random.Random(5).random), some(count, 9)
    taken = Counter(policy.choose(a_job(), workers).id for _ in range(300))

    assert ("w0" in taken) == (count == 1)
    assert len(taken) == max(count - 1, 1)


def test_a_key_belongs_to_one_worker_and_moves_only_when_it_must() -> None:
    """Taking one of ten workers away moves its keys, a tenth, and no others."""
    workers = some(10)
    before = {key: best(key_of(str(key)), workers).id for key in range(2000)}
    after = {key: best(key_of(str(key)), workers[1:]).id for key in range(2000)}
    moved = {key for key in before if before[key] != after[key]}

    assert moved == {key for key, id in before.items() if id == "w0"}
    assert all(150 < count < 250 for count in Counter(before.values()).values())


def test_no_worker_has_more_than_its_share() -> None:
    """With everything of one key, no worker has more than 125 % of the mean."""
    workers = some(8)
    for _ in range(800):
        best_with_room(1, workers, 125).in_flight += 1

    assert sum(worker.in_flight for worker in workers) == 800
    assert max(worker.in_flight for worker in workers) <= 125


@pytest.mark.parametrize("name", [PolicyName.LEAST_REQUEST, PolicyName.CACHE_AWARE])
def test_what_other_routers_sent_counts_as_load(name: PolicyName) -> None:
    """A worker that is idle from here and busy by its own word is not the idlest."""
    policy, workers = a_policy(name), some(2)
    workers[0].foreign = 50

    assert all(policy.choose(a_job(*text(n, 50)), workers) is workers[1] for n in range(20))


def test_prefix_hash_goes_by_the_beginning_of_the_prompt() -> None:
    """Prompts that begin alike meet; those that do not are spread over everybody."""
    workers = some(8)
    policy = a_policy(PolicyName.PREFIX_HASH, prefix_hash=PrefixHash(prefix_tokens=10))
    alike = {policy.choose(a_job(*text(1, 10), n), workers).id for n in range(50)}
    spread = {policy.choose(a_job(*text(n, 10)), workers).id for n in range(200)}

    assert len(alike) == 1
    assert len(spread) == 8


def test_other_processes_choose_alike() -> None:
    """Neither the seed of Python's hashes nor the order of candidates changes the choice."""
    program = (
        "from sglr_dataplane.fleet.policies.affinity import PrefixHash\n"
        "from sglr_dataplane.fleet.policies.hashing import best, key_of\n"
        "from sglr_dataplane.job import Job\n"
        "from types import SimpleNamespace as A\n"
        "workers = [A(id=f'w{n}', in_flight=0, weight=1.0) for n in reversed(range(8))]\n"
        "policy = PrefixHash(prefix_tokens=64, factor_percent=125)\n"
        "print([policy.choose(Job(id='', model='', input_ids=(n, 2, 3)), workers).id"
        " for n in range(20)], [best(key_of(str(n)), workers).id for n in range(20)])\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=15,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    workers = some(8)
    policy = a_policy(PolicyName.PREFIX_HASH, prefix_hash=PrefixHash(prefix_tokens=64))
    here = [policy.choose(a_job(n, 2, 3), workers).id for n in range(20)]

    assert said[0] == said[1]
    assert said[0].startswith(str(here))


def test_consistent_hash_goes_by_the_key_and_without_one_by_load() -> None:
    """One key has one worker; no key has the less busy of two."""
    workers = some(8)
    policy = a_policy(PolicyName.CONSISTENT_HASH, consistent_hash=ConsistentHash(header="x-user"))
    keyed = {policy.choose(a_job(n), workers, "alice").id for n in range(20)}
    busy = some(2, 5)
    free = {policy.choose(a_job(n), busy).id for n in range(20)}

    assert len(keyed) == 1
    assert free == {"w1"}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"x-user": "a"}, b'{"user": "b"}', "a"),
        ({}, b'{"model": "m", "user": "b", "messages": [{}]}', "b"),
        ({"x-user": ""}, b'{"user": "b"}', "b"),
        ({"other": "a"}, b'{"prompt_cache_key": "b"}', ""),
        ({}, b'{"user": 7}', ""),
        ({}, b"no json", ""),
    ],
)
def test_the_key_is_the_header_or_else_the_field(
    headers: dict[str, str], body: bytes, expected: str
) -> None:
    """Names of headers in any case; a header wins over a field of the body."""
    wanted = ConsistentHash(header="X-User", body_field=BodyField.USER)
    routing = Routing(policy=PolicyName.CONSISTENT_HASH, consistent_hash=wanted)

    assert routing_key(routing, Caller(headers=headers, body=body)) == expected


def test_other_policies_have_no_key() -> None:
    """What a policy does not go by is not looked up."""
    caller = Caller(headers={"x-session-id": "s"})

    assert routing_key(Routing(policy=PolicyName.CACHE_AWARE), caller) == ""
    assert routing_key(Routing(policy=PolicyName.SESSION_STICKY), caller) == "s"


def a_sticky(clock: FakeClock, most: int = 3) -> SessionSticky:
    """Return a sticky policy over round robin that remembers *most* sessions for 10 s."""
    return SessionSticky(RoundRobin(), idle=10, most=most, clock=clock)


def test_a_session_stays_where_it_is_however_busy() -> None:
    """Its state is there, and nowhere else."""
    policy, workers = a_sticky(FakeClock()), some(3)
    first = policy.choose(a_job(), workers, "s")
    first.in_flight = 100

    assert all(policy.choose(a_job(), workers, "s") is first for _ in range(5))


def test_a_session_moves_when_its_worker_is_gone_and_then_stays_there() -> None:
    """Coming back does not take it back: the other worker has its state now."""
    policy, workers = a_sticky(FakeClock()), some(3)
    first = policy.choose(a_job(), workers, "s")
    others = [worker for worker in workers if worker is not first]
    second = policy.choose(a_job(), others, "s")

    assert policy.choose(a_job(), workers, "s") is second


def test_sessions_are_forgotten_when_idle_or_too_many() -> None:
    """Memory is bounded: three sessions, ten seconds each."""
    clock = FakeClock()
    policy, workers = a_sticky(clock), some(5)
    for name in "abcd":
        policy.choose(a_job(), workers, name)
    full = repr(policy)
    clock.pass_by(10)
    policy.choose(a_job(), workers, "e")

    assert full == "<SessionSticky 3 sessions>"
    assert repr(policy) == "<SessionSticky 1 sessions>"


def a_cache_aware(load_tokens: int = 256):  # type: ignore[no-untyped-def]  # noqa: ANN201  # as a_policy
    """Return a CacheAware policy with blocks of ten tokens."""
    wanted = CacheAware(block_tokens=10, load_tokens=load_tokens)
    return a_policy(PolicyName.CACHE_AWARE, cache_aware=wanted)


def test_a_conversation_stays_where_its_beginning_is() -> None:
    """Each turn goes where the turns before went, while the load is even."""
    policy, workers = a_cache_aware(), some(8)
    first = policy.choose(a_job(*text(1, 50)), workers)
    turns = {policy.choose(a_job(*text(1, 50 + 40 * n)), workers).id for n in range(1, 8)}

    assert turns == {first.id}


def test_conversations_are_spread_over_everybody() -> None:
    """What begins differently goes everywhere."""
    policy, workers = a_cache_aware(), some(8)

    assert len({policy.choose(a_job(*text(n, 50)), workers).id for n in range(100)}) == 8


def test_a_busy_holder_is_left_when_waiting_costs_more_than_computing() -> None:
    """300 tokens are worth three requests of 100 tokens each, beyond the slack of one."""
    policy, workers = a_cache_aware(load_tokens=100), some(2)
    holder = policy.choose(a_job(*text(1, 300)), workers)
    holder.in_flight = 3
    stays = policy.choose(a_job(*text(1, 300)), workers)
    holder.in_flight = 5
    goes = policy.choose(a_job(*text(1, 300)), workers)
    holder.in_flight = 3
    both_hold = policy.choose(a_job(*text(1, 300)), workers)

    assert stays is holder
    assert goes is not holder
    assert both_hold is goes


def test_routers_that_know_nothing_of_each_other_agree_on_a_conversation() -> None:
    """After the same system prompt, its first own block leads every router to one worker."""
    routers, workers = [a_cache_aware() for _ in range(3)], some(8)
    system = text(99, 100)
    for router in routers:
        for n in range(300):
            router.choose(a_job(*system, *text(n, 30)), workers)
    agreed = 0
    for n in range(1000, 1100):
        prompt = (*system, *text(n, 30))
        chosen = {
            router.choose(a_job(*prompt, *text(7, 20 * m)), workers).id
            for m, router in enumerate(routers)
        }
        agreed += len(chosen) == 1

    assert agreed == 100


def test_what_a_worker_holds_for_one_adapter_is_nothing_to_another() -> None:
    """Equal tokens under another adapter are computed anew: the holder is worth no waiting."""
    policy = a_policy(PolicyName.CACHE_AWARE)
    prompt = text(1, 2000)
    holder = policy.choose(a_job(*prompt), some(4))
    loads = [A(worker.id, 3 if worker.id == holder.id else 0) for worker in some(4)]

    adapted = replace(a_job(*prompt), adapter="sql")
    other = policy.choose(adapted, loads)
    again = policy.choose(adapted, loads)

    assert policy.choose(a_job(*prompt), loads).id == holder.id
    assert other.id != holder.id
    assert again.id == other.id


def test_prefix_hash_tells_adapters_apart() -> None:
    """The same prompt has a worker of its own under each."""
    policy = a_policy(PolicyName.PREFIX_HASH)
    job = a_job(*text(1, 300))
    chosen = {policy.choose(replace(job, adapter=f"a{n}"), some(8)).id for n in range(40)}

    assert len(chosen) == 8


def test_a_worker_that_left_is_not_missed() -> None:
    """The next best has it, and what it had is no reason to fail."""
    policy, workers = a_cache_aware(), some(3)
    holder = policy.choose(a_job(*text(1, 100)), workers)
    left = [worker for worker in workers if worker is not holder]

    assert policy.choose(a_job(*text(1, 100)), left) in left
