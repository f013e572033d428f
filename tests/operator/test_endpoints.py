"""Discovery: from Kubernetes objects to endpoints, by tables and properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_operator.endpoints import find
from sglr_operator.objects import (
    InferencePool,
    ObjectMeta,
    Pod,
    PodAnnotations,
    PoolPort,
    PoolSelector,
    PoolSpec,
)
from sglr_proto.backend import Protocol
from sglr_proto.snapshot import EndpointState
from support.kube_objects import (
    NAMESPACE,
    World,
    a_backend,
    a_pod,
    a_service,
    a_slice,
    an_entry,
)

READY, DRAINING, UNREADY = EndpointState.READY, EndpointState.DRAINING, EndpointState.UNREADY
BY_LABEL: dict[str, Any] = {"selector": {"matchLabels": {"app": "qwen"}}}


def states(world: World, workers: dict[str, Any] | None = None) -> dict[str, EndpointState]:
    """Return the state of each endpoint by its address."""
    found = find(a_backend(workers), world)
    return {endpoint.address: endpoint.state for endpoint in found.endpoints}


@pytest.mark.parametrize(
    ("ready", "serving", "terminating", "state"),
    [
        (True, True, False, READY),
        (None, None, None, READY),
        (True, None, None, READY),
        (False, False, False, UNREADY),
        (False, None, None, UNREADY),
        (False, True, True, DRAINING),
        (False, False, True, UNREADY),
        # publishNotReadyAddresses: ready although terminating.
        (True, True, True, DRAINING),
        (True, None, True, DRAINING),
        (False, None, True, UNREADY),
    ],
)
def test_a18_conditions_of_a_slice_decide_what_may_be_sent(
    ready: bool | None,  # the table's columns
    serving: bool | None,
    terminating: bool | None,
    state: EndpointState,
) -> None:
    """Null ready is true, null serving is ready, null terminating is false."""
    entry = an_entry("a", "10.0.0.1", ready=ready, serving=serving, terminating=terminating)
    world = World(services=(a_service(),), slice_list=(a_slice("s", entry),))

    assert states(world) == {"10.0.0.1:30000": state}


def test_a18_a_pod_that_is_being_deleted_drains_before_its_slice_says_so() -> None:
    """The pod's deletionTimestamp counts at once."""
    world = World(
        services=(a_service(),),
        slice_list=(a_slice("s", an_entry("a", "10.0.0.1")),),
        pod_list=(a_pod("a", leaving=True),),
    )

    assert states(world) == {"10.0.0.1:30000": DRAINING}


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (a_pod("a"), READY),
        (a_pod("a", ready=False), UNREADY),
        (a_pod("a", leaving=True), DRAINING),
        (a_pod("a", leaving=True, ready=False), UNREADY),
        (a_pod("a", phase="Failed"), None),
        (a_pod("a", phase="Succeeded"), None),
        (a_pod("a", ip=None), None),
        (a_pod("a", labels={"app": "other"}), None),
        (a_pod("a", labels={}), None),
    ],
)
def test_a18_a_selected_pod_is_used_only_while_it_is_ready(
    pod: object, state: EndpointState | None
) -> None:
    """Terminating, unready, ended, address-less and foreign pods get no new requests."""
    world = World(pod_list=(pod,))  # type: ignore[arg-type]  # the table's column

    assert states(world, BY_LABEL) == ({"10.0.0.1:30000": state} if state else {})


def test_a19_slices_are_one_list_with_each_pod_once() -> None:
    """Several slices, families, null conditions and repeats make one endpoint per pod."""
    world = World(
        services=(a_service(),),
        slice_list=(
            a_slice("s1", an_entry("a", "10.0.0.1")),
            a_slice("s2", an_entry("b", "10.0.0.2", ready=None), an_entry("a", "10.0.0.1")),
            a_slice("s3", an_entry("a", "fd00::1"), family="IPv6"),
        ),
    )

    assert states(world) == {"10.0.0.1:30000": READY, "10.0.0.2:30000": READY}


def test_a19_a_pod_with_an_ipv6_address_alone_is_written_in_brackets() -> None:
    """IPv6 addresses can be dialled."""
    world = World(
        services=(a_service(),),
        slice_list=(a_slice("s", an_entry("a", "fd00::1"), family="IPv6"),),
    )

    assert list(states(world)) == ["[fd00::1]:30000"]


def test_a19_a_pod_moving_between_slices_is_never_absent() -> None:
    """Whichever slice changes first, the pod is there once, as the newer slice has it."""
    ready = an_entry("a", "10.0.0.1")
    leaving = an_entry("a", "10.0.0.1", ready=False, serving=True, terminating=True)
    services = (a_service(),)
    both = (a_slice("s1", ready, version=5), a_slice("s2", leaving, version=9))
    older = (a_slice("s1", ready, version=9), a_slice("s2", leaving, version=5))

    assert states(World(services=services, slice_list=both)) == {"10.0.0.1:30000": DRAINING}
    assert states(World(services=services, slice_list=older)) == {"10.0.0.1:30000": READY}
    assert states(World(services=services, slice_list=both[:1])) == {"10.0.0.1:30000": READY}


def test_a19_the_port_is_the_one_of_each_slice() -> None:
    """A named port may have another number in another slice; other ports are no workers."""
    world = World(
        services=(a_service("grpc", "http"),),
        slice_list=(
            a_slice("s1", an_entry("a", "10.0.0.1"), ports={"grpc": 30000, "http": 8000}),
            a_slice("s2", an_entry("b", "10.0.0.2"), ports={"grpc": 31000}),
            a_slice("s3", an_entry("c", "10.0.0.3"), ports={"http": 8000}),
        ),
    )

    assert list(states(world, {"service": {"name": "qwen", "portName": "grpc"}})) == [
        "10.0.0.1:30000",
        "10.0.0.2:31000",
    ]


def test_a_reused_name_is_another_pod() -> None:
    """A slice that still names a replaced pod does not send requests to its successor."""
    world = World(
        services=(a_service(),),
        slice_list=(a_slice("s", an_entry("a-0", "10.0.0.1", uid="old")),),
        pod_list=(a_pod("a-0", uid="new"),),
    )

    assert states(world) == {}


def test_k15_identity_is_pod_and_port_not_address() -> None:
    """The same address under another UID is another endpoint."""
    [first] = find(a_backend(BY_LABEL), World(pod_list=(a_pod("a", uid="one"),))).endpoints
    [second] = find(a_backend(BY_LABEL), World(pod_list=(a_pod("b", uid="two"),))).endpoints

    assert first.address == second.address
    assert (first.id, second.id) == ("one:30000", "two:30000")


def test_a_restarted_container_is_another_incarnation() -> None:
    """The same pod and port with another container means connections are made anew."""
    [before] = find(a_backend(BY_LABEL), World(pod_list=(a_pod("a"),))).endpoints
    [after] = find(a_backend(BY_LABEL), World(pod_list=(a_pod("a", container="c://2"),))).endpoints

    assert before.id == after.id
    assert before.incarnation != after.incarnation


@pytest.mark.parametrize(
    ("text", "port"), [("8998", 8998), (None, 0), ("x", 0), ("70000", 0), ("123456", 0), ("٣", 0)]
)
def test_a_bootstrap_annotation_is_kept(text: str | None, port: int) -> None:
    """What prefill workers are annotated with travels with them; nonsense counts as nothing."""
    pod = a_pod("a", annotations=PodAnnotations(bootstrap_port=text))
    by_slice = World(
        services=(a_service(),),
        slice_list=(a_slice("s", an_entry("a", "10.0.0.1")),),
        pod_list=(pod,),
    )

    [selected] = find(a_backend(BY_LABEL), World(pod_list=(pod,))).endpoints
    [served] = find(a_backend(), by_slice).endpoints
    assert (selected.bootstrap_port, served.bootstrap_port) == (port, port)


def test_of_a_pods_annotations_only_ours_is_kept() -> None:
    """Kubernetes' own name of the annotation, and nothing else in memory."""
    text = b'{"metadata":{"name":"a","annotations":{"sglang.ai/bootstrap-port":"1","big":"x"}}}'

    assert msgspec.json.decode(text, type=Pod).metadata.annotations == PodAnnotations("1")


def test_every_port_of_a_pod_is_a_worker() -> None:
    """Data-parallel ranks of one pod are endpoints of their own."""
    world = World(pod_list=(a_pod("a"),))

    assert list(states(world, BY_LABEL | {"ports": [30000, 30001]})) == [
        "10.0.0.1:30000",
        "10.0.0.1:30001",
    ]


@pytest.mark.parametrize(
    ("marks", "zone"),
    [({"topology.kubernetes.io/zone": "a"}, "a"), ({}, "")],
    ids=["1.35", "older"],
)
def test_a_selected_pod_is_in_the_zone_that_kubernetes_marks_it_with(
    marks: dict[str, str], zone: str
) -> None:
    """Kubernetes copies the node's label to its pods; without it the zone is unknown."""
    world = World(pod_list=(a_pod("a", labels={"app": "qwen"} | marks),))

    [endpoint] = find(a_backend(BY_LABEL), world).endpoints
    assert endpoint.zone == zone


def test_hand_made_slices_bring_hosts_from_outside() -> None:
    """An entry without a pod is known by its address."""
    world = World(services=(a_service(),), slice_list=(a_slice("s", an_entry("", "192.0.2.7")),))

    [endpoint] = find(a_backend(), world).endpoints
    assert endpoint.id == "static/192.0.2.7:30000"
    assert endpoint.pod == ""


def test_k09_static_endpoints_are_taken_as_they_are() -> None:
    """No cluster object is needed for them."""
    workers = {"static": {"endpoints": [{"host": "gpu-1", "port": 1}, {"host": "gpu-2"}]}}

    assert states(World(), workers) == {"gpu-1:1": READY, "gpu-2:30000": READY}


@pytest.mark.parametrize(
    ("workers", "world"),
    [
        ({"static": {"endpoints": [{"host": "gpu-1"}]}}, World()),
        (
            {"service": {"name": "qwen"}},
            World(services=(a_service(),), slice_list=(a_slice("s", an_entry("", "192.0.2.7")),)),
        ),
    ],
)
def test_endpoints_speak_what_their_backend_says(workers: dict[str, Any], world: World) -> None:
    """Wherever they were found."""
    [endpoint] = find(a_backend({**workers, "protocol": "HTTP"}), world).endpoints

    assert endpoint.protocol is Protocol.HTTP


@pytest.mark.parametrize(
    ("workers", "world", "reason", "words"),
    [
        ({"service": {"name": "qwen"}}, World(), "ServiceNotFound", "'qwen' does not exist"),
        (
            {"service": {"name": "qwen", "portName": "grpc"}},
            World(services=(a_service("http"),)),
            "PortNotFound",
            "Backend 'chat' selects port 'grpc', but Service 'qwen' has only ['http'].",
        ),
        (
            {"service": {"name": "qwen"}},
            World(services=(a_service("http", "grpc"),)),
            "PortNotFound",
            "set workers.service.portName",
        ),
        ({"inferencePoolRef": {"name": "p"}}, World(), "InferencePoolNotFound", "'p' does not"),
        (
            {"inferencePoolRef": {"name": "p"}},
            World(serves_pools=False),
            "CRDMissing",
            "does not serve InferencePools",
        ),
    ],
)
def test_a_missing_reference_says_what_is_missing(
    workers: dict[str, Any], world: World, reason: str, words: str
) -> None:
    """Each reference that cannot be resolved has its reason and a sentence to act on."""
    found = find(a_backend(workers), world)

    assert found.problem is not None
    assert found.problem.reason == reason
    assert words in found.problem.message
    assert found.endpoints == ()


def test_a_pool_gives_its_pods_and_ports() -> None:
    """The pool's selector and target ports are the backend's."""
    pool = InferencePool(
        metadata=ObjectMeta(name="p", namespace=NAMESPACE),
        spec=PoolSpec(
            selector=PoolSelector(match_labels={"app": "qwen"}),
            target_ports=(PoolPort(number=8001), PoolPort(number=8002)),
        ),
    )
    world = World(pools=(pool,), pod_list=(a_pod("a"), a_pod("b", labels={})))

    found = states(world, {"inferencePoolRef": {"name": "p"}})
    assert list(found) == ["10.0.0.1:8001", "10.0.0.1:8002"]


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (a_pod("x", ready=False), "Pod x readiness probe failing"),
        (a_pod("x", ready=False, ip=None), "Pod x has no address yet"),
        (a_pod("x", leaving=True), "Pod x is terminating"),
        (
            a_pod("x", ready=False, waiting="CrashLoopBackOff"),
            "Pod x container sglang is waiting: CrashLoopBackOff",
        ),
    ],
)
def test_k19_an_obstacle_names_the_pod_and_its_likely_cause(pod: object, sentence: str) -> None:
    """A person learns which pod to look at, and at what."""
    found = find(a_backend(BY_LABEL), World(pod_list=(pod,)))  # type: ignore[arg-type]  # same

    assert found.obstacles == (sentence,)
    assert found.matched == 1


POOL = [
    an_entry(f"p{i}", f"10.0.0.{i}", ready=ready, terminating=leaving)
    for i in range(6)
    for ready, leaving in ((True, False), (False, True))
]


@settings(max_examples=60)
@given(st.data())
def test_the_order_of_objects_says_nothing(data: st.DataObject) -> None:
    """Permuted slices, entries and pods give equal endpoints; doing it twice changes nothing."""
    pieces = [
        a_slice(
            f"s{i}",
            *data.draw(
                st.lists(st.sampled_from(POOL), max_size=6, unique_by=lambda e: e.addresses)
            ),
            version=data.draw(st.integers(1, 3)),
        )
        for i in range(3)
    ]
    pods = data.draw(
        st.lists(
            st.builds(
                a_pod,
                st.sampled_from([f"p{i}" for i in range(6)]),
                leaving=st.booleans(),
                phase=st.sampled_from(["Running", "Failed"]),
            ),
            unique_by=lambda pod: pod.metadata.name,
        )
    )
    world = World(services=(a_service(),), slice_list=tuple(pieces), pod_list=tuple(pods))
    mixed = replace(
        world,
        slice_list=tuple(data.draw(st.permutations(pieces))),
        pod_list=tuple(data.draw(st.permutations(pods))),
    )

    found = find(a_backend(), world)
    assert find(a_backend(), mixed) == found
    assert find(a_backend(), world) == found
    ids = [endpoint.id for endpoint in found.endpoints]
    assert ids == sorted(set(ids))
    ended = {pod.metadata.name for pod in pods if pod.status.phase == "Failed"}
    listed = {e.target_ref.name for piece in pieces for e in piece.endpoints or () if e.target_ref}
    assert {endpoint.pod for endpoint in found.endpoints} == listed - ended
