"""Metrics tell the truth: what is counted, when, under which names, and that the page says so."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from sglr_dataplane.fleet.observe import FleetCollector
from sglr_dataplane.metrics import RouterMetrics
from sglr_dataplane.sim.script import Incident, Play, Status
from support.engines import ScriptedEngine
from support.fleets import a_registry
from support.router import RunningRouter, a_worker, eventually, manifest, running_router

PATH = "/v1/chat/completions"
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
STAGES = ("prompt", "queue", "worker", "answer")


async def value(router: RunningRouter, series: str) -> float | None:
    """Return the number of *series*; None when there is none."""
    for line in (await router.http.get("/metrics")).text.splitlines():
        name, _, number = line.rpartition(" ")
        if name == series:
            return float(number)
    return None


async def stream(router: RunningRouter, **fields: Any) -> str:
    """Return the whole of a streamed answer."""
    answer = await router.http.post(PATH, json={**REQUEST, "stream": True, **fields})
    assert answer.status_code == 200
    return answer.text


def test_the_page_has_every_metric_with_its_labels_and_no_other() -> None:
    """docs/reference/metrics.md against what a router creates."""
    metrics, registry = RouterMetrics(), a_registry({"w": ScriptedEngine()})
    made = {
        f"{each.name}_total" if each.type == "counter" else each.name: labels(each)
        for each in metrics.registry.collect()
    }
    collected = FleetCollector(registry).collect()
    made |= {each.name: set(each.samples[0].labels) for each in collected}
    rows = re.findall(r"^\| `(sglr_\w+)` \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", names)) for name, names in rows}

    assert documented.keys() == made.keys()
    assert {name: names for name, names in documented.items() if made[name] is not None} == {
        name: names for name, names in made.items() if names is not None
    }


def labels(family: Any) -> set[str] | None:
    """Return the labels of a family that has a series; None of one that has none yet."""
    named = {name for sample in family.samples for name in sample.labels} - {"le"}
    return named if family.samples else None


def test_times_have_buckets_to_ten_minutes() -> None:
    """A long prompt behind a queue is not lost in the last bucket."""
    metrics = RouterMetrics()
    metrics.streamed("m", 400.0, 400.0 * 9, 10)
    metrics.stages("b").queue.observe(400.0)
    found = Counter[str]()
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.labels.get("le") == "600.0":
                found[family.name] += int(sample.value)

    assert found["sglr_time_to_first_token_seconds"] == 1
    assert found["sglr_time_per_output_token_seconds"] == 1
    assert found["sglr_stage_seconds"] == 1


async def test_a_stream_is_timed_from_its_first_content_to_its_last_token(tmp_path: Path) -> None:
    """Ten tokens, 20 ms apart: the mean is no less than that, and one answer is one observation."""
    play = Play(text=" ".join(["word"] * 10), first_delay="100ms", delay="20ms")
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        await stream(router)
        await router.http.post(PATH, json=REQUEST)
        count = await value(router, 'sglr_time_per_output_token_seconds_count{model="m"}')
        each = await value(router, 'sglr_time_per_output_token_seconds_sum{model="m"}')
        first = await value(router, 'sglr_time_to_first_token_seconds_sum{model="m"}')

    assert count == 1
    assert each is not None
    assert each >= 0.015  # the first gap is shared with the first token
    assert first is not None
    assert first >= 0.1


async def test_every_stage_of_a_request_is_observed_once(tmp_path: Path) -> None:
    """Streamed or whole, and never longer in sum than the requests took."""
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        await stream(router)
        await router.http.post(PATH, json=REQUEST)
        counts: list[float | None] = []
        total = 0.0
        for stage in STAGES:
            series = f'{{backend="default/backend",stage="{stage}"}}'
            counts.append(await value(router, f"sglr_stage_seconds_count{series}"))
            total += await value(router, f"sglr_stage_seconds_sum{series}") or 0.0
        took = await value(router, f'sglr_request_duration_seconds_sum{{route="{PATH}"}}')

    assert counts == [2.0] * 4
    assert took is not None
    assert 0 < total <= took


async def test_a_stream_that_fails_counts_as_failed_although_its_status_was_200(
    tmp_path: Path,
) -> None:
    """Its first token is timed, its tokens are counted, its pace is not."""
    cut = Play(
        text=" ".join(["word"] * 10), incidents=(Incident(after=3, status=Status(code="INTERNAL")),)
    )
    async with (
        a_worker(cut) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        text = await stream(router)
        route = f'route="{PATH}"'
        well = await value(router, f'sglr_requests_total{{outcome="ok",{route}}}')
        failed = await value(router, f'sglr_requests_total{{outcome="worker_error",{route}}}')
        pace = await value(router, 'sglr_time_per_output_token_seconds_count{model="m"}')
        first = await value(router, 'sglr_time_to_first_token_seconds_count{model="m"}')
        tokens = await value(router, 'sglr_tokens_total{kind="completion",model="m"}')

    assert '"error"' in text
    assert (well, failed) == (None, 1)
    assert (pace, first) == (0, 1)
    assert tokens == 3


async def test_the_series_of_a_backend_that_is_gone_are_gone(tmp_path: Path) -> None:
    """Its stages, its models' times and tokens; those of the one in its place begin anew."""
    async with (
        a_worker(Play(text="Hi there, you.")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        await stream(router)
        before = (await router.http.get("/metrics")).text
        text = router.manifest.read_text().replace("name: backend", "name: other")
        router.manifest.write_text(text.replace("name: m\n", "name: n\n"))

        async def is_gone() -> bool:
            return "default/backend" not in (await router.http.get("/metrics")).text

        await eventually(is_gone)
        after = (await router.http.get("/metrics")).text

    assert 'stage="queue"' in before
    assert 'model="m"' in before
    assert 'backend="default/backend"' not in after
    assert 'model="m"' not in after
