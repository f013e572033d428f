"""The signpost: what a caller may not enter, and what is full or not prepared, is not the way."""

from __future__ import annotations

import asyncio

import pytest

from sglr_dataplane.errors import InvalidRequestError, NoAvailableWorkersError, UnknownModelError
from sglr_dataplane.fleet.caller import Caller
from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.routes import Target
from sglr_dataplane.fleet.signpost import Signpost
from sglr_proto.backend import Admission, SGLangBackend, Traffic
from sglr_proto.snapshot import BackendSnapshot, Snapshot
from sglr_proto.spec_refs import Auth, CallerKeysRef
from support.engines import ScriptedEngine, some_facts
from support.fleets import a_backend, an_endpoint

FALLBACK = Traffic(priority=1)
LOCK = Auth(key_secret_refs=(CallerKeysRef(name="callers"),))


def a_signpost(*backends: SGLangBackend) -> tuple[Signpost, Registry]:
    """Return a signpost over ready workers, one for each of *backends*."""
    registry = Registry(lambda _endpoint, _backend: ScriptedEngine())
    found = tuple(
        BackendSnapshot(backend=each, endpoints=(an_endpoint(each.metadata.name),))
        for each in backends
    )
    registry.apply(Snapshot(version=1, backends=found))
    for worker in registry.workers():
        worker.became_ready(some_facts())
    return Signpost(registry, chance=lambda: 0.0), registry


def test_a_caller_is_sent_to_the_backends_that_are_open_to_it() -> None:
    """Of two that share a name one asks for a key: who has none goes to the other."""
    post, _ = a_signpost(a_backend("a", auth=LOCK), a_backend("b"))

    assert post.target("m", Caller()) == Target("default/b")
    assert post.target("m", Caller(opens=frozenset({"default/a"}))) == Target("default/a")
    assert post.target("m", Caller(opens=None)) == Target("default/a")


def test_where_nothing_is_open_the_model_does_not_exist() -> None:
    """The same sentence as for a name that nobody serves: nobody learns what others may use."""
    post, _ = a_signpost(a_backend("a", auth=LOCK))
    sentences: list[str] = []
    for name, caller in (("m", Caller()), ("x", Caller()), ("m", Caller(models=frozenset({"x"})))):
        with pytest.raises(UnknownModelError) as refusal:
            post.target(name, caller)
        sentences.append(refusal.value.message.replace(repr(name), "NAME"))

    assert len(set(sentences)) == 1


def test_a_backend_without_what_it_needs_beside_workers_is_down() -> None:
    """Its tokenizer is still loading: the fallback serves meanwhile, and alone it says so itself."""
    post, _ = a_signpost(a_backend("a"), a_backend("b", traffic=FALLBACK))
    post.is_prepared = lambda key: key != "default/a"

    assert post.target("m") == Target("default/b")
    post.is_prepared = lambda _: False
    assert post.target("m") == Target("default/a")


async def test_a_full_queue_spills_over_to_the_next_priority() -> None:
    """No place at a worker and none in the queue; a place that comes back brings requests back."""
    none_waits = Admission(max_inflight=1, max_queue_depth=0)
    post, registry = a_signpost(
        a_backend("a", admission=none_waits), a_backend("b", traffic=FALLBACK)
    )
    pool = registry.pool("default/a")
    assert pool is not None
    before = post.target("m")
    slot = await pool.gate.enter("", Priority.NORMAL, asyncio.get_running_loop().time() + 5)
    full = post.target("m")
    pool.gate.leave(slot)

    assert (before, full, post.target("m")) == (
        Target("default/a"),
        Target("default/b"),
        Target("default/a"),
    )


def test_a_choice_among_some_knows_no_others() -> None:
    """What another walk serves is nothing here, however heavy."""
    post, _ = a_signpost(a_backend("a", traffic=Traffic(weight=1000)), a_backend("b"))

    assert post.target("m", among=lambda key: key == "default/b") == Target("default/b")
    with pytest.raises(UnknownModelError):
        post.target("m", among=lambda _: False)


def test_without_a_name_the_only_model_is_meant() -> None:
    """Behind however many backends; with two models the client must say which."""
    one, _ = a_signpost(a_backend("a"), a_backend("b"))
    several, _ = a_signpost(a_backend("a"), a_backend("b", model="x"))

    assert one.target(None) == Target("default/a")
    with pytest.raises(InvalidRequestError, match="Missing required parameter: 'model'"):
        several.target(None)


def test_backends_that_all_have_weight_zero_take_nothing() -> None:
    """503: it is there, but wants no requests like this one."""
    post, _ = a_signpost(a_backend("a", traffic=Traffic(weight=0)))

    with pytest.raises(NoAvailableWorkersError, match="each has weight 0"):
        post.target("m")
