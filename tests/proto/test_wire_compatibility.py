"""Our proto text says on the wire what the published worker contract says; nothing is left out."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

Facts = dict[str, dict[str, object]]

DUMP = Path(__file__).with_name("dump_descriptors.py")
OURS = ("sglr_proto.sglang.common_pb2", "sglr_proto.sglang.scheduler_pb2")
THEIRS = ("smg_grpc_proto.generated.common_pb2", "smg_grpc_proto.generated.sglang_scheduler_pb2")
DELTA_IDS = "field .sglang.grpc.scheduler.GenerateStreamChunk.token_ids (proto3)"
RANK = "field .sglang.grpc.scheduler.GenerateRequest.data_parallel_rank (proto3)"
GENERATE = "rpc .sglang.grpc.scheduler.SglangScheduler.Generate (proto3)"
RESPONSE = "message .sglang.grpc.scheduler.GenerateResponse (proto3)"


def dumped(modules: tuple[str, ...]) -> Facts:
    """Return what *modules* say on the wire, read in a process of its own."""
    run = subprocess.run(
        [sys.executable, str(DUMP), *modules],
        check=False,
        capture_output=True,
        text=True,
        timeout=15,
    )
    assert run.returncode == 0, run.stderr
    facts: Facts = json.loads(run.stdout)
    return facts


def differences(ours: Facts, theirs: Facts) -> list[str]:
    """Return one line for each fact that the two do not share."""
    found = [f"only ours: {name}" for name in ours.keys() - theirs.keys()]
    found += [f"only theirs: {name}" for name in theirs.keys() - ours.keys()]
    found += [
        f"{name}: {key} is {ours[name].get(key)!r}, theirs {theirs[name].get(key)!r}"
        for name in ours.keys() & theirs.keys()
        for key in ours[name].keys() | theirs[name].keys()
        if ours[name].get(key) != theirs[name].get(key)
    ]
    return sorted(found)


@pytest.fixture(scope="module")
def theirs() -> Facts:
    """The published package's facts."""
    return dumped(THEIRS)


@pytest.fixture(scope="module")
def ours() -> Facts:
    """Our facts."""
    return dumped(OURS)


def test_our_contract_is_the_published_one_in_every_fact(ours: Facts, theirs: Facts) -> None:
    """No name, number, type, label, oneof, presence, reserved number or rpc differs."""
    assert differences(ours, theirs) == []


def test_the_dump_holds_the_whole_contract(theirs: Facts) -> None:
    """The comparison is not one of nothing with nothing: counted by hand in the field tables."""
    kinds = [name.split()[0] for name in theirs]

    assert kinds.count("rpc") == 15
    assert kinds.count("value") == 5 + 3 + 4
    assert theirs[RANK]["number"] == 16
    assert theirs[RANK]["presence"] is True
    assert theirs[RESPONSE]["reserved"] == [4]
    assert theirs[GENERATE]["server_streaming"] is True


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        (DELTA_IDS, "number", 2),
        (DELTA_IDS, "type", "TYPE_INT32"),
        (DELTA_IDS, "label", "LABEL_OPTIONAL"),
        (DELTA_IDS, "packed", False),
        (DELTA_IDS, "oneof", "response"),
        (RANK, "presence", False),
        (RESPONSE, "reserved", []),
        (GENERATE, "server_streaming", False),
        (GENERATE, "output", ".sglang.grpc.scheduler.GenerateComplete"),
    ],
)
def test_a_changed_fact_is_noticed(theirs: Facts, name: str, key: str, value: object) -> None:
    """Each kind of fact that could drift makes exactly one difference, which names it."""
    doctored = copy.deepcopy(theirs)
    doctored[name][key] = value

    [difference] = differences(doctored, theirs)

    assert difference.startswith(f"{name}: {key} is {value!r}, theirs ")


@pytest.mark.parametrize("name", [DELTA_IDS, RESPONSE, GENERATE])
def test_a_name_that_only_one_side_has_is_noticed(theirs: Facts, name: str) -> None:
    """A field, message or rpc that is missing on either side is a difference."""
    doctored = copy.deepcopy(theirs)
    del doctored[name]

    assert differences(doctored, theirs) == [f"only theirs: {name}"]
    assert differences(theirs, doctored) == [f"only ours: {name}"]
