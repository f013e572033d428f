"""The registry: snapshots in, workers kept, made and let go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.fleet.abilities import UNKNOWN, Abilities
from sglr_dataplane.fleet.registry import Counts, Registry
from sglr_dataplane.fleet.worker import Worker, WorkerState
from sglr_proto.snapshot import BackendSnapshot, Endpoint, EndpointState, Snapshot
from support.engines import ScriptedEngine, some_facts
from support.fleets import KEY, a_backend, a_registry, a_snapshot, an_endpoint


def an_empty_registry() -> Registry:
    """Return a registry that makes an engine for every endpoint."""
    return Registry(lambda _endpoint, _backend: ScriptedEngine())


def ids(workers: tuple[Worker, ...]) -> list[str]:
    """Return the ids of *workers*."""
    return [worker.id for worker in workers]


def test_workers_are_kept_by_identity() -> None:
    """A new snapshot adds who is new, keeps who stays and lets go who is missing."""
    registry = an_empty_registry()
    first = registry.apply(a_snapshot(an_endpoint("a"), an_endpoint("b", port=2)))
    second = registry.apply(
        a_snapshot(an_endpoint("b", port=2), an_endpoint("c", port=3), version=2)
    )

    assert (ids(first.added), ids(first.kept), ids(first.leaving)) == (["a", "b"], [], [])
    assert (ids(second.added), ids(second.kept), ids(second.leaving)) == (["c"], ["b"], ["a"])
    assert second.kept[0] is first.added[1]
    assert first.added[0].state is WorkerState.LEAVING


def test_the_same_snapshot_again_changes_nothing() -> None:
    """Applying is idempotent."""
    registry = an_empty_registry()
    registry.apply(a_snapshot(an_endpoint("a")))

    again = registry.apply(a_snapshot(an_endpoint("a")))

    assert (ids(again.added), ids(again.kept), ids(again.leaving)) == ([], ["a"], [])


@pytest.mark.parametrize(
    "moved",
    [
        an_endpoint("a", host="10.0.0.2"),
        an_endpoint("a", port=30001),
        an_endpoint("a", incarnation="second"),
    ],
)
def test_another_address_or_incarnation_is_another_worker(moved: Endpoint) -> None:
    """An id that moved or restarted gets a new client; the old one leaves."""
    registry = an_empty_registry()
    (old,) = registry.apply(a_snapshot(an_endpoint("a"))).added

    changes = registry.apply(a_snapshot(moved, version=2))

    assert ids(changes.added) == ["a"]
    assert changes.leaving == (old,)
    assert registry.workers()[0].endpoint == moved
    assert set(registry.tended()) == {old, *changes.added}


def test_an_older_snapshot_is_ignored() -> None:
    """What comes late does not undo what is newer; a later epoch outranks any version."""
    registry = an_empty_registry()
    registry.apply(a_snapshot(an_endpoint("new"), version=5))

    late = registry.apply(a_snapshot(an_endpoint("old"), version=4))
    after_late = ids(registry.workers())
    registry.apply(
        Snapshot(epoch=(1, 0), backends=(BackendSnapshot(backend=a_backend(), endpoints=()),))
    )

    assert late.added == ()
    assert after_late == ["new"]
    assert registry.workers() == ()


def test_who_leaves_keeps_its_streams_and_gets_no_new_ones() -> None:
    """A leaving worker is no candidate; it is done when its last stream ends."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine()})
    leaver = registry.workers()[0]
    engine = leaver.begin()

    registry.apply(a_snapshot(an_endpoint("b"), version=2))
    done_before = leaver.is_done
    leaver.end(engine)

    assert ids(registry.candidates(KEY)) == ["b"]
    assert not done_before
    assert leaver.is_done


def test_a_worker_that_left_does_not_come_back() -> None:
    """A probe that was under way cannot make a leaving worker ready."""
    registry = a_registry({"a": ScriptedEngine()})
    (worker,) = registry.workers()
    registry.apply(a_snapshot(version=2))

    worker.became_ready(some_facts())
    worker.became_unhealthy("late")
    worker.refused("late")

    assert worker.state is WorkerState.LEAVING


def test_models_are_found_by_name_and_alias() -> None:
    """Names lead to backends, aliases too; a name that two backends have leads to both."""
    registry = an_empty_registry()
    backends = (
        BackendSnapshot(backend=a_backend("a", model="qwen", aliases=("gpt", "org/q"))),
        BackendSnapshot(backend=a_backend("b", model="llama", aliases=("gpt",))),
    )
    registry.apply(Snapshot(version=1, backends=backends))

    def keys(name: str) -> list[str]:
        return [way.backend_key for way in registry.routes.ways(name)]

    assert keys("qwen") == ["default/a"]
    assert keys("org/q") == ["default/a"]
    assert keys("gpt") == ["default/a", "default/b"]
    assert keys("llama") == ["default/b"]
    assert keys("mistral") == []
    assert registry.routes.names == ("qwen", "gpt", "org/q", "llama")
    assert registry.backend("default/b").spec.model.name == "llama"


def test_counts_tell_known_from_ready() -> None:
    """Counts are what messages say: all endpoints, and those that may take a job."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine(), "c": ScriptedEngine()})
    registry.workers()[0].became_unhealthy("gone")

    assert registry.count(KEY) == Counts(known=3, ready=2)
    assert registry.counts() == {KEY: Counts(known=3, ready=2)}
    assert registry.count("default/none") == Counts(known=0, ready=0)


def test_ready_is_one_worker_that_can_take_a_job() -> None:
    """A router is not ready with none, and is with the first."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine()}, ready=False)
    before = registry.is_ready
    registry.workers()[1].became_ready(some_facts())

    assert not before
    assert registry.is_ready


def test_the_prompt_limit_is_the_smallest_and_below_the_workers() -> None:
    """Sglang refuses a prompt as long as its limit: the longest that all take is one less."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine(), "c": ScriptedEngine()})
    first, second, third = registry.workers()
    first.became_ready(some_facts(max_req_input_len=8186))
    second.became_ready(some_facts(max_req_input_len=4090))
    third.became_ready(some_facts(max_req_input_len=None))

    assert registry.abilities(KEY).longest_prompt == 4089
    assert registry.abilities("default/none") == UNKNOWN
    assert registry.facts(KEY) is first.facts


def test_the_window_is_the_smallest_that_any_worker_has() -> None:
    """What /v1/models tells holds at whichever worker a request comes to."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine(), "c": ScriptedEngine()})
    for worker, length in zip(registry.workers(), (8192, 4096, None), strict=True):
        worker.became_ready(replace(some_facts(), context_length=length))

    assert registry.abilities(KEY).context == 4096


def test_nothing_is_known_before_a_worker_has_spoken() -> None:
    """No limit and no facts are None, not zero."""
    registry = a_registry({"a": ScriptedEngine()}, ready=False)

    assert registry.abilities(KEY) == Abilities(None, None, None, frozenset())
    assert registry.facts(KEY) is None


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "gone"]), st.sampled_from([None, 10, 20]), st.booleans()
        )
    )
)
def test_abilities_are_those_of_the_workers_there_are_after_any_change(
    steps: list[tuple[str, int | None, bool]],
) -> None:
    """Asked in between or not: what is kept is forgotten when a worker speaks, comes or leaves."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine()}, ready=False)
    for version, (id, longest, is_asked) in enumerate(steps, 2):
        if id == "gone":
            registry.apply(a_snapshot(an_endpoint("a"), version=version))
        for worker in registry.workers():
            if worker.id == id:
                worker.became_ready(some_facts(max_req_input_len=longest))
        if is_asked:
            registry.abilities(KEY)

    spoken = [worker.facts for worker in registry.workers() if worker.facts is not None]
    lengths = [facts.max_req_input_len for facts in spoken]
    known = [length - 1 for length in lengths if length is not None]
    assert registry.abilities(KEY).longest_prompt == (min(known) if known else None)
    assert registry.facts(KEY) == (spoken[0] if spoken else None)


@pytest.mark.parametrize(
    ("ready", "suspect", "draining", "unready", "expected"),
    [
        (True, True, True, True, ["ready"]),
        (False, True, True, True, ["suspect"]),
        (False, False, True, True, ["draining"]),
        (False, False, False, True, []),
    ],
)
def test_a18_the_best_group_with_anybody_in_it_takes_the_job(
    *, ready: bool, suspect: bool, draining: bool, unready: bool, expected: list[str]
) -> None:
    """A18: draining endpoints get new jobs only when nobody else is left, unready ones never."""
    wanted = {
        "ready": (ready, EndpointState.READY),
        "suspect": (suspect, EndpointState.READY),
        "draining": (draining, EndpointState.DRAINING),
        "unready": (unready, EndpointState.UNREADY),
    }
    endpoints = [
        an_endpoint(id, state=state) for id, (there, state) in wanted.items() if there
    ]  # the endpoint's own word
    registry = an_empty_registry()
    registry.apply(a_snapshot(*endpoints))
    for worker in registry.workers():
        worker.became_ready(some_facts())
        if worker.id == "suspect":
            worker.suspected()

    assert ids(registry.candidates(KEY)) == expected


def test_a18_a_worker_that_starts_draining_keeps_its_client() -> None:
    """A18: a change of readiness is the same worker, without new jobs from then on."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine()})
    (worker, _) = registry.workers()

    registry.apply(
        a_snapshot(an_endpoint("a", state=EndpointState.DRAINING), an_endpoint("b"), version=2)
    )

    assert registry.workers()[0] is worker
    assert ids(registry.candidates(KEY)) == ["b"]
    assert registry.count(KEY) == Counts(known=2, ready=1)


def test_who_was_tried_is_no_candidate() -> None:
    """What a retry leaves out is gone before groups are looked at."""
    registry = a_registry({"a": ScriptedEngine(), "b": ScriptedEngine()})
    registry.workers()[1].suspected()

    assert ids(registry.candidates(KEY, without={"a"})) == ["b"]
    assert ids(registry.candidates(KEY, without={"a", "b"})) == []


def policy_of(registry: Registry) -> object:
    """Return the policy of the one backend."""
    pool = registry.pool(KEY)
    assert pool is not None
    return pool.policy


def test_a_policy_lives_as_long_as_it_is_asked_for() -> None:
    """A new version of a backend does not start the round anew."""
    registry = a_registry({"a": ScriptedEngine()})
    before = policy_of(registry)

    registry.apply(a_snapshot(an_endpoint("a"), version=2))

    assert policy_of(registry) is before


def test_a_breaker_outlives_blips_and_reloads_and_dies_with_its_process() -> None:
    """Readiness and settings change nothing it knows; another incarnation begins anew."""
    registry = a_registry({"a": ScriptedEngine()})
    breaker = registry.workers()[0].breaker
    endpoint = an_endpoint("a", state=EndpointState.DRAINING)

    registry.apply(a_snapshot(endpoint, version=2))
    registry.workers()[0].became_unhealthy("blip")
    registry.workers()[0].became_ready(some_facts())
    kept = registry.workers()[0].breaker
    registry.apply(a_snapshot(an_endpoint("a", incarnation="2"), version=3))

    assert kept is breaker
    assert registry.workers()[0].breaker is not breaker


def test_a_job_that_never_began_cannot_end() -> None:
    """A45: a count below zero is a bug that says so."""
    (worker,) = a_registry({"a": ScriptedEngine()}).workers()

    with pytest.raises(RuntimeError, match="never begun"):
        worker.end(worker.engine)


def test_a_worker_shows_its_state() -> None:
    """The repr tells who it is, how it is and how busy."""
    (worker,) = a_registry({"a": ScriptedEngine()}).workers()
    worker.begin()
    worker.suspected()

    assert repr(worker) == "<Worker a ready suspect in_flight=1>"


async def test_closing_closes_every_engine() -> None:
    """At the end no connection stays, those of leaving workers included."""
    engines = {"a": ScriptedEngine(), "b": ScriptedEngine()}
    registry = a_registry(engines)
    registry.workers()[0].begin()
    registry.apply(a_snapshot(an_endpoint("b"), version=2))

    await registry.aclose()

    assert all(engine.closed.is_set() for engine in engines.values())
