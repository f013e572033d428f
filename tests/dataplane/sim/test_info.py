"""What a worker says of itself, the real one's wrong defaults included."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from sglr_dataplane.sim.bundle import CHUNK_SIZE, chunks_of, zip_directory
from sglr_dataplane.sim.script import Play, Rule, Script, ScriptError
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker
from sglr_proto.sglang import common_pb2
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import DEMO_TOKENIZER, sim_worker
from support.sim_client import LIMIT, a_request, completes_of, connected, failure_of

SLOW = Script(rules=(Rule(play=Play(ids=(1,), first_delay="20s")),))


async def test_the_model_facts_are_wrong_where_the_real_ones_are() -> None:
    """Vocabulary, window, BOS and EOS; what can be trusted is right."""
    async with (
        sim_worker(model_name="demo", context_length=4096) as worker,
        connected(worker.address) as client,
    ):
        facts = await client.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=LIMIT)

    assert (facts.vocab_size, facts.max_context_length) == (128256, 65536)
    assert (facts.bos_token_id, list(facts.eos_token_ids)) == (1, [])
    assert (facts.served_model_name, facts.tokenizer_path) == ("demo", str(DEMO_TOKENIZER))
    assert facts.max_req_input_len == 4090
    assert facts.is_generation
    assert facts.default_sampling_params_json == '{"temperature":0.6,"top_p":0.95,"top_k":20}'


async def test_the_server_facts() -> None:
    """server_args holds what a router reads."""
    async with (
        sim_worker(max_running_requests=7, context_length=4096) as worker,
        connected(worker.address) as client,
    ):
        facts = await client.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=LIMIT)

    args = MessageToDict(facts.server_args)
    assert args["max_running_requests"] == 7
    assert args["context_length"] == 4096
    assert (args["tool_call_parser"], args["reasoning_parser"]) == ("qwen25", "qwen3")
    assert args["disaggregation_mode"] == "null"
    assert (facts.server_type, facts.sglang_version) == ("grpc", "0.5.23")
    assert facts.max_total_num_tokens == 65536
    assert facts.uptime_seconds >= 0


async def test_facts_can_be_overridden() -> None:
    """A script may name another model, or leave the window unset."""
    script = Script(
        model_info={"served_model_name": "other", "max_req_input_len": 50, "eos_token_ids": [7]},
        server_args={"context_length": None, "dp_size": 2},
    )
    async with sim_worker(script) as worker, connected(worker.address) as client:
        model = await client.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=LIMIT)
        server = await client.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=LIMIT)

    assert (model.served_model_name, model.max_req_input_len) == ("other", 50)
    assert list(model.eos_token_ids) == [7]
    assert MessageToDict(server.server_args)["context_length"] is None
    assert MessageToDict(server.server_args)["dp_size"] == 2


@pytest.mark.parametrize("override", [{"served_name": "x"}, {"vocab_size": "many"}])
def test_an_override_of_no_field_is_refused(override: dict[str, Any]) -> None:
    """Before anything listens."""
    with pytest.raises(ScriptError, match="model_info"):
        SimWorker(WorkerSettings(), Script(model_info=override))


async def test_loads_count_what_runs_and_waits() -> None:
    """By request, and by token: of the 8 that wait, the 5 that run are cached already."""
    async with (
        sim_worker(SLOW, max_running_requests=1) as worker,
        connected(worker.address) as client,
    ):
        held = []
        for rid, size in (("a", 5), ("b", 8)):
            held.append(
                client.stub.Generate(a_request(rid, ids=range(10, 10 + size)), timeout=LIMIT)
            )
            await worker.wait_for_requests(len(held))
        answer = await client.stub.GetLoads(pb.GetLoadsRequest(), timeout=LIMIT)
        other = await client.stub.GetLoads(pb.GetLoadsRequest(dp_rank=1), timeout=LIMIT)
        core = await client.stub.GetLoads(pb.GetLoadsRequest(include=["core"]), timeout=LIMIT)
        info = await client.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=LIMIT)
        for call in held:
            call.cancel()

    [load] = answer.loads
    assert (load.num_running_reqs, load.num_waiting_reqs, load.num_total_reqs) == (1, 1, 2)
    assert (load.num_used_tokens, load.num_waiting_uncached_tokens) == (5, 3)
    assert load.max_running_requests == 1
    assert load.HasField("queues")
    assert answer.aggregate.total_reqs == 2
    assert not other.loads
    assert not core.loads[0].HasField("queues")
    assert info.active_requests == 2


async def test_an_unknown_section_of_loads_is_refused() -> None:
    """With the sections there are."""
    async with sim_worker() as worker, connected(worker.address) as client:
        error = await failure_of(
            client.stub.GetLoads(pb.GetLoadsRequest(include=["bogus"]), timeout=LIMIT)
        )

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "bogus" in str(error.details())


async def test_the_tokenizer_comes_as_a_zip_with_a_digest_on_the_last_chunk() -> None:
    """64 KiB a chunk; the files are the directory's."""
    async with sim_worker() as worker, connected(worker.address) as client:
        call = client.stub.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=LIMIT)
        chunks = [chunk async for chunk in call]

    archive = b"".join(chunk.data for chunk in chunks)
    files = zipfile.ZipFile(io.BytesIO(archive))
    assert [chunk.sha256 for chunk in chunks[:-1]] == [""] * (len(chunks) - 1)
    assert chunks[-1].sha256 == hashlib.sha256(archive).hexdigest()
    assert files.read("tokenizer.json") == (DEMO_TOKENIZER / "tokenizer.json").read_bytes()
    assert {"tokenizer_config.json", "chat_template.jinja"} <= set(files.namelist())


@pytest.mark.parametrize(
    ("size", "pieces"), [(1, [1]), (CHUNK_SIZE, [CHUNK_SIZE]), (CHUNK_SIZE + 1, [CHUNK_SIZE, 1])]
)
def test_chunks_of_a_bundle(size: int, pieces: list[int]) -> None:
    """A full last chunk has no empty one after it."""
    chunks = list(chunks_of(bytes(size)))

    assert [len(chunk.data) for chunk in chunks] == pieces
    assert [bool(chunk.sha256) for chunk in chunks] == [False] * (len(pieces) - 1) + [True]


def test_files_dated_before_the_first_year_of_zips_are_sent(tmp_path: Path) -> None:
    """The image dates its files 1970, and a worker in it sends its tokenizer all the same."""
    (tmp_path / "tokenizer.json").write_text("{}")
    os.utime(tmp_path / "tokenizer.json", (0, 0))

    with zipfile.ZipFile(io.BytesIO(zip_directory(tmp_path))) as files:
        assert files.read("tokenizer.json") == b"{}"


def test_a_directory_without_tokenizer_files_is_no_bundle(tmp_path: Path) -> None:
    """Other files are not sent."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")

    with pytest.raises(FileNotFoundError):
        zip_directory(tmp_path)


async def test_without_a_directory_there_is_no_tokenizer_to_send() -> None:
    """FAILED_PRECONDITION, as the real worker says."""
    async with sim_worker(tokenizer=None) as worker, connected(worker.address) as client:
        error = await failure_of(
            client.stub.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=LIMIT)
        )

    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_the_prefix_cache_is_flushed_only_when_idle() -> None:
    """A prompt is new again afterwards; while something runs the answer is no success."""
    script = Script(rules=(Rule(play=Play(ids=(1,)), times=2), *SLOW.rules))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        prompt = a_request("p", ids=range(100, 200), stream=False)
        await client.generate(prompt)
        flushed = await client.stub.FlushCache(common_pb2.FlushCacheRequest(), timeout=LIMIT)
        again = completes_of(await client.generate(prompt))[0].cached_tokens
        held = client.stub.Generate(a_request("slow"), timeout=LIMIT)
        await worker.wait_for_requests(3)
        busy = await client.stub.FlushCache(common_pb2.FlushCacheRequest(), timeout=LIMIT)
        held.cancel()

    assert (flushed.success, busy.success) == (True, False)
    assert again == 0


async def test_what_no_servicer_implements() -> None:
    """LoRA, and cache events without --kv-events-config: absent, not broken."""
    async with sim_worker() as worker, connected(worker.address) as client:
        stub = client.stub
        errors = [
            await failure_of(stub.LoadLoRAAdapter(pb.LoadLoRAAdapterRequest(), timeout=LIMIT)),
            await failure_of(stub.UnloadLoRAAdapter(pb.UnloadLoRAAdapterRequest(), timeout=LIMIT)),
            await failure_of(
                stub.ListLoadedLoRAAdapters(pb.ListLoadedLoRAAdaptersRequest(), timeout=LIMIT)
            ),
            await failure_of(
                stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest(), timeout=LIMIT)
            ),
        ]

    assert {error.code() for error in errors} == {grpc.StatusCode.UNIMPLEMENTED}


async def test_a_generative_model_does_not_embed() -> None:
    """INTERNAL, with the key its engine's output lacks."""
    async with sim_worker() as worker, connected(worker.address) as client:
        request = pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=[1]))
        error = await failure_of(client.stub.Embed(request, timeout=LIMIT))
        empty = await failure_of(client.stub.Embed(pb.EmbedRequest(), timeout=LIMIT))

    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "'embedding'")
    assert empty.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_profiles_start_and_stop() -> None:
    """There is nothing to profile, and it says so politely."""
    async with sim_worker() as worker, connected(worker.address) as client:
        started, stopped = await asyncio.gather(
            client.stub.StartProfile(common_pb2.StartProfileRequest(), timeout=LIMIT),
            client.stub.StopProfile(common_pb2.StopProfileRequest(), timeout=LIMIT),
        )

    assert started.success
    assert stopped.success
