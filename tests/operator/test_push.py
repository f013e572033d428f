"""The push stream between a real server and real routers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from sglr_dataplane.fleet import ailments, intake_file
from sglr_operator.conditions import RouterView
from sglr_operator.config import Address
from sglr_operator.push import new_server
from sglr_proto.discovery import push_pb2 as pb
from sglr_proto.discovery.push_pb2_grpc import EndpointPushStub
from sglr_proto.snapshot import BackendSnapshot, Endpoint, Snapshot
from support.kube_objects import a_backend
from support.kube_wait import until
from support.push import CONFIG, Operator, an_operator, listening, routing

ONE: frozenset[str] = frozenset({"inference/a"})


def one(request: pb.SubscribeRequest) -> pb.RequestBatch:
    """Return a batch of one."""
    return pb.RequestBatch(requests=[request])


async def exchange(call: Any, request: pb.SubscribeRequest) -> object:
    """Send *request* and return the answer; a stream that is refused fails at either."""
    await call.write(one(request))
    answer: object = await call.read()
    return answer


async def test_what_is_published_reaches_routers_and_is_acknowledged() -> None:
    """An update is in force on every router, and the operator knows it."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1")
        operator.publisher.complete(ONE)
        async with routing(operator.port, "r0") as first, routing(operator.port, "r1") as second:
            await until(lambda: operator.publisher.view("inference/a").synced == 2, what="synced")
            operator.say("a", "10.0.0.1", "10.0.0.2")
            await until(
                lambda: operator.publisher.view("inference/a") == RouterView(2, 2),
                what="both acknowledged the second version",
            )

            assert first.table() == second.table() == {"a": ["10.0.0.1", "10.0.0.2"]}
            assert operator.sent("update") == 4
            assert "inference/a" in operator.answered


async def test_k10_nothing_is_pushed_before_everything_is_known() -> None:
    """A router that dials a starting operator gets no half list, and keeps what it has."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1")
        async with routing(operator.port) as router:
            await until(lambda: operator.sent("heartbeat") >= 2, what="connected for a while")
            assert router.applied == []
            assert not router.intake.is_synced
            operator.publisher.complete(ONE)
            await until(lambda: router.table() == {"a": ["10.0.0.1"]}, what="in force")

            assert [snapshot.version for snapshot in router.applied] == [1]
            assert router.intake.startup == "operator"


async def test_an_empty_list_is_a_list() -> None:
    """With no backend at all a router is synced and empty."""
    async with listening(an_operator()) as operator:
        operator.publisher.complete(frozenset())
        async with routing(operator.port) as router:
            await until(lambda: router.intake.is_synced, what="synced")

            assert router.table() == {}


async def test_a_removed_backend_is_gone_and_others_stay() -> None:
    """A removal touches one backend."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1")
        operator.say("b", "10.0.0.2")
        operator.publisher.complete(frozenset({"inference/a", "inference/b"}))
        async with routing(operator.port) as router:
            await until(lambda: len(router.table()) == 2, what="both in force")
            operator.forget("a")
            operator.publisher.complete(frozenset({"inference/b"}))

            await until(lambda: router.table() == {"b": ["10.0.0.2"]}, what="a gone")


async def test_a_router_that_comes_back_is_sent_only_what_changed() -> None:
    """Unchanged backends are not sent again after a reconnect; a vanished one is pruned."""
    operator = an_operator()
    for name in ("a", "b", "c"):
        operator.say(name, "10.0.0.1")
    operator.publisher.complete(frozenset({"inference/a", "inference/b", "inference/c"}))
    async with listening(operator), routing(operator.port) as router:
        await until(lambda: len(router.table()) == 3, what="all in force")
        await until(lambda: operator.publisher.view("inference/c").synced == 1, what="answered")
        before = operator.sent("update")
        operator.publisher.end("test")
        operator.say("b", "10.0.0.9")
        operator.forget("c")
        operator.publisher.complete(frozenset({"inference/a", "inference/b"}))
        await until(
            lambda: router.table() == {"a": ["10.0.0.1"], "b": ["10.0.0.9"]},
            what="the change arrived",
        )

        assert operator.sent("update") == before + 1


async def test_a_router_survives_its_operator_and_adopts_the_next_one() -> None:
    """While nobody answers the list stays; a new leader with equal content changes nothing."""
    first, second = an_operator((1, 0)), an_operator((1, 1))
    for operator in (first, second):
        operator.say("a", "10.0.0.1")
        operator.publisher.complete(ONE)
    async with AsyncExitStack() as stack:
        async with listening(first):
            router = await stack.enter_async_context(routing(first.port))
            await until(lambda: router.intake.connected, what="the first leads")
        await until(lambda: not router.intake.connected, what="nobody answers")
        assert router.table() == {"a": ["10.0.0.1"]}
        await stack.enter_async_context(listening(second, first.port))
        await until(lambda: router.intake.epoch == (1, 1), what="the second leads")
        await until(lambda: second.publisher.view("inference/a").synced == 1, what="acknowledged")

        assert [snapshot.epoch for snapshot in router.applied] == [(1, 0)]
        second.say("a", "10.0.0.2")
        await until(lambda: router.table() == {"a": ["10.0.0.2"]}, what="the second is obeyed")


async def test_a_replaced_leader_is_not_obeyed(tmp_path: Path) -> None:
    """A router that knows a later epoch takes nothing from the old leader, which is told so."""
    old = an_operator((1, 5))
    old.say("a", "10.0.0.66")
    old.publisher.complete(ONE)
    path = tmp_path / "lkg"
    endpoint = Endpoint(id="u:1", host="10.0.0.1", port=1)
    backend = BackendSnapshot(backend=a_backend(name="a"), endpoints=(endpoint,))
    intake_file.write(path, Snapshot(epoch=(1, 6), version=1, backends=(backend,)))
    async with (
        listening(old),
        routing(old.port, change=lambda config: replace(config, file=path)) as router,
    ):
        await until(lambda: len(old.outranked) >= 2, what="told at every dial")

        assert set(old.outranked) == {(1, 6)}
        assert router.table() == {"a": ["10.0.0.1"]}
        assert old.sent("update") == 0


async def test_k28_a_bad_update_is_rejected_and_the_last_good_one_stays() -> None:
    """One backend's nonsense keeps that backend's last version and stops no other."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1")
        operator.say("b", "10.0.0.2")
        operator.publisher.complete(frozenset({"inference/a", "inference/b"}))
        async with routing(operator.port, "r0") as router:
            await until(lambda: operator.publisher.view("inference/a").synced == 1, what="synced")
            _spoil(operator, "inference/a")
            operator.say("b", "10.0.0.3")
            await until(lambda: router.table()["b"] == ["10.0.0.3"], what="b goes on")
            await until(
                lambda: bool(operator.publisher.view("inference/a").rejections), what="rejected"
            )

            [rejection] = operator.publisher.view("inference/a").rejections
            assert (rejection.router, rejection.code) == ("r0", "Undecodable")
            assert router.table()["a"] == ["10.0.0.1"]
            assert operator.publisher.view("inference/a").synced == 0


def _spoil(operator: Operator, key: str) -> None:
    """Replace the newest message about *key* by one that no router can read."""
    message: Any = operator.publisher._messages[key]
    update = pb.BackendUpdate(
        backend=pb.BackendRef(namespace="inference", name="a"),
        epoch=pb.Epoch(created=1),
        version=message.version + 1,
        content_hash="x",
        snapshot=b"{",
    )
    body = pb.PushResponse(update=update).SerializeToString()
    operator.publisher._say(key, replace(message, body=body, version=message.version + 1, hash="x"))


async def test_worker_health_is_counted_over_all_routers() -> None:
    """A worker that one router cannot use counts as unhealthy, and the router's words are kept."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1", "10.0.0.2")
        operator.publisher.complete(ONE)
        good = {"inference/a": ailments.BackendHealth({"x": None, "y": None})}
        bad = {"inference/a": ailments.BackendHealth({"x": None, "y": "no route"}, "no tokenizer")}
        async with (
            routing(operator.port, "r0", health=lambda: good),
            routing(operator.port, "r1", health=lambda: bad),
        ):
            await until(
                lambda: operator.publisher.view("inference/a").unusable == {"y": "no route"},
                what="reported",
            )

            assert operator.publisher.view("inference/a").healthy == 1
            assert operator.publisher.view("inference/a").unprepared == ("r1: no tokenizer",)


async def test_processes_of_one_pod_count_once() -> None:
    """A pod is synced when all of its processes are."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1")
        operator.publisher.complete(ONE)
        async with (
            routing(operator.port, "r0", change=lambda c: replace(c, process=0)),
            routing(operator.port, "r0", change=lambda c: replace(c, process=1)),
        ):
            await until(lambda: operator.sent("update") == 2, what="both sent")
            await until(lambda: operator.publisher.view("inference/a").synced == 1, what="synced")

            assert operator.publisher.view("inference/a").connected == 1


def test_k28_a_slow_router_is_sent_the_newest_version_only() -> None:
    """A mailbox has one slot per backend."""
    operator = an_operator()
    operator.publisher.complete(ONE)
    router = operator.publisher.join(pb.Hello(router="slow", protocol_versions=[1]))
    assert operator.publisher.due(router) is not None  # the empty list
    for number in range(100):
        operator.say("a", f"10.0.0.{number}")

    message = operator.publisher.due(router)
    assert message is not None
    assert pb.PushResponse.FromString(message).update.version == 100
    assert operator.publisher.due(router) is None


def test_every_router_is_handed_the_same_bytes_behind_its_own_nonce() -> None:
    """An update is serialised once; only the nonce in front differs, also when it has more bytes."""
    operator = an_operator()
    operator.publisher.complete(ONE)
    operator.say("a", "10.0.0.1")
    routers = [operator.publisher.join(pb.Hello(router=f"r{i}")) for i in range(2)]
    routers[1].nonce = 299
    first, second = (operator.publisher.due(router) for router in routers)

    assert first is not None
    assert second is not None
    assert first[2:] == second[3:]
    parsed = [pb.PushResponse.FromString(message) for message in (first, second)]
    assert [response.nonce for response in parsed] == [1, 300]
    assert parsed[0].update == parsed[1].update


def test_an_answer_to_nothing_is_ignored() -> None:
    """An unknown nonce, also one of an earlier stream, counts for nothing."""
    operator = an_operator()
    operator.publisher.complete(ONE)
    operator.say("a", "10.0.0.1")
    router = operator.publisher.join(pb.Hello(router="r0", pod_uid="u0"))
    operator.publisher.due(router)
    operator.publisher.hear(router, pb.SubscribeRequest(ack=pb.Ack(nonce=7)))

    assert operator.publisher.view("inference/a").synced == 0
    operator.publisher.hear(router, pb.SubscribeRequest(ack=pb.Ack(nonce=1)))
    assert operator.publisher.view("inference/a").synced == 1


def test_a_router_that_does_not_answer_lags_and_is_cut_off() -> None:
    """After the grace it is named, after the deadline its stream ends."""
    now = [0.0]
    operator = an_operator(clock=lambda: now[0])
    operator.publisher.complete(ONE)
    operator.say("a", "10.0.0.1")
    router = operator.publisher.join(pb.Hello(router="r0", pod_uid="u0"))
    operator.publisher.due(router)

    now[0] = CONFIG.syncing_grace - 0.1
    assert operator.publisher.view("inference/a").lagging == ()
    now[0] = CONFIG.syncing_grace + 0.1
    assert operator.publisher.view("inference/a").lagging == ("r0",)
    assert operator.publisher.is_awaited("inference/a")
    operator.publisher.cut_if_silent(router)
    assert router.ending == ""
    now[0] = CONFIG.ack_deadline + 0.1
    operator.publisher.cut_if_silent(router)
    assert router.ending == "no answer within the deadline"


async def test_k26_an_update_above_grpcs_default_limit_arrives() -> None:
    """A backend of many endpoints is larger than 4 MiB and still is one update."""
    hosts = [f"10.{a}.{b}.{c}" for a in range(3) for b in range(100) for c in range(100)]
    async with listening(an_operator()) as operator:
        operator.say("a", *hosts)
        operator.publisher.complete(ONE)
        assert len(operator.publisher._messages["inference/a"].body) > 4 * 1024 * 1024 // 2
        async with routing(operator.port) as router:
            await until(lambda: len(router.table().get("a", ())) == 30_000, what="all", within=15)


async def _refuse(token: str) -> str | None:
    return None if token == "good" else "The token is not known."


@pytest.mark.parametrize("header", [None, "Bearer bad", "Basic good", "Bearer "])
async def test_a_router_without_a_good_token_hears_nothing(header: str | None) -> None:
    """Only a good bearer token opens the stream."""
    operator = an_operator(authenticate=_refuse)
    operator.publisher.complete(frozenset())
    async with (
        listening(operator),
        grpc.aio.insecure_channel(f"127.0.0.1:{operator.port}") as channel,
    ):
        metadata = (("authorization", header),) if header is not None else ()
        call = EndpointPushStub(channel).Subscribe(metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await exchange(call, pb.SubscribeRequest(hello=pb.Hello(protocol_versions=[1])))

        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_a_good_token_opens_the_stream() -> None:
    """The same server lets the right router in."""
    operator = an_operator(authenticate=_refuse)
    async with (
        listening(operator),
        grpc.aio.insecure_channel(f"127.0.0.1:{operator.port}") as channel,
    ):
        call = EndpointPushStub(channel).Subscribe(metadata=(("authorization", "Bearer good"),))
        await call.write(one(pb.SubscribeRequest(hello=pb.Hello(protocol_versions=[1]))))

        answer = await call.read()
        assert isinstance(answer, pb.PushBatch)
        assert answer.responses[0].welcome.server == "operator-0"


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (pb.SubscribeRequest(ack=pb.Ack()), grpc.StatusCode.INVALID_ARGUMENT),
        (
            pb.SubscribeRequest(hello=pb.Hello(protocol_versions=[2])),
            grpc.StatusCode.FAILED_PRECONDITION,
        ),
    ],
)
async def test_a_stream_begins_with_a_hello_of_our_protocol(
    first: pb.SubscribeRequest, code: grpc.StatusCode
) -> None:
    """Anything else is answered with a status, not with silence."""
    async with (
        listening(an_operator()) as operator,
        grpc.aio.insecure_channel(f"127.0.0.1:{operator.port}") as channel,
    ):
        call = EndpointPushStub(channel).Subscribe()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await exchange(call, first)

        assert caught.value.code() == code


async def test_two_operators_never_share_a_port() -> None:
    """The second one to bind an address is told so."""
    async with listening(an_operator()) as operator:
        config = replace(CONFIG, address=Address("127.0.0.1", operator.port))

        with pytest.raises(OSError, match="cannot listen on"):
            new_server(an_operator().service, config, None)


async def test_many_small_backends_travel_in_few_messages() -> None:
    """A stream's cost is by its messages: a first list of hundreds of backends is a few."""
    operator = an_operator()
    names = [f"b{number}" for number in range(300)]
    for name in names:
        operator.say(name, "10.0.0.1")
    operator.publisher.complete(frozenset(f"inference/{name}" for name in names))
    async with (
        listening(operator),
        grpc.aio.insecure_channel(f"127.0.0.1:{operator.port}") as channel,
    ):
        call = EndpointPushStub(channel).Subscribe()
        await call.write(one(pb.SubscribeRequest(hello=pb.Hello(protocol_versions=[1]))))
        responses: list[pb.PushResponse] = []
        reads = 0
        while not any(response.HasField("sync_complete") for response in responses):
            batch = await call.read()
            assert isinstance(batch, pb.PushBatch)
            responses += batch.responses
            reads += 1

    assert reads <= 4
    assert [response.nonce for response in responses if response.nonce] == list(range(1, 301))
    assert {response.update.backend.name for response in responses if response.nonce} == set(names)
