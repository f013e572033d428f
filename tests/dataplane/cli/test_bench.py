"""``sglr bench`` against a router with simulated workers, and against what is none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sglr_dataplane.cli import main
from sglr_dataplane.cli.bench import Bar
from sglr_dataplane.cli.bench_figures import Record
from sglr_dataplane.cli.bench_load import arrivals, prompts
from sglr_dataplane.sim.script import Incident, Play
from support.router import DEMO_MODEL, a_worker, manifest, running_router

FIVE = Play(text="one two three four five")


async def bench(*arguments: str) -> int:
    """Run the command beside the router of this loop."""
    return await asyncio.to_thread(main, ["bench", *arguments])


async def test_a_load_is_measured_tabled_written_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model is found by itself; every request is in the file, its text is not."""
    found, drawn = tmp_path / "found.json", tmp_path / "drawn.svg"
    async with (
        a_worker(FIVE) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        status = await bench(
            *(router.url, "--model", "m", "--requests", "12", "--concurrency", "4"),
            *("--input-tokens", "20", "--output-tokens", "64", "--rate", "200"),
            *("--tokenizer", str(DEMO_MODEL), "--json", str(found), "--plot", str(drawn)),
        )
        asked = len(worker.requests)
        longest = max(len(request.tokenized.input_ids) for request in worker.requests)
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    content = json.loads(found.read_text())

    assert status == 0
    assert asked == 12 + 5
    assert longest < 20 + 60
    assert ["requests completed", "12"] in [[row[0], row[-1].strip()] for row in rows]
    assert content["figures"]["completed"] == 12
    # The end of an answer is a token for the server, and no text.
    assert content["figures"]["retokenized"] == content["figures"]["output_tokens"] - 12
    assert len(content["requests"]) == 12
    assert "key" not in content["load"]
    assert "one two" not in found.read_text()
    assert drawn.read_text().startswith("<svg")


async def test_failed_requests_are_counted_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, and the reason in a sentence, once."""
    cut = Play(text="one two three", incidents=(Incident(after=1, hang=False, die="reset"),))
    async with (
        a_worker(FIVE, cut) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        status = await bench(
            *(router.url, "--model", "m", "--requests", "2", "--concurrency", "1"),
            *("--warm-up", "1", "--input-tokens", "5"),
        )
    told = capsys.readouterr()

    assert status == 1
    assert "sglr bench:" in told.err
    assert "failed" in told.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ftp://x"], "no http or https URL"),
        (["http://127.0.0.1:1"], "cannot be reached"),
        (["http://127.0.0.1:1", "--model", "m"], "does not answer"),
        (["http://127.0.0.1:1", "--json", "/nowhere/x.json"], "no folder"),
        (["http://127.0.0.1:1", "--tokenizer", "/nowhere"], "tokenizer"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, no table and no traceback."""
    status = main(["bench", *arguments])
    told = capsys.readouterr()

    assert status == 2
    assert told.out == ""
    assert words in told.err
    assert told.err.count("\n") == 1


async def test_a_refused_model_ends_the_run_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server's own sentence is shown."""
    async with (
        a_worker(FIVE) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        status = await bench(router.url, "--model", "nobody")

    assert status == 2
    assert "404" in (told := capsys.readouterr().err)
    assert "nobody" in told


async def test_several_models_are_a_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are listed."""
    async with (
        a_worker(FIVE) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        status = await bench(f"{router.url}/v1/")

    assert status == 2
    assert "org/alias" in capsys.readouterr().err


def test_arrivals_are_random_and_the_same_in_every_run() -> None:
    """At the rate that is asked for, on average; without one all are due at once."""
    times = arrivals(2000, 20.0)

    assert times == arrivals(2000, 20.0)
    assert times == sorted(times)
    assert times[0] == 0.0
    assert 90 < times[-1] < 110
    assert arrivals(3, None) == [0.0, 0.0, 0.0]


def test_prompts_have_the_length_that_is_asked_for_and_differ() -> None:
    """With a tokenizer never more; without one, a word is a token."""
    texts = prompts(3, 50, None)
    halved = prompts(1, 50, lambda text: 2 * len(text.split()))

    assert [len(text.split()) for text in texts] == [50, 50, 50]
    assert len(set(texts)) == 3
    assert len(halved[0].split()) == 25


def test_the_bar_shows_how_far_the_run_is() -> None:
    """Half of it, and what failed."""
    bar = Bar(4)
    bar.advance(Record(begin=0, end=1))
    bar.advance(Record(begin=0, end=1, error="cut"))

    assert str(bar) == f"[{'#' * 15}{' ' * 15}] 2/4, 1 failed"
