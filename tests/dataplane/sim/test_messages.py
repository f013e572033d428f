"""Logprobs: increments in chunks, the prompt's once, a complete that repeats the last step."""

from __future__ import annotations

from typing import Any

from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import sim_worker
from support.sim_client import a_request, completes_of, connected

SCRIPT = Script(rules=(Rule(play=Play(ids=(31, 63))),))


async def messages_for(*, stream: bool = True, **fields: Any) -> list[pb.GenerateResponse]:
    """Return the messages of a request with logprobs, for a prompt seen before."""
    request = a_request(stream=stream, fields={"return_logprob": True, **fields})
    async with sim_worker(SCRIPT) as worker, connected(worker.address) as client:
        await client.generate(a_request())
        return await client.generate(request)


async def test_each_chunk_has_the_logprobs_of_its_tokens() -> None:
    """And the streamed complete those of the last step only."""
    first, second, last = await messages_for(logprob_start_len=-1, top_logprobs_num=2)

    assert list(first.chunk.output_logprobs.token_logprobs) == [-0.5]
    assert list(first.chunk.output_logprobs.token_ids) == [31]
    assert list(second.chunk.output_logprobs.token_logprobs) == [-1.0]
    [top] = second.chunk.output_logprobs.top_logprobs
    assert (list(top.token_ids), list(top.values)) == ([63, 64], [-1.0, -2.0])
    assert list(last.complete.output_logprobs.token_ids) == [63]
    assert not first.chunk.HasField("input_logprobs")


async def test_selected_tokens_are_complete_in_the_end() -> None:
    """token_ids_logprob: one row per step in chunks, all rows in complete."""
    first, _, last = await messages_for(logprob_start_len=-1, token_ids_logprob=[7, 15])

    [row] = first.chunk.output_logprobs.token_ids_logprobs
    assert (list(row.token_ids), list(row.values)) == ([7, 15], [-0.125, -0.25])
    assert len(last.complete.output_logprobs.token_ids_logprobs) == 2


async def test_the_prompts_logprobs_come_once_and_cost_the_cache() -> None:
    """The proto default, logprob_start_len 0, asks for them: first chunk only, nothing cached."""
    first, second, last = await messages_for()

    values = first.chunk.input_logprobs.token_logprobs
    assert list(first.chunk.input_logprobs.token_ids) == [11, 12, 13]
    assert [value.HasField("value") for value in values] == [False, True, True]
    assert not second.chunk.HasField("input_logprobs")
    assert last.complete.cached_tokens == 0


async def test_without_prompt_logprobs_the_cache_is_used() -> None:
    """logprob_start_len -1."""
    messages = await messages_for(logprob_start_len=-1)

    assert completes_of(messages)[0].cached_tokens == 2


async def test_a_complete_without_stream_has_all_of_it() -> None:
    """Every row, and the prompt's."""
    [only] = await messages_for(stream=False)

    assert list(only.complete.output_logprobs.token_ids) == [31, 63]
    assert list(only.complete.input_logprobs.token_ids) == [11, 12, 13]


async def test_nobody_who_did_not_ask_gets_logprobs() -> None:
    """return_logprob decides."""
    async with sim_worker(SCRIPT) as worker, connected(worker.address) as client:
        messages = await client.generate(a_request(fields={"top_logprobs_num": 2}))

    assert not any(m.chunk.HasField("output_logprobs") for m in messages)
    assert not completes_of(messages)[0].HasField("output_logprobs")
