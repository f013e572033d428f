"""The cache against an API server that fails the ways real ones do."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client import CollectorRegistry

from sglr_operator.config import WatchConfig
from sglr_operator.errors import status_error
from sglr_operator.kube import Kube, KubeSource
from sglr_operator.metrics import Metrics
from sglr_operator.objects import Pod
from sglr_operator.reflector import Change, Event, Listing, Reflector, Timing
from sglr_operator.resources import PODS
from support.kube_api import FakeApi, FaultKind, running_api
from support.kube_wait import until

FAST = WatchConfig(
    page=2,
    server_timeout=1.0,
    silence=0.3,
    connect_timeout=1.0,
    list_timeout=2.0,
    backoff_first=0.01,
    backoff_most=0.05,
    steady_after=0.5,
)


@dataclass
class Followed:
    """A reflector of pods at work, and everything it reported."""

    api: FakeApi
    reflector: Reflector[Pod]
    metrics: Metrics
    changes: list[tuple[Change[Pod], ...]] = field(default_factory=list)

    def failures(self, kind: str) -> float:
        """Return how often a watch or list failed in one way."""
        labels = {"resource": "pods", "failure": kind}
        name = "sglr_operator_watch_failures_total"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def names(self) -> set[str]:
        """Return the names of the pods held."""
        return {name for _, name in self.reflector.objects}

    def is_true(self) -> bool:
        """Return whether the cache equals the API server's objects."""
        held = {name: pod.status.pod_ip for (_, name), pod in self.reflector.objects.items()}
        real = {n: b["status"]["podIP"] for (_, n), b in self.api.objects("pods").items()}
        return held == real


def a_pod(name: str, ip: str = "10.0.0.1") -> dict[str, Any]:
    """Return a pod as the API server holds it."""
    return {"metadata": {"name": name}, "status": {"phase": "Running", "podIP": ip}}


@asynccontextmanager
async def following(
    *pods: str,
    config: WatchConfig = FAST,
    prepare: Callable[[FakeApi], None] = lambda _api: None,
) -> AsyncGenerator[Followed]:
    """Follow the pods of a fresh API server that holds *pods*."""
    async with running_api() as api:
        for name in pods:
            api.put("pods", a_pod(name))
        prepare(api)
        configuration = Configuration(host=api.url)
        async with ApiClient(configuration) as client:
            source = KubeSource(Kube(client), PODS, Pod, config, random.random)
            changes: list[tuple[Change[Pod], ...]] = []
            metrics = Metrics(CollectorRegistry())
            reflector = Reflector(
                "pods",
                source,
                changes.append,
                config=config,
                timing=Timing(time.monotonic, asyncio.sleep, random.random),
                metrics=metrics,
            )
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(reflector.run())
                yield Followed(api, reflector, metrics, changes)
                task.cancel()


async def test_a_list_of_several_pages_is_held_whole() -> None:
    """All pages of a list are one list."""
    async with following("a", "b", "c", "d", "e") as followed:
        await until(lambda: followed.reflector.synced, what="synced")

        assert followed.names() == {"a", "b", "c", "d", "e"}
        assert len(followed.changes[0]) == 5


async def test_events_change_the_store_as_they_come() -> None:
    """Added, modified and deleted objects are seen without another list."""
    async with following("a", config=replace(FAST, server_timeout=60.0)) as followed:
        await until(lambda: followed.reflector.synced, what="synced")
        followed.api.put("pods", a_pod("b"))
        followed.api.put("pods", a_pod("a", "10.0.0.9"))
        followed.api.delete("pods", "b")
        await until(
            lambda: [len(changes) for changes in followed.changes] == [1, 1, 1, 1],
            what="three events",
        )

        last = [changes[0] for changes in followed.changes[1:]]
        assert [(c.key[1], c.old is None, c.new is None) for c in last] == [
            ("b", True, False),
            ("a", False, False),
            ("b", False, True),
        ]
        assert followed.api.count("list", "pods") == 1


async def test_a16_an_object_deleted_while_the_watch_is_down_is_gone_after_it_reconnects() -> None:
    """A deletion that no watch ever reports still empties the cache."""
    async with following("a", "b") as followed:
        await until(lambda: followed.names() == {"a", "b"}, what="both listed")
        followed.api.fail("drop", "pods")
        followed.api.forget("pods", "b")
        followed.api.put("pods", a_pod("c"))

        await until(lambda: followed.names() == {"a", "c"}, what="the ghost is gone")
        gone = [c for changes in followed.changes for c in changes if c.new is None]
        assert [c.key[1] for c in gone] == ["b"]


@pytest.mark.parametrize("kind", ["410", "410 event", "504 version"])
async def test_a17_an_expired_version_means_a_new_list_and_no_hot_loop(kind: FaultKind) -> None:
    """However it is told that its version is gone, it lists again, with growing pauses."""
    async with following("a") as followed:
        await until(lambda: followed.reflector.synced, what="synced")
        followed.api.fail(kind, "pods", times=6, verb="watch")
        await until(lambda: not followed.api.faults, what="all faults met")
        assert followed.names() == {"a"}
        followed.api.put("pods", a_pod("b"))

        await until(lambda: followed.names() == {"a", "b"}, what="current again")
        await until(lambda: followed.reflector.failure == "", what="says it is current")


async def test_a17_a_server_that_always_answers_410_is_asked_at_the_pace_of_the_backoff() -> None:
    """Only the first expired version is followed by a list at once."""
    waits: list[float] = []
    lists = 0

    class Expired:
        async def list(self) -> Listing[Pod]:
            nonlocal lists
            lists += 1
            return Listing({}, "5")

        async def watch(self, version: str) -> AsyncGenerator[Event[Pod]]:
            raise status_error(410, "Expired", f"too old: {version}")
            yield

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            raise asyncio.CancelledError

    reflector = Reflector(
        "pods",
        Expired(),
        lambda _changes: None,
        config=WatchConfig(backoff_first=1.0, backoff_most=4.0),
        timing=Timing(lambda: 0.0, sleep, lambda: 0.0),
        metrics=Metrics(CollectorRegistry()),
    )
    with pytest.raises(asyncio.CancelledError):
        await reflector.run()

    # Full-jitter floor is half of 2, 4, 4, …: the first round was free and counts as a failure.
    assert waits == [1.0, 2.0, 2.0, 2.0, 2.0]
    assert lists == 6


@pytest.mark.parametrize("kind", ["429", "500", "reset", "half-open", "403"])
async def test_a20_a_watch_that_fails_does_not_end_the_cache(kind: FaultKind) -> None:
    """After any failure of the watch, what is created later is seen without a restart."""
    async with following("a") as followed:
        await until(lambda: followed.reflector.synced, what="synced")
        followed.api.fail(kind, "pods", times=2, verb="watch")
        await until(lambda: not followed.api.faults, what="the faults were met")
        followed.api.put("pods", a_pod("late"))

        await until(lambda: "late" in followed.names(), what="the late pod is seen")


async def test_silence_is_no_failure_where_no_bookmark_was_ever_sent() -> None:
    """An idle resource on an old server is listed again and again, and nobody is alarmed."""

    def quiet(api: FakeApi) -> None:
        api.has_bookmarks = False

    async with following("a", config=replace(FAST, silence=0.1), prepare=quiet) as followed:
        await until(lambda: followed.api.count("list", "pods") >= 4, what="listed again")

        assert followed.reflector.failure == ""
        assert followed.failures("silent") == 0


async def test_a20_silence_after_bookmarks_is_a_dead_watch() -> None:
    """Where bookmarks came before, a watch without them is cut, counted and followed by a list."""
    async with following("a") as followed:
        for name in ("b", "c"):
            # Between the two there was a bookmark.
            followed.api.put("pods", a_pod(name))
            await until(lambda n=name: n in followed.names(), what="seen")  # type: ignore[misc]  # a loop's name
        followed.api.fail("half-open", "pods", verb="watch")
        followed.api.compact()

        await until(lambda: followed.failures("silent") == 1, what="cut")
        await until(lambda: followed.reflector.failure == "", what="current again")


async def test_a20_a_bug_while_reading_does_not_end_the_cache() -> None:
    """Even an unexpected exception is followed by another list."""
    rounds = 0

    class Buggy:
        async def list(self) -> Listing[Pod]:
            nonlocal rounds
            rounds += 1
            if rounds == 1:
                raise ZeroDivisionError
            raise asyncio.CancelledError

        async def watch(self, version: str) -> AsyncGenerator[Event[Pod]]:
            yield Event(version)

    reflector = Reflector(
        "pods",
        Buggy(),
        lambda _changes: None,
        config=FAST,
        timing=Timing(lambda: 0.0, asyncio.sleep, lambda: 0.0),
        metrics=Metrics(CollectorRegistry()),
    )
    with pytest.raises(asyncio.CancelledError):
        await reflector.run()

    assert rounds == 2
    assert reflector.failure == "bug"


async def test_a24_a_forbidden_list_is_one_clear_sentence_and_not_synced() -> None:
    """A missing permission is named; the cache never claims to be synced."""

    def forbid(api: FakeApi) -> None:
        api.allowed = lambda call: call.plural != "pods"

    async with following("a", prepare=forbid) as followed:
        await until(lambda: followed.reflector.failure == "forbidden", what="says forbidden")

        assert not followed.reflector.synced
        assert "cannot list pods" in followed.reflector.problem


async def test_a_list_older_than_what_was_seen_is_refused() -> None:
    """A lagging API server's list brings no object back."""
    async with following("a", "b") as followed:
        await until(lambda: followed.names() == {"a", "b"}, what="both listed")
        followed.api.delete("pods", "b")
        await until(lambda: followed.names() == {"a"}, what="deletion seen")
        await until(lambda: followed.reflector.last_contact is not None, what="contact")
        followed.api.fail("stale", "pods", times=3)
        followed.api.fail("drop", "pods")
        followed.api.put("pods", a_pod("c"))
        await until(lambda: not followed.api.faults, what="faults met")
        await until(lambda: followed.names() == {"a", "c"}, what="current")

        back = [c for changes in followed.changes for c in changes if c.key[1] == "b"]
        assert [c.new is None for c in back] == [False, True]


async def test_a_server_whose_history_went_back_is_believed_in_the_end() -> None:
    """A restore from a backup lowers versions; after a few lists the cache follows."""
    async with following("a") as followed:
        await until(lambda: followed.reflector.synced, what="synced")
        followed.api.version = 1_000
        followed.api.put("pods", a_pod("b"))
        await until(lambda: "b" in followed.names(), what="b seen")
        followed.api.fail("drop", "pods")
        followed.api.version = 10
        followed.api.objects("pods").clear()
        followed.api.compact()
        followed.api.put("pods", a_pod("restored"))

        await until(lambda: followed.names() == {"restored"}, what="the restored state")


async def test_a_replayed_added_line_changes_nothing() -> None:
    """Duplicate ADDED lines are no news."""
    async with following("a", "b") as followed:
        await until(lambda: followed.reflector.synced, what="synced")
        followed.api.fail("duplicate", "pods", times=2)
        await until(lambda: not followed.api.faults, what="both replays", within=8.0)
        followed.api.put("pods", a_pod("c"))
        await until(lambda: "c" in followed.names(), what="c seen")

        assert [len(changes) for changes in followed.changes] == [2, 1]


async def test_an_object_that_does_not_decode_hides_no_other() -> None:
    """One malformed object is left out; the list is still complete."""

    def spoil(api: FakeApi) -> None:
        api.put("pods", {"metadata": {"name": "bad"}, "status": {"phase": 7}})

    async with following("a", "b", prepare=spoil) as followed:
        await until(lambda: followed.reflector.synced, what="synced")

        assert followed.names() == {"a", "b"}


@pytest.mark.parametrize("seed", range(6))
async def test_after_any_schedule_of_faults_the_cache_equals_the_server(seed: int) -> None:
    """When faults stop, the cache is the server's truth within one watch's lifetime."""
    chance = random.Random(seed)
    kinds: list[FaultKind] = [
        "429",
        "500",
        "410",
        "410 event",
        "504 version",
        "reset",
        "drop",
        "half-open",
        "stale",
        "duplicate",
        "bookmarks only",
        "delay",
    ]
    async with following("p0", "p1", "p2") as followed:
        api = followed.api
        for step in range(60):
            if chance.random() < 0.4:
                api.fail(chance.choice(kinds), "pods")
            name = f"p{chance.randrange(8)}"
            exists = ("default", name) in api.objects("pods")
            choice = chance.random()
            if choice < 0.5 or not exists:
                api.put("pods", a_pod(name, f"10.0.0.{step}"))
            elif choice < 0.75:
                api.delete("pods", name)
            else:
                api.forget("pods", name)
            if chance.random() < 0.05:
                api.compact()
            await asyncio.sleep(chance.random() * 0.02)
        api.faults.clear()

        # One server timeout (1 s), the silence of a half-open watch and a few backoffs.
        await until(followed.is_true, what=f"seed {seed}: cache equals truth", within=4.0)
        assert followed.reflector.synced


async def test_an_unreachable_server_keeps_what_was_known() -> None:
    """While the API server is away the cache stays as it was, and says why."""
    async with following("a") as followed:
        await until(lambda: followed.reflector.synced, what="synced")
        followed.api.fail("reset", "pods", times=50)
        await until(lambda: followed.reflector.failure == "error", what="says it failed")

        assert followed.names() == {"a"}
        assert followed.reflector.synced
