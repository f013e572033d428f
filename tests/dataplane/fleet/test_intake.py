"""What a router holds of what operators say, whatever order and epochs they say it in."""

from __future__ import annotations

import gzip
import socket
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ports import reserved_port

from sglr_dataplane.fleet import intake_file
from sglr_dataplane.fleet.intake_config import IntakeConfig
from sglr_dataplane.fleet.intake_table import Table
from sglr_proto.errors import SnapshotError
from sglr_proto.snapshot import BackendSnapshot, Endpoint, Epoch, Snapshot, content_hash
from support.kube_objects import a_backend
from support.kube_wait import until
from support.push import an_operator, listening, routing

KEY = "inference/a"


def said(number: int, version: int = 1) -> BackendSnapshot:
    """Return backend ``a`` with one endpoint that tells *number*."""
    endpoint = Endpoint(id=f"u{number}:1", host=f"10.0.0.{number}", port=1)
    return BackendSnapshot(
        backend=a_backend(name="a", model={"name": "a"}), endpoints=(endpoint,), version=version
    )


def update(table: Table, epoch: Epoch, version: int, number: int) -> str:
    """Offer an update and return the refusal's code, '' when it is in force."""
    snapshot = said(number, version)
    refusal = table.update(
        KEY, epoch, version, content_hash(snapshot), msgspec.json.encode(snapshot)
    )
    return refusal.code if refusal is not None else ""


def in_force(table: Table) -> list[str]:
    """Return the hosts in force of backend ``a``."""
    return [e.host for each in table.snapshot().backends for e in each.endpoints]


EPOCHS = st.tuples(st.integers(1, 3), st.integers(0, 2))


@settings(max_examples=200)
@given(st.lists(st.tuples(EPOCHS, st.integers(1, 4))))
def test_the_greatest_epoch_and_version_wins_in_any_order(
    offers: list[tuple[Epoch, int]],
) -> None:
    """However updates arrive, the newest is in force, and no earlier one ever replaces it."""
    table = Table()
    newest: tuple[Epoch, int] | None = None
    for epoch, version in offers:
        number = epoch[0] * 50 + epoch[1] * 10 + version
        welcome = table.meet(epoch)
        code = "EarlierEpoch" if welcome is not None else update(table, epoch, version, number)
        is_newer = newest is None or (epoch, version) > newest
        if code == "" and is_newer:
            newest = (epoch, version)
            assert in_force(table) == [f"10.0.0.{number}"]
        elif not is_newer and (epoch, version) != newest:
            assert code in {"EarlierEpoch", "EarlierVersion"}
    assert table.epoch == max((epoch for epoch, _ in offers), default=(0, 0))


def test_an_earlier_epoch_is_refused_at_its_welcome() -> None:
    """A replaced leader is sent away before it says anything."""
    table = Table()
    assert table.meet((1, 2)) is None

    refusal = table.meet((1, 1))
    assert refusal is not None
    assert refusal.code == "EarlierEpoch"
    assert update(table, (1, 1), 99, 1) == "EarlierEpoch"


def test_the_same_update_twice_is_acknowledged_and_changes_nothing() -> None:
    """A repeated update is no refusal and no change."""
    table = Table()
    table.meet((1, 0))
    assert update(table, (1, 0), 3, 7) == ""
    changes = table.changes

    assert update(table, (1, 0), 3, 7) == ""
    assert table.changes == changes


def test_a_removed_backend_does_not_come_back_with_an_earlier_version() -> None:
    """A late update of a removed backend is refused; a later one brings it back."""
    table = Table()
    table.meet((1, 0))
    update(table, (1, 0), 3, 1)
    assert table.remove(KEY, (1, 0), 4) is None

    assert update(table, (1, 0), 3, 1) == "EarlierVersion"
    assert in_force(table) == []
    assert update(table, (1, 0), 5, 2) == ""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "Undecodable"),
        (b"\xff", "Undecodable"),
        (b'{"backend": 7}', "Undecodable"),
        (
            msgspec.json.encode(BackendSnapshot(backend=a_backend(name="b", model={"name": "b"}))),
            "WrongBackend",
        ),
    ],
)
def test_a_bad_update_leaves_what_is_in_force(data: bytes, code: str) -> None:
    """Whatever the bytes are, the last good list of the backend stays."""
    table = Table()
    table.meet((1, 0))
    update(table, (1, 0), 1, 1)

    refusal = table.update(KEY, (1, 0), 2, "x", data)
    assert refusal is not None
    assert refusal.code == code
    assert in_force(table) == ["10.0.0.1"]
    assert table.version(KEY) == 1


def test_fields_of_a_newer_operator_are_ignored() -> None:
    """An update with unknown fields is read."""
    table = Table()
    table.meet((1, 0))
    document = msgspec.json.decode(msgspec.json.encode(said(1)))
    document["novelty"] = document["endpoints"][0]["novelty"] = 1
    document["backend"]["spec"]["novelty"] = {}

    assert table.update(KEY, (1, 0), 1, "x", msgspec.json.encode(document)) is None
    assert in_force(table) == ["10.0.0.1"]


def test_a_complete_list_prunes_and_adopts() -> None:
    """What is not listed goes; equal content takes over the new epoch; unusable specs stay."""
    table = Table()
    table.meet((1, 0))
    update(table, (1, 0), 9, 1)
    other = BackendSnapshot(backend=a_backend(name="b", model={"name": "b"}))
    table.update("inference/b", (1, 0), 1, "b", msgspec.json.encode(other))
    table.meet((2, 0))

    table.complete((2, 0), [(KEY, 1, content_hash(said(1)))])
    assert [key for key, _, _ in table.held()] == [KEY]
    assert table.version(KEY) == 1
    assert update(table, (2, 0), 2, 5) == ""
    table.complete((2, 0), [(KEY, 0, "")])
    assert in_force(table) == ["10.0.0.5"]
    table.complete((2, 0), [])
    assert in_force(table) == []


def a_snapshot() -> Snapshot:
    """Return a snapshot of one backend under epoch (3, 1)."""
    return Snapshot(epoch=(3, 1), version=4, backends=(said(1, 6),))


def test_the_file_comes_back_as_it_was_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    """A round trip loses nothing; secrets in it are nobody else's."""
    path = tmp_path / "lkg"
    intake_file.write(path, a_snapshot())

    assert intake_file.read(path) == a_snapshot()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["lkg"]


def test_a_compressed_copy_is_read_as_well() -> None:
    """What the operator writes into a ConfigMap is the same thing, compressed."""
    assert intake_file.unpack(gzip.compress(intake_file.pack(a_snapshot()))) == a_snapshot()


PACKED = intake_file.pack(a_snapshot())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}\n",
        PACKED[:-1],
        PACKED[: len(PACKED) // 2],
        PACKED.replace(b"10.0.0.1", b"10.0.0.2"),
        PACKED.replace(b"/1", b"/2", 1),
        gzip.compress(PACKED)[:-9],
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    """Cut, edited and foreign files are told from good ones."""
    with pytest.raises(SnapshotError):
        intake_file.unpack(data)


def test_no_file_is_no_snapshot(tmp_path: Path) -> None:
    """A first start is no error."""
    assert intake_file.read(tmp_path / "none") is None


async def test_a_router_starts_without_an_operator_from_its_file(tmp_path: Path) -> None:
    """The last good list is in force before any operator answers, and its epoch is remembered."""
    path = tmp_path / "lkg"
    intake_file.write(path, a_snapshot())
    async with routing(1, change=lambda config: replace(config, file=path)) as router:
        await until(lambda: router.intake.is_synced, what="in force")

        assert router.table() == {"a": ["10.0.0.1"]}
        assert (router.intake.startup, router.intake.epoch) == ("file", (3, 1))
        assert not router.intake.connected


async def test_a_damaged_file_falls_back_to_the_mounted_copy(tmp_path: Path) -> None:
    """One unusable copy does not hide the other."""
    path, mounted = tmp_path / "lkg", tmp_path / "mounted"
    path.write_bytes(PACKED[:-1])
    mounted.write_bytes(gzip.compress(PACKED))

    def change(config: IntakeConfig) -> IntakeConfig:
        return replace(config, file=path, mounted=mounted, writes_file=False)

    async with routing(1, change=change) as router:
        await until(lambda: router.intake.is_synced, what="in force")

        assert router.intake.startup == "mounted"


async def test_what_is_in_force_is_kept_on_disk(tmp_path: Path) -> None:
    """A restart of the router alone finds the newest list in the file."""
    path = tmp_path / "lkg"
    async with listening(an_operator((2, 7))) as operator:
        operator.say("a", "10.0.0.1")
        operator.publisher.complete(frozenset({KEY}))
        async with routing(
            operator.port, change=lambda config: replace(config, file=path)
        ) as router:
            await until(path.exists, what="written")
            operator.say("a", "10.0.0.2")
            await until(lambda: router.table() == {"a": ["10.0.0.2"]}, what="in force")
            await until(lambda: b"10.0.0.2" in path.read_bytes(), what="the newer list was written")

    kept = intake_file.read(path)
    assert kept is not None
    assert kept.epoch == (2, 7)


async def test_a_router_that_is_sent_away_comes_back() -> None:
    """A GoAway ends the stream; the list stays in force and the operator is dialled again."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1")
        operator.publisher.complete(frozenset({KEY}))
        async with routing(operator.port) as router:
            await until(lambda: router.intake.connected, what="connected")
            operator.publisher.end("gone")
            failures = "sglr_intake_failures_total"
            registry = router.metrics.registry
            await until(lambda: (registry.get_sample_value(failures) or 0) >= 1, what="noticed")
            await until(lambda: router.intake.connected, what="connected again")

            assert router.table() == {"a": ["10.0.0.1"]}
            assert router.intake.stale_seconds is not None


async def test_an_operator_that_falls_silent_is_left() -> None:
    """Three heartbeats without a word end the stream; the list stays in force."""
    async with listening(an_operator()) as operator:
        operator.say("a", "10.0.0.1")
        operator.publisher.complete(frozenset({KEY}))
        # Promises a heartbeat each 10 ms, then sends none for a minute.
        operator.service._config = replace(operator.service._config, heartbeat=0.01)
        async with routing(operator.port) as router:
            await until(lambda: router.intake.connected, what="connected")
            operator.service._config = replace(operator.service._config, heartbeat=60.0)
            failures = "sglr_intake_failures_total"
            registry = router.metrics.registry
            await until(lambda: (registry.get_sample_value(failures) or 0) >= 1, what="left")

            assert router.table() == {"a": ["10.0.0.1"]}


async def test_an_operator_that_takes_no_connection_is_soon_dialled_anew() -> None:
    """A pod that is gone refuses nothing: who answers next is heard before a welcome was due."""
    hasty = partial(replace, dial_deadline=0.1, welcome_deadline=60.0)
    port = reserved_port()
    with socket.create_server(("127.0.0.1", port)) as gone:
        async with routing(port, change=hasty) as router:
            failures, registry = "sglr_intake_failures_total", router.metrics.registry
            await until(lambda: (registry.get_sample_value(failures) or 0) >= 2, what="gave up")
            gone.close()
            async with listening(an_operator(), port) as operator:
                operator.say("a", "10.0.0.1")
                operator.publisher.complete(frozenset({KEY}))
                await until(lambda: router.table() == {"a": ["10.0.0.1"]}, what="heard")
