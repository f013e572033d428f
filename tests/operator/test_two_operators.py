"""Two operators over one namespace, which no Lease keeps apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sglr_operator.config import OperatorConfig
from support.kube_api import FakeApi, running_api
from support.kube_objects import NAMESPACE
from support.kube_wait import until
from support.operator_objects import put_backend, put_service, put_slice
from support.operators import Running, operating
from support.push import routing


def under(lease: str, interval: float = 60.0) -> Callable[[OperatorConfig], OperatorConfig]:
    """Return the change that makes an operator one of its own, with its own *lease*."""

    def change(config: OperatorConfig) -> OperatorConfig:
        return replace(
            config,
            lease=replace(config.lease, name=lease, identity=lease),
            status=replace(config.status, yield_interval=interval),
        )

    return change


def writer(api: FakeApi) -> str:
    """Return who wrote the status that stands."""
    body = api.objects("sglangbackends")[(NAMESPACE, "chat")]
    return str(body.get("status", {}).get("operator", ""))


def ready(api: FakeApi) -> int:
    """Return how many endpoints the status counts as ready."""
    body = api.objects("sglangbackends")[(NAMESPACE, "chat")]
    return int(body.get("status", {}).get("endpoints", {}).get("ready", 0))


def overwritten(running: Running) -> float:
    """Return how often an operator found its status overwritten."""
    return running.sample("sglr_operator_foreign_status_writes_total")


async def test_a21_of_two_operators_one_goes_on_and_the_other_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not overwrite each other for ever: the later Lease by name leaves the status alone."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    async with (
        running_api() as api,
        operating(api, folders[0], under("a-lease")) as first,
        operating(api, folders[1], under("b-lease")) as second,
    ):
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        # A router makes both see more than one version of the status.
        async with routing(await first.serves()), routing(await second.serves()):
            for number in range(2, 40):
                if overwritten(second):
                    break
                put_slice(api, *(f"10.0.0.{each}" for each in range(1, number)))
                await until(lambda n=number: ready(api) == n - 1, what="counted")  # type: ignore[misc]  # a loop's number
            await until(lambda: overwritten(second) == 1, what="the second yields")
            written = second.sample("sglr_operator_status_writes_total", outcome="ok")
            put_slice(api, "10.0.0.250")

            await until(lambda: ready(api) == 1, what="the first goes on")
            assert writer(api) == "default/a-lease"
            assert second.sample("sglr_operator_status_writes_total", outcome="ok") == written
            reasons = [body["reason"] for body in api.objects("events").values()]
            assert "TwoOperators" in reasons
            assert "another operator writes the same statuses" in caplog.text


async def test_a_status_that_an_operator_left_behind_is_taken_over(tmp_path: Path) -> None:
    """An operator that moved to another namespace is no second one."""
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
    async with running_api() as api:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with operating(api, folders[0], under("a-lease")) as old:
            await old.serves()
            await until(lambda: writer(api) == "default/a-lease", what="written")
        async with operating(api, folders[1], under("b-lease")) as new:
            await until(lambda: writer(api) == "default/b-lease", what="taken over")

            assert overwritten(new) == 0
