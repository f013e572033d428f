"""The command line: what it takes, what it refuses, and with which exit code."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sglr_operator.cli import main
from sglr_operator.config import (
    Address,
    LeaseConfig,
    OperatorConfig,
    PushConfig,
    validated,
)
from sglr_operator.difference import compare, differences
from sglr_operator.errors import ConfigError
from support.kube_api import running_api
from support.kube_objects import a_document
from support.operators import kubeconfig


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """A new user finds run, check and diff."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])

    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("run", "check", "diff"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--push-certificate", "a"], "come together"),
        (["--push-auth", "mtls"], "needs --push-certificate"),
        (["--push-auth", "token-review"], "must not travel in the clear"),
        (
            [
                *("--push-auth", "token-review", "--namespace", "a"),
                *("--push-certificate", "a", "--push-key", "b"),
            ],
            "use --push-auth token-keys or mtls",
        ),
        (["--push-auth", "token-keys"], "token-keys needs --push-certificate"),
        (["--debug-address", "0.0.0.0:8082"], "not on loopback"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is asked or opened, one sentence says which flags."""
    assert main(["run", *flags]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:x", "host:65536"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """HOST:PORT or nothing."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "--http-address", address])

    assert ended.value.code == 2


def test_a_kubeconfig_that_is_not_there_ends_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback for a wrong path."""
    code = main(["run", "--kubeconfig", str(tmp_path / "none"), "--http-address", "127.0.0.1:0"])

    assert code == 1
    assert "cannot be found" in capsys.readouterr().err


def test_a_lease_that_cannot_be_held_safely_is_refused() -> None:
    """A leader must step down before anyone else may be elected."""
    with pytest.raises(ConfigError, match="retry < renew deadline < duration"):
        validated(OperatorConfig(lease=LeaseConfig(duration=5.0, renew_deadline=6.0)))


def test_defaults_are_valid_and_addresses_are_written_as_dialled() -> None:
    """Everything has a default that works; IPv6 addresses have brackets."""
    assert validated(OperatorConfig()).push == PushConfig()
    assert str(Address("fd00::1", 80)) == "[fd00::1]:80"


async def test_the_process_runs_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    """SIGTERM releases the Lease and ends with 0."""
    async with running_api() as api:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sglr_operator", "run", "--identity", "me"),
            *("--kubeconfig", kubeconfig(api, tmp_path), "--http-address", "127.0.0.1:0"),
            *("--push-address", "127.0.0.1:0"),
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        async with asyncio.timeout(15):
            lines = []
            async for line in process.stderr:
                lines.append(line)
                if b"serving routers" in line:
                    break
            process.send_signal(signal.SIGTERM)
            rest = await process.stderr.read()
            code = await process.wait()

        assert (code, b"Traceback" in rest) == (0, False)
        lease = api.objects("leases")["default", "sglr-operator"]
        assert lease["spec"]["holderIdentity"] == ""


async def test_diff_tells_new_changed_and_equal_backends(tmp_path: Path) -> None:
    """Defaults count as set, so that an applied file shows no difference."""
    async with running_api() as api:
        config = kubeconfig(api, tmp_path)
        text = yaml.safe_dump(a_document())
        assert await differences(text, config) == ["inference/chat: new"]
        stored = a_document(model={"name": "other"})
        stored["spec"]["routing"] = {"policy": "RoundRobin"}
        api.put("sglangbackends", stored)

        found = await differences(text, config)
        assert "inference/chat: spec.model.name: 'other' -> 'qwen'" in found


def test_a_difference_names_paths_on_both_sides() -> None:
    """Fields that come and go are shown as absent."""
    live = {"model": {"name": "a", "aliases": ["x"]}, "same": 1}
    wanted = {"model": {"name": "a"}, "same": 1, "new": [7]}

    assert list(compare(live, wanted)) == [
        "spec.model.aliases[0]: 'x' -> absent",
        "spec.new[0]: absent -> 7",
    ]
    assert list(compare(live, live)) == []
