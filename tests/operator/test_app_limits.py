"""What a whole operator does with a backend that is too large to be pushed, and with small news."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sglr_operator.config import OperatorConfig
from support.kube_api import FakeApi, running_api
from support.kube_wait import until
from support.operator_objects import is_ready, put_backend, put_service, put_slice, reason
from support.operators import conditions, operating
from support.push import routing


def small(config: OperatorConfig) -> OperatorConfig:
    """Push nothing above 4,000 bytes: about ten endpoints."""
    return replace(config, push=replace(config.push, max_update=4000))


def events(api: FakeApi, wanted: str) -> list[str]:
    """Return the messages of the Events with one reason."""
    return [body["message"] for body in api.objects("events").values() if body["reason"] == wanted]


async def test_a_backend_that_is_too_large_keeps_its_last_version_and_says_so(
    tmp_path: Path,
) -> None:
    """Its condition names the size and the limit; others are served; what fits is taken again."""
    async with running_api() as api, operating(api, tmp_path, small) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with routing(await running.serves()) as router:
            await until(lambda: is_ready(api), what="Ready")
            put_slice(api, *(f"10.0.1.{number}" for number in range(100)))
            await until(lambda: reason(api, "Programmed") == "TooLarge", what="refused")
            message = conditions(api, "chat")["Programmed"]["message"]
            assert "100 endpoints" in message
            assert "at most 4000" in message
            assert router.table() == {"chat": ["10.0.0.1"]}
            put_backend(api, "other")
            await until(
                lambda: (
                    "other" in router.table() or reason(api, "Programmed", "other") == "TooLarge"
                ),
                what="the other is judged apart",
            )
            put_slice(api, "10.0.0.2")

            await until(lambda: router.table().get("chat") == ["10.0.0.2"], what="taken again")
            await until(lambda: reason(api, "Programmed") == "AllRoutersSynced", what="told")


async def test_a_changed_number_of_endpoints_is_an_event(tmp_path: Path) -> None:
    """Scaling is seen in kubectl describe, as counts."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with routing(await running.serves()):
            await until(lambda: is_ready(api), what="Ready")
            put_slice(api, "10.0.0.1", "10.0.0.2")

            await until(lambda: bool(events(api, "EndpointsChanged")), what="an Event")
            assert "2 of 2 endpoints ready, 0 draining." in events(api, "EndpointsChanged")
