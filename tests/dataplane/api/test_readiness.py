"""When a router that follows an operator says it is ready."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.ops import Ops
from sglr_dataplane.config import DrainSettings
from sglr_dataplane.metrics import RouterMetrics
from support.router import eventually, manifest, running_router


@dataclass
class Situation:
    """What a starting router knows; the clock stands still until it is moved."""

    synced: bool = True
    known: int = 2
    ready: int = 2
    problem: str | None = None
    old_recipe: bool = False
    now: float = 0.0
    ops: Ops = field(init=False)

    def __post_init__(self) -> None:
        backend = SimpleNamespace(spec=SimpleNamespace(model=SimpleNamespace(name="m")))
        registry = SimpleNamespace(
            backend=lambda _key: backend,
            workers=lambda _key: (),
            is_http=lambda _key: False,
            counts=lambda: {"a/b": SimpleNamespace(known=self.known, ready=self.ready)},
        )
        intake = cast("Any", self)
        self.ops = Ops(
            cast("Any", registry),
            cast("Any", SimpleNamespace(problem=lambda _key: self.problem, get=self.recipe)),
            RouterMetrics(),
            Drain(DrainSettings()),
            intake,
            clock=lambda: self.now,
        )

    def recipe(self, _key: str) -> object:
        """Return what stands for a recipe; None while there is none."""
        return self if self.problem is None or self.old_recipe else None

    @property
    def is_synced(self) -> bool:
        """What the router's intake says."""
        return self.synced

    async def status(self) -> int:
        """Return what /readyz answers now."""
        answer = await self.ops.readyz(cast("Any", None))
        return answer.status_code


async def test_a_router_without_a_list_is_not_ready() -> None:
    """It could only answer 404 for every model."""
    assert await Situation(synced=False).status() == 503


@pytest.mark.parametrize(
    "loading",
    [{"problem": "its tokenizer is being loaded"}, {"ready": 0}],
    ids=["recipe", "workers"],
)
async def test_a_router_that_still_loads_is_not_ready(loading: dict[str, Any]) -> None:
    """A rollout would end the old router and leave clients with 503."""
    situation = Situation(**loading)

    assert await situation.status() == 503

    situation.problem, situation.ready = None, 1
    assert await situation.status() == 200


async def test_a_backend_without_workers_does_not_hold_a_router_back() -> None:
    """Scaled to zero, it is woken by the request that finds nobody."""
    assert (
        await Situation(known=0, ready=0, problem="no worker has sent its tokenizer").status()
        == 200
    )


async def test_a_worker_that_never_answers_holds_a_router_back_for_a_while_only() -> None:
    """Twenty seconds from the first list, not from the start of the process."""
    situation = Situation(ready=0, synced=False)
    assert await situation.status() == 503
    situation.now, situation.synced = 100.0, True
    assert await situation.status() == 503

    situation.now = 119.9
    before = await situation.status()
    situation.now = 120.0

    assert (before, await situation.status()) == (503, 200)


async def test_a_router_that_was_ready_stays_so_when_its_workers_go() -> None:
    """All routers would leave the Service at once, and clients get refused connections."""
    situation = Situation()
    assert await situation.status() == 200

    situation.ready, situation.problem = 0, "its tokenizer is being loaded"

    assert await situation.status() == 200


async def test_a_router_that_serves_with_the_last_good_tokenizer_is_ready() -> None:
    """The problem is told, and takes nobody's service away."""
    assert await Situation(problem="a typo", old_recipe=True).status() == 200


async def test_readyz_tells_operators_what_is_wrong_and_clients_no_address(tmp_path: Path) -> None:
    """Each worker's own problem, and the manifest's; a chat is told of the counts alone."""
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with running_router(tmp_path, manifest("127.0.0.1:1"), ready=False) as router:

        async def told(field: str, text: str) -> bool:
            body = (await router.http.get("/readyz")).json()
            found = body.get(field) or body["backends"]["default/backend"].get(field)
            return text in (found or "")

        await eventually(
            lambda: told("problem", "static/127.0.0.1:1: The worker cannot be reached")
        )
        sound = (await router.http.get("/readyz")).json()["manifest_problem"]
        router.manifest.write_text("# nothing")
        await eventually(lambda: told("manifest_problem", "holds no SGLangBackend"))
        answer = await router.http.post("/v1/chat/completions", json=chat)

    assert sound is None
    assert answer.status_code == 503
    assert "127.0.0.1" not in answer.text
