"""Generate over loopback: what a plain grpcio client sees of a simulated worker."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from sglr_dataplane.sim.script import Incident, Play, Rule, Script
from support.sim import sim_worker
from support.sim_client import LIMIT, a_request, chunks_of, completes_of, connected

HI_THERE = Play(ids=(101, 102, 103))
SLOW = Play(ids=tuple(range(100, 200)), delay="50ms")


def playing(*plays: Play) -> Script:
    """Return a script that plays *plays*, one request each, the last for ever."""
    once = [Rule(play=play, times=1) for play in plays[:-1]]
    return Script(rules=(*once, Rule(play=plays[-1])))


async def test_a_stream_is_deltas_and_a_complete_that_repeats_the_last() -> None:
    """One chunk per token, counts cumulative; complete.output_ids is the last delta again."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request("a" * 32))

    counts = [m.chunk.completion_tokens for m in messages[:-1]]
    assert chunks_of(messages) == [[101], [102], [103]]
    assert counts == [1, 2, 3]
    assert [m.request_id for m in messages] == ["a" * 32] * 4
    assert list(messages[-1].complete.output_ids) == [103]
    assert messages[-1].complete.completion_tokens == 3
    assert messages[-1].complete.prompt_tokens == 3


async def test_without_stream_there_is_one_complete_with_everything() -> None:
    """stream=false: no chunk, all ids in the only message."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request(stream=False))

    assert [list(c.output_ids) for c in completes_of(messages)] == [[101, 102, 103]]
    assert len(messages) == 1


async def test_choices_of_a_stream_are_told_apart_by_index() -> None:
    """n=2 streamed: chunks interleave, each with its index, and one complete per index."""
    script = Script(rules=(Rule(play=(Play(ids=(1, 2)), Play(ids=(3, 4)))),))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request(n=2))

    assert chunks_of(messages, 0) == [[1], [2]]
    assert chunks_of(messages, 1) == [[3], [4]]
    assert sorted(c.index for c in completes_of(messages)) == [0, 1]


async def test_choices_that_are_not_streamed_all_have_index_0_in_order() -> None:
    """n=2 unary: the order of arrival is all that tells the choices apart."""
    script = Script(rules=(Rule(play=(Play(ids=(1, 2)), Play(ids=(3, 4)))),))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        completes = completes_of(await client.generate(a_request(n=2, stream=False)))

    assert [(c.index, list(c.output_ids)) for c in completes] == [(0, [1, 2]), (0, [3, 4])]


async def test_choices_that_are_not_streamed_run_side_by_side() -> None:
    """n=2 unary: the second choice is scheduled although the first never ends."""
    hangs = Play(ids=(1,), incidents=(Incident(after=0, hang=True),))
    script = Script(rules=(Rule(play=(hangs, Play(ids=(3, 4)))),))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        call = client.stub.Generate(a_request("r" * 32, n=2, stream=False), timeout=LIMIT)
        reading = asyncio.ensure_future(call.read())
        await worker.recorder.wait_until(
            lambda: f"{'r' * 32}-1" in worker.recorder.scheduled, LIMIT
        )
        call.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_several_choices_begin_with_a_hidden_prefill() -> None:
    """The scheduler sees <rid>-prefix before <rid>-0 and <rid>-1, which find the prompt cached."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request("x", ids=range(50), n=2))

    assert worker.recorder.scheduled == ["x-prefix", "x-0", "x-1"]
    assert {c.cached_tokens for c in completes_of(messages)} == {49}
    assert len(worker.requests) == 1


async def test_no_choices_is_one_choice() -> None:
    """n=0, the proto default, acts as 1."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request("x", n=0))

    assert worker.recorder.scheduled == ["x"]
    assert len(completes_of(messages)) == 1


async def test_zeroes_of_the_wire_are_rewritten_for_the_engine() -> None:
    """top_p 0, top_k 0 and repetition_penalty 0 mean unset; temperature 0 is greedy."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        await client.generate(a_request())
        seen = worker.received[0].sampling

    assert (seen.top_p, seen.top_k, seen.repetition_penalty) == (1.0, -1, 1.0)
    assert seen.temperature == 0.0
    assert worker.requests[0].sampling_params.top_p == 0.0


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": -1.0},
        {"top_p": 2.0},
        {"top_k": -5},
        {"min_p": 2.0},
        {"presence_penalty": 5.0},
        {"min_new_tokens": 9, "max_new_tokens": 1},
        {"stop_token_ids": [99_999_999]},
    ],
)
async def test_invalid_sampling_is_taken_in_silence(sampling: dict[str, Any]) -> None:
    """The engine validates nothing over gRPC."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request(**sampling))

    assert len(completes_of(messages)) == 1


async def test_a_client_that_goes_is_recorded_and_its_run_ended() -> None:
    """Cancelling the call ends the generation (A09 can be judged by it)."""
    async with sim_worker(playing(SLOW)) as worker, connected(worker.address) as client:
        call = client.stub.Generate(a_request("gone" * 8), timeout=LIMIT)
        await call.read()
        call.cancel()
        await worker.wait_for_cancel("gone" * 8)

        assert worker.cancelled == ["gone" * 8]
        assert not worker.scheduler.running


async def test_a_client_that_goes_ends_all_its_choices() -> None:
    """n=2: one cancel is recorded, and neither choice goes on."""
    async with sim_worker(playing(SLOW)) as worker, connected(worker.address) as client:
        call = client.stub.Generate(a_request("gone", n=2), timeout=LIMIT)
        await call.read()
        running = sorted(run.rid for run in worker.scheduler.running)
        call.cancel()
        await worker.wait_for_cancel("gone")

        assert running == ["gone-0", "gone-1"]
        assert worker.cancelled == ["gone"]
        assert not worker.scheduler.running


async def test_a_client_that_goes_before_the_first_token_is_recorded() -> None:
    """Also while nothing has been sent yet."""
    silent = playing(Play(ids=(1,), first_delay="20s"))
    async with sim_worker(silent) as worker, connected(worker.address) as client:
        call = client.stub.Generate(a_request("gone" * 8), timeout=LIMIT)
        await worker.wait_for_requests(1)
        call.cancel()

        await worker.wait_for_cancel("gone" * 8)


async def test_an_answered_call_is_not_recorded_as_cancelled() -> None:
    """Cancels seen are clients' cancels."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        await client.generate(a_request("a" * 32))
        await worker.recorder.wait_until(lambda: worker.recorder.finished == ["a" * 32], LIMIT)

    assert worker.cancelled == []


async def test_waiting_for_a_cancel_that_never_comes_ends() -> None:
    """The deadline says what was seen instead."""
    async with sim_worker() as worker:
        with pytest.raises(TimeoutError, match="cancelled=\\[\\]"):
            await worker.wait_for_cancel(timeout=0.05)


async def test_a_repeated_id_takes_the_first_calls_stream() -> None:
    """Both outputs go to the second call; the first hangs."""
    first = Play(ids=(1, 2, 3), delay="100ms", first_delay="100ms")
    async with sim_worker(playing(first, SLOW)) as worker, connected(worker.address) as client:
        robbed = asyncio.create_task(client.partial(a_request("dup"), limit=1.5))
        await worker.wait_for_requests(1)
        thief = await client.generate(a_request("dup"))
        messages, error = await robbed

    stolen = [token for chunk in chunks_of(thief) for token in chunk]
    assert [token for token in stolen if token < 10] == [1, 2, 3]
    assert messages == []
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_the_thoughts_tokens_are_counted_on_request() -> None:
    """Cumulative, the end of the thought included, when require_reasoning is set."""
    async with sim_worker() as worker, connected(worker.address) as client:
        thought = worker.text.encode("<think>\nHm.\n</think>")
        worker.use(playing(Play(ids=(*thought, 5, 6), chunk_size=len(thought) - 1)))
        counted = await client.generate(a_request(fields={"require_reasoning": True}))
        silent = await client.generate(a_request())

    told = [m.chunk.reasoning_tokens for m in counted[:-1]]
    assert told == [len(thought) - 1, len(thought)]
    assert completes_of(counted)[0].reasoning_tokens == len(thought)
    assert completes_of(silent)[0].reasoning_tokens == 0


async def test_the_request_may_ask_for_larger_chunks() -> None:
    """stream_interval: tokens of one chunk, where the script does not say."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request(stream_interval=2))

    assert chunks_of(messages) == [[101, 102], [103]]


async def test_a_prompt_seen_before_is_cached_but_for_its_last_token() -> None:
    """600 tokens twice: 0 cached, then 599; FlushCache forgets."""
    async with sim_worker(playing(HI_THERE)) as worker, connected(worker.address) as client:
        prompt = a_request(ids=range(1000, 1600), stream=False)
        counts = [completes_of(await client.generate(prompt))[0].cached_tokens for _ in range(2)]

    assert counts == [0, 599]
