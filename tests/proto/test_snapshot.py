"""The snapshot: one spelling for one meaning, and what bytes are refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sglr_proto.backend import Protocol, SGLangBackend, decode_backend
from sglr_proto.errors import SnapshotError
from sglr_proto.snapshot import (
    NO_EPOCH,
    BackendSnapshot,
    Endpoint,
    EndpointState,
    Snapshot,
    canonical,
    content_hash,
    decode,
    encode,
    static_snapshot,
)
from support.manifests import a_document, changed

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
PORTS = st.integers(1, 65535)
HOSTS = st.one_of(NAMES.filter(lambda name: not name.isdigit()), st.ip_addresses().map(str))
COUNTERS = st.integers(0, 2**63 - 1)


def a_backend(name: str = "qwen") -> SGLangBackend:
    """Return a backend whose model is called like it."""
    return decode_backend(a_document(name, model=name), lenient=False)


def an_endpoint(name: str = "pod-1/30000", state: EndpointState = EndpointState.READY) -> Endpoint:
    """Return an endpoint called *name*."""
    return Endpoint(id=name, host="10.0.0.1", port=30000, state=state)


@st.composite
def backends(draw: st.DrawFn) -> SGLangBackend:
    """Any backend with a few aliases and static endpoints."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    keys = draw(st.lists(st.tuples(HOSTS, PORTS), min_size=1, max_size=5, unique=True))
    document = changed("spec.model", {"name": names[0], "aliases": names[1:]})
    document = changed("metadata.name", draw(NAMES), document)
    listed = [{"host": host, "port": port} for host, port in keys]
    return decode_backend(changed("spec.workers.static.endpoints", listed, document), lenient=False)


ENDPOINTS = st.builds(
    Endpoint,
    id=st.text(min_size=1, max_size=20),
    host=HOSTS,
    port=PORTS,
    state=st.sampled_from(EndpointState),
)
BACKEND_SNAPSHOTS = st.builds(
    BackendSnapshot,
    backend=backends(),
    endpoints=st.lists(ENDPOINTS, max_size=5, unique_by=lambda each: each.id).map(tuple),
    version=COUNTERS,
)
SNAPSHOTS = st.builds(
    Snapshot,
    epoch=st.tuples(COUNTERS, COUNTERS),
    version=COUNTERS,
    backends=st.lists(BACKEND_SNAPSHOTS, max_size=4, unique_by=lambda each: each.backend.key).map(
        tuple
    ),
)


def shuffled(snapshot: Snapshot, data: st.DataObject) -> Snapshot:
    """Return *snapshot* with everything that has no order in another order."""
    mixed = []
    for each in snapshot.backends:
        model, workers = each.backend.spec.model, each.backend.spec.workers
        assert workers.static is not None
        listed = tuple(data.draw(st.permutations(workers.static.endpoints)))
        spec = replace(
            each.backend.spec,
            model=replace(model, aliases=tuple(data.draw(st.permutations(model.aliases)))),
            workers=replace(workers, static=replace(workers.static, endpoints=listed)),
        )
        endpoints = tuple(data.draw(st.permutations(each.endpoints)))
        backend = replace(each.backend, spec=spec)
        mixed.append(replace(each, backend=backend, endpoints=endpoints))
    return replace(snapshot, backends=tuple(data.draw(st.permutations(mixed))))


@settings(deadline=None, max_examples=40)  # a loaded machine is no failure
@given(SNAPSHOTS)
def test_bytes_come_back_as_the_same_snapshot(snapshot: Snapshot) -> None:
    """Decoding what was encoded gives the snapshot, in canonical order."""
    decoded = decode(encode(snapshot))

    assert decoded == canonical(snapshot)
    assert decoded.order == snapshot.order
    assert encode(decoded) == encode(snapshot)


@settings(deadline=None, max_examples=40)  # a loaded machine is no failure
@given(SNAPSHOTS, st.data())
def test_order_changes_neither_bytes_nor_hash(snapshot: Snapshot, data: st.DataObject) -> None:
    """Backends, endpoints, aliases and static workers may be listed in any order."""
    other = shuffled(snapshot, data)

    assert encode(other) == encode(snapshot)
    assert content_hash(other) == content_hash(snapshot)


@settings(deadline=None, max_examples=40)  # a loaded machine is no failure
@given(SNAPSHOTS, st.data())
def test_decoding_puts_foreign_bytes_in_order(snapshot: Snapshot, data: st.DataObject) -> None:
    """Bytes of a peer that sorts nothing give the same snapshot."""
    document = json.loads(encode(snapshot))
    document["backends"] = data.draw(st.permutations(document["backends"]))
    for each in document["backends"]:
        each["endpoints"] = data.draw(st.permutations(each["endpoints"]))

    assert decode(json.dumps(document).encode()) == canonical(snapshot)


@settings(deadline=None, max_examples=40)  # a loaded machine is no failure
@given(SNAPSHOTS, SNAPSHOTS)
def test_equal_hashes_mean_equal_content(one: Snapshot, other: Snapshot) -> None:
    """The hash tells apart what differs in more than its numbers, and nothing else."""
    bare = [
        canonical(Snapshot(backends=tuple(replace(each, version=0) for each in which.backends)))
        for which in (one, other)
    ]

    assert (content_hash(one) == content_hash(other)) == (bare[0] == bare[1])


def test_bytes_are_the_documented_json() -> None:
    """Names are camelCase and every field is written, so that a peer needs no defaults of ours."""
    snapshot = Snapshot(
        epoch=(1700000000, 2),
        version=7,
        backends=(
            BackendSnapshot(backend=a_backend(), endpoints=(an_endpoint("uid/30000"),), version=5),
        ),
    )

    assert json.loads(encode(snapshot)) == {
        "epoch": [1700000000, 2],
        "version": 7,
        "backends": [
            {
                "backend": a_document(),
                "endpoints": [
                    {
                        "id": "uid/30000",
                        "host": "10.0.0.1",
                        "port": 30000,
                        "protocol": "GRPC",
                        "state": "READY",
                        "incarnation": "",
                        "weight": 1,
                        "priority": 0,
                        "zone": "",
                        "pod": "",
                        "bootstrapPort": 0,
                    }
                ],
                "version": 5,
                "resolved": None,
            }
        ],
    }


def test_versions_and_epoch_are_no_content() -> None:
    """A restart of the operator alone gives routers nothing new."""
    old = BackendSnapshot(backend=a_backend(), endpoints=(an_endpoint(),), version=1)
    new = replace(old, version=2)

    assert content_hash(old) == content_hash(new)
    assert content_hash(Snapshot(backends=(old,))) == content_hash(
        Snapshot(epoch=(9, 9), version=9, backends=(new,))
    )


Change = Callable[[BackendSnapshot], BackendSnapshot]


@pytest.mark.parametrize(
    "change",
    [
        lambda each: replace(each, endpoints=()),
        lambda each: replace(each, endpoints=(an_endpoint(state=EndpointState.DRAINING),)),
        lambda each: replace(each, endpoints=(replace(an_endpoint(), host="10.0.0.2"),)),
        lambda each: replace(each, endpoints=(replace(an_endpoint(), port=30001),)),
        lambda each: replace(each, endpoints=(an_endpoint("another/30000"),)),
        lambda each: replace(each, backend=a_backend("other")),
    ],
    ids=["gone", "state", "host", "port", "id", "backend"],
)
def test_every_change_that_matters_changes_the_hash(change: Change) -> None:
    """Same id with another address is a change too."""
    before = BackendSnapshot(backend=a_backend(), endpoints=(an_endpoint(),))

    assert content_hash(change(before)) != content_hash(before)


def test_a_later_epoch_outranks_every_earlier_version() -> None:
    """A new leader counts from 1 again, and is still the newer one."""
    ranked = [
        Snapshot(),
        Snapshot(version=9),
        Snapshot(epoch=(1700000000, 0), version=1),
        Snapshot(epoch=(1700000000, 1), version=0),
        Snapshot(epoch=(1700000001, 0), version=0),
    ]

    assert all(older.order < newer.order for older, newer in itertools.pairwise(ranked))


def test_unknown_fields_of_a_newer_peer_are_ignored() -> None:
    """A router that is older than its operator goes on working."""
    snapshot = Snapshot(backends=(BackendSnapshot(backend=a_backend()),))
    document = json.loads(encode(snapshot))
    document["news"] = 1
    document["backends"][0]["news"] = 1
    document["backends"][0]["backend"]["spec"]["news"] = {"a": 1}

    assert decode(json.dumps(document).encode()) == canonical(snapshot)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", -1),
        ("version", 2**63),
        ("version", "1"),
        ("epoch", [1]),
        ("epoch", [1, -1]),
        ("backends[0].version", -1),
        ("backends[0].endpoints[0].port", 0),
        ("backends[0].endpoints[0].port", 65536),
        ("backends[0].endpoints[0].id", ""),
        ("backends[0].endpoints[0].host", ""),
        ("backends[0].endpoints[0].state", "GONE"),
        ("backends[0].endpoints[0].protocol", "SMTP"),
        ("backends[0].backend.kind", "Service"),
        ("backends[0].backend.spec.model.name", "a b"),
        ("backends[0].backend.spec.workers.static.endpoints", []),
    ],
)
def test_bytes_out_of_bounds_are_refused_with_their_path(path: str, value: object) -> None:
    """What a peer gets wrong is told by path."""
    snapshot = Snapshot(
        backends=(BackendSnapshot(backend=a_backend(), endpoints=(an_endpoint(),)),)
    )
    document = changed(path, value, json.loads(encode(snapshot)))

    with pytest.raises(SnapshotError) as caught:
        decode(json.dumps(document).encode())

    assert f"`$.{path}" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"version": "\xff"}'])
def test_bytes_that_hold_no_snapshot_are_refused(data: bytes) -> None:
    """Truncated or foreign bytes end in one error class."""
    with pytest.raises(SnapshotError, match="These bytes hold no snapshot"):
        decode(data)


def test_one_name_twice_is_no_snapshot() -> None:
    """Neither two backends with one key nor two endpoints with one id can be built or decoded."""
    one = BackendSnapshot(backend=a_backend())
    document = json.loads(encode(Snapshot(backends=(one,))))
    document["backends"] *= 2

    with pytest.raises(ValueError, match="backends of the snapshot holds 'inference/qwen' twice"):
        Snapshot(backends=(one, one))
    with pytest.raises(ValueError, match="endpoints of inference/qwen holds 'pod-1/30000' twice"):
        BackendSnapshot(backend=a_backend(), endpoints=(an_endpoint(), an_endpoint()))
    with pytest.raises(SnapshotError, match="holds 'inference/qwen' twice"):
        decode(json.dumps(document).encode())


def test_static_endpoints_become_ready_workers_keyed_by_address() -> None:
    """File mode: what the spec lists, sorted, ready, without an epoch."""
    listed = [{"host": "gpu-1.lab"}, {"host": "fd00::1", "port": 30001}, {"host": "10.0.0.1"}]
    document = changed("spec.workers.static.endpoints", listed, a_document("b", model="b"))

    snapshot = static_snapshot([decode_backend(document, lenient=False), a_backend("a")], version=4)

    assert (snapshot.epoch, snapshot.version) == (NO_EPOCH, 4)
    assert [each.backend.key for each in snapshot.backends] == ["inference/a", "inference/b"]
    assert [each.version for each in snapshot.backends] == [4, 4]
    found = snapshot.backends[1].endpoints
    assert [(each.id, each.address) for each in found] == [
        ("static/10.0.0.1:30000", "10.0.0.1:30000"),
        ("static/[fd00::1]:30001", "[fd00::1]:30001"),
        ("static/gpu-1.lab:30000", "gpu-1.lab:30000"),
    ]
    assert {each.state for each in found} == {EndpointState.READY}
    assert {each.protocol for each in found} == {Protocol.GRPC}


def test_static_endpoints_speak_what_their_backend_says() -> None:
    """The router makes their clients by it."""
    document = changed("spec.workers.protocol", "HTTP", a_document())

    [backend] = static_snapshot([decode_backend(document, lenient=False)], version=1).backends

    assert {each.protocol for each in backend.endpoints} == {Protocol.HTTP}
