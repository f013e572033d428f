"""Selection, against its rules written down once more: whatever happened to the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.fleet.breaker import Outcome
from sglr_dataplane.fleet.selection import Offer, Rules, ejections, offer
from sglr_dataplane.fleet.worker import Worker, WorkerState
from sglr_proto.backend import LastResort, OutlierDetection
from sglr_proto.snapshot import EndpointState
from support.engines import FakeClock, ScriptedEngine, some_facts
from support.fleets import a_registry, an_endpoint


def fail(worker: Worker, now: float) -> None:
    """Have five jobs fail there: its breaker opens."""
    for _ in range(5):
        worker.breaker.leave(worker.breaker.enter(now), Outcome.FAILED, now)


def drain(worker: Worker, state: EndpointState) -> None:
    """Have the control plane say *state* of it."""
    worker.told(an_endpoint(worker.id, state=state), worker.model_names)


EVENTS: Final[dict[str, Callable[[Worker, float], object]]] = {
    "begin": lambda worker, _now: worker.begin(),
    "fail": fail,
    "probe the breaker": lambda worker, now: worker.breaker.enter(now),
    "busy": lambda worker, now: worker.was_busy(now),
    "suspected": lambda worker, _now: worker.suspected(),
    "lost": lambda worker, _now: worker.was_lost(),
    "ready": lambda worker, _now: worker.became_ready(some_facts()),
    "unhealthy": lambda worker, _now: worker.became_unhealthy("It does not answer."),
    "refused": lambda worker, _now: worker.refused("It does not serve."),
    "left": lambda worker, _now: worker.left(),
    "draining": lambda worker, _now: drain(worker, EndpointState.DRAINING),
    "unready": lambda worker, _now: drain(worker, EndpointState.UNREADY),
    "wanted": lambda worker, _now: drain(worker, EndpointState.READY),
}
FLEET: Final = ("w0", "w1", "w2")
CHANGES = st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.sampled_from(FLEET)), max_size=8)


def a_fleet(changes: list[tuple[str, str]], clock: FakeClock) -> tuple[Worker, ...]:
    """Return ready workers to which *changes* have happened, half a second after each other."""
    registry = a_registry({id: ScriptedEngine() for id in FLEET}, clock=clock)
    workers = {worker.id: worker for worker in registry.workers()}
    for event, id in changes:
        clock.pass_by(0.5)
        EVENTS[event](workers[id], clock())
    return tuple(workers.values())


def group_of(worker: Worker, alone: frozenset[str], now: float) -> int | None:
    """Return the number of *worker*'s group by the module's list; None: none."""
    if worker.is_lost or worker.endpoint.state is EndpointState.UNREADY:
        return None
    if worker.state is not WorkerState.READY:
        return 5 if worker.state is WorkerState.UNHEALTHY and worker.may_still_serve else None
    if worker.id in alone:
        return 4
    if worker.endpoint.state is EndpointState.DRAINING:
        return 3
    return 2 if worker.suspect or not worker.breaker.admits(now) or worker.is_busy(now) else 1


def by_the_rules(
    workers: Sequence[Worker], wanted: OutlierDetection, now: float, limit: int | None
) -> Offer:
    """Return what the rules offer, worked out group by group."""
    alone = ejections(workers, wanted.max_ejection_percent, now).alone
    groups = {worker: group_of(worker, alone, now) for worker in workers}
    usual = [worker for worker in workers if (groups[worker] or 9) <= 3]
    is_full = any(worker.room(limit, now) <= 0 for worker in usual)
    worst = 5 if wanted.last_resort is LastResort.FAIL_OPEN and not is_full else 3
    for number in range(1, worst + 1):
        group = [w for w in workers if groups[w] == number and w.room(limit, now) > 0]
        if group:
            counted = [w for w in usual if w.room(limit, now) > 0] or group
            return Offer(tuple(group), False, sum(w.room(limit, now) for w in counted))
    return Offer((), is_full, 0)


@given(
    changes=CHANGES,
    percent=st.sampled_from([0, 34, 67, 100]),
    last_resort=st.sampled_from(LastResort),
    limit=st.sampled_from([None, 1, 2]),
    later=st.sampled_from([0.0, 1.0, 20.0]),
)
def test_whatever_happened_the_offer_is_the_one_of_the_rules(
    changes: list[tuple[str, str]],
    percent: int,
    last_resort: LastResort,
    limit: int | None,
    later: float,
) -> None:
    """Workers that are well are told by one comparison: it never says more than the rules."""
    clock = FakeClock()
    workers = a_fleet(changes, clock)
    wanted = OutlierDetection(max_ejection_percent=percent, last_resort=last_resort)
    now = clock() + later
    found = offer(workers, Rules(wanted, limit), now)

    assert found == by_the_rules(workers, wanted, now, limit)


@given(changes=CHANGES, enough=st.integers(0, 30))
def test_a_look_that_stops_early_knows_whether_there_is_more_room_than_asked(
    changes: list[tuple[str, str]], enough: int
) -> None:
    """And whether there is anybody at all."""
    clock = FakeClock()
    workers = a_fleet(changes, clock)
    rules = Rules(OutlierDetection())
    whole = offer(workers, rules, clock())
    part = offer(workers, rules, clock(), enough=enough)

    assert (part.room > enough) == (whole.room > enough)
    assert part.room <= whole.room
    assert bool(part.candidates or part.is_full) == bool(whole.candidates or whole.is_full)
