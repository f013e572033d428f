"""Leadership: who leads, under which epoch, and who finds out by itself that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from sglr_operator.config import LeaseConfig
from sglr_operator.elector import Clocks, Elector
from sglr_operator.errors import KubeError
from sglr_operator.kube import Kube
from support.kube_api import FakeApi, running_api
from support.kube_wait import until


@dataclass
class Clock:
    """Time that passes only when somebody sleeps or a test says so."""

    seconds: float = 100.0

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass, and everybody else run."""
        self.seconds += seconds
        await asyncio.sleep(0)

    def clocks(self) -> Clocks:
        """Return it as an elector takes it."""
        return Clocks(lambda: self.seconds, lambda: datetime(2026, 1, 1, tzinfo=UTC), self.sleep)


class SteppedClock(Clock):
    """Time whose sleeper wakes only when a test says so."""

    def __init__(self) -> None:
        """Have nobody asleep."""
        super().__init__()
        self._sleeping = asyncio.Semaphore(0)
        self._woken = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass, and wait for the next :meth:`step`."""
        self.seconds += seconds
        self._sleeping.release()
        await self._woken.acquire()

    async def step(self) -> None:
        """Wait until somebody sleeps, and wake it."""
        await asyncio.wait_for(self._sleeping.acquire(), 10.0)
        self._woken.release()


@dataclass
class Field:
    """An API server and the candidates for its Lease."""

    api: FakeApi
    kube: Kube

    def candidate(self, name: str, clock: Clock) -> Elector:
        """Return a candidate with a clock of its own."""
        return Elector(self.kube, LeaseConfig(identity=name), clock.clocks())

    def lease(self) -> dict[str, Any]:
        """Return the Lease's spec."""
        spec: dict[str, Any] = self.api.objects("leases")["default", "sglr-operator"]["spec"]
        return spec


@asynccontextmanager
async def a_field() -> AsyncGenerator[Field]:
    """Serve an API server without a Lease."""
    async with running_api() as api, ApiClient(Configuration(host=api.url)) as client:
        yield Field(api, Kube(client))


async def test_the_first_candidate_leads_under_the_leases_creation_time() -> None:
    """The epoch is the creation of the Lease and the number of its transitions."""
    async with a_field() as field:
        elector = field.candidate("a", Clock())

        # The API server of the tests makes its first object at 00:00:01.
        assert await elector.acquire() == (1767225601, 0)
        assert elector.leads
        assert field.lease()["holderIdentity"] == "a"


async def test_a_dead_leader_is_replaced_when_its_lease_has_not_changed_for_its_duration() -> None:
    """The candidate measures by its own clock, and the epoch rises."""
    async with a_field() as field:
        first = await field.candidate("a", Clock(5.0)).acquire()
        clock = Clock(9_000.0)
        epoch = await field.candidate("b", clock).acquire()

        assert 9_010.0 < clock.seconds <= 9_000.0 + 10.0 + 2 * 2.0
        assert epoch == (first[0], first[1] + 1)
        assert field.lease()["leaseTransitions"] == 1


async def test_a_leader_that_renews_is_not_replaced() -> None:
    """As long as the Lease changes, a candidate waits."""
    async with a_field() as field:
        leader = field.candidate("a", Clock())
        await leader.acquire()
        clock = SteppedClock()
        waiting = asyncio.ensure_future(field.candidate("b", clock).acquire())
        while clock.seconds < 160.0:
            assert await leader.confirm()
            await clock.step()
        waiting.cancel()

        assert field.lease()["holderIdentity"] == "a"


async def test_a_released_lease_is_taken_at_once() -> None:
    """A clean end costs one retry, not a duration; the epoch rises all the same."""
    async with a_field() as field:
        leader = field.candidate("a", Clock())
        first = await leader.acquire()
        await leader.release()
        assert not leader.leads
        clock = Clock()

        assert await field.candidate("b", clock).acquire() == (first[0], first[1] + 1)
        assert clock.seconds == 100.0


async def test_a_restarted_container_leads_again_under_a_later_epoch() -> None:
    """Our own identity on the Lease is an earlier life of ours."""
    async with a_field() as field:
        first = await field.candidate("a", Clock()).acquire()
        clock = Clock()

        assert await field.candidate("a", clock).acquire() == (first[0], first[1] + 1)
        assert clock.seconds == 100.0


async def test_a_frozen_leader_knows_by_its_clock_that_it_does_not_lead() -> None:
    """After its renewal deadline it stops leading without asking anybody."""
    async with a_field() as field:
        clock = Clock()
        leader = field.candidate("a", clock)
        await leader.acquire()
        clock.seconds += 5.9
        assert leader.leads
        clock.seconds += 0.2

        assert not leader.leads
        assert LeaseConfig().duration > 6.0


async def test_a_leader_that_cannot_renew_steps_down_before_anyone_can_be_elected() -> None:
    """With the API server away it stops at the renewal deadline."""
    async with a_field() as field:
        clock = Clock()
        leader = field.candidate("a", clock)
        await leader.acquire()
        field.api.fail("reset", "leases", times=1000)
        await asyncio.wait_for(leader.hold(), 5.0)

        assert clock.seconds <= 100.0 + LeaseConfig().renew_deadline + 0.001
        assert not leader.leads
        assert "no complete answer" in leader.problem


async def test_one_failed_renewal_does_not_end_a_leadership() -> None:
    """A single 500 is followed by another attempt in time."""
    async with a_field() as field:
        clock = Clock()
        leader = field.candidate("a", clock)
        await leader.acquire()
        field.api.fail("500", "leases", times=1)
        holding = asyncio.ensure_future(leader.hold())
        await until(lambda: clock.seconds >= 130.0, what="fifteen renewals")

        assert leader.leads
        holding.cancel()


async def test_a_replaced_leader_finds_out_at_its_next_renewal() -> None:
    """Somebody else's name on the Lease ends the leadership at once."""
    async with a_field() as field:
        leader = field.candidate("a", Clock())
        await leader.acquire()
        await field.candidate("b", Clock(9_000.0)).acquire()

        assert not await leader.confirm()
        assert not leader.leads
        assert await leader.outbid((9, 9)) is None


async def test_two_candidates_never_lead_both() -> None:
    """The API server's optimistic locking lets one of them win."""
    async with a_field() as field:
        electors = [field.candidate(name, Clock()) for name in "abcd"]
        tasks = [asyncio.ensure_future(elector.acquire()) for elector in electors]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=5.0)
        for task in tasks:
            task.cancel()

        assert [elector.leads for elector in electors].count(True) == 1


async def test_an_epoch_rises_above_what_routers_remember() -> None:
    """Only a leader that is one outbids, and only as far as needed."""
    async with a_field() as field:
        leader = field.candidate("a", Clock())
        epoch = await leader.acquire()

        assert await leader.outbid((epoch[0] - 1, 50)) == epoch
        assert await leader.outbid((epoch[0] + 5, 3)) == (epoch[0] + 5, 4)


async def test_a_forbidden_lease_is_said_once_and_tried_again() -> None:
    """A missing permission is a sentence, not a crash."""
    async with a_field() as field:
        field.api.allowed = lambda call: call.plural != "leases"
        clock = Clock()
        elector = field.candidate("a", clock)
        acquiring = asyncio.ensure_future(elector.acquire())
        await until(lambda: clock.seconds >= 120.0, what="ten attempts")
        assert "cannot get leases" in elector.problem
        field.api.allowed = lambda _call: True
        await asyncio.wait_for(acquiring, 5.0)

        assert elector.leads


async def test_a_release_that_fails_raises_and_leads_no_more() -> None:
    """The Lease then runs out by itself."""
    async with a_field() as field:
        leader = field.candidate("a", Clock())
        await leader.acquire()
        field.api.fail("500", "leases", times=1)
        with pytest.raises(KubeError):
            await leader.release()

        assert not leader.leads
