"""What the worker says of itself, the wrong defaults of the real one included. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from sglr_dataplane.sim.script import ScriptError
from sglr_proto.sglang import scheduler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglr_dataplane.sim.script import Script
    from sglr_dataplane.sim.settings import WorkerSettings

VERSION = "0.5.23"
LOAD_SECTIONS = ("all", "core", "disagg", "lora", "memory", "queues", "spec")
_SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def model_info(settings: WorkerSettings, script: Script) -> pb.GetModelInfoResponse:
    """Return GetModelInfo's answer: vocabulary, window, BOS and EOS are wrong, as in 0.14.1.

    Raises:
        ScriptError: The script's model_info names a field that is not there, or of another type.
    """
    path = "" if settings.tokenizer is None else str(settings.tokenizer)
    answer = pb.GetModelInfoResponse(
        model_path=path or settings.model_name,
        tokenizer_path=path,
        is_generation=True,
        weight_version="default",
        served_model_name=settings.model_name,
        max_context_length=settings.kv_capacity,
        vocab_size=128256,
        model_type="qwen3",
        eos_token_ids=[],
        pad_token_id=0,
        bos_token_id=1,
        max_req_input_len=settings.max_req_input_len,
        architectures=["Qwen3ForCausalLM"],
        default_sampling_params_json=_sampling_defaults(settings),
    )
    said = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    try:
        return json_format.ParseDict({**said, **script.model_info}, pb.GetModelInfoResponse())
    except json_format.ParseError as error:
        raise ScriptError(f"The script is wrong: {error} - at `$.model_info`") from error


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a worker is right now; times in seconds."""

    started: float
    """Since the epoch."""
    uptime: float
    active_requests: int
    last_push: float
    """Since the epoch."""


def server_info(
    settings: WorkerSettings, script: Script, vitals: Vitals
) -> pb.GetServerInfoResponse:
    """Return GetServerInfo's answer."""
    answer = pb.GetServerInfoResponse(
        server_args=_struct({**_server_args(settings), **script.server_args}),
        scheduler_info=_struct(
            {
                "status": "ready",
                "max_total_num_tokens": settings.kv_capacity,
                "max_req_input_len": settings.max_req_input_len,
            }
        ),
        active_requests=vitals.active_requests,
        last_receive_timestamp=vitals.last_push,
        uptime_seconds=vitals.uptime,
        sglang_version=VERSION,
        server_type="grpc",
        max_total_num_tokens=settings.kv_capacity,
    )
    answer.start_time.FromSeconds(int(vitals.started))
    return answer


def _server_args(settings: WorkerSettings) -> dict[str, Any]:
    """Return the command line of the worker; the real Struct has 547 entries, these are read."""
    path = "" if settings.tokenizer is None else str(settings.tokenizer)
    return {
        "model_path": path or settings.model_name,
        "tokenizer_path": path,
        "served_model_name": settings.model_name,
        "host": settings.host,
        "port": settings.port,
        "context_length": settings.context_length,
        "max_running_requests": settings.max_running_requests,
        "max_queued_requests": settings.max_queued_requests,
        "tool_call_parser": settings.tool_call_parser,
        "reasoning_parser": settings.reasoning_parser,
        "grammar_backend": "xgrammar",
        "disaggregation_mode": "null",
        "dp_size": 1,
        "tp_size": 1,
        "page_size": settings.page_size,
        "stream_interval": 1,
        "kv_events_config": '{"publisher": "zmq"}' if settings.kv_events else None,
        "is_embedding": False,
        "skip_tokenizer_init": False,
    }


def loads(
    settings: WorkerSettings, include: list[str], running: list[int], waiting: list[int]
) -> pb.SchedulerLoad:
    """Return the load of the worker's only rank.

    Args:
        settings: The limits.
        include: The sections asked for; empty means all.
        running: Tokens held by each running request.
        waiting: Prompt tokens of each waiting one that are not in the prefix cache.
    """
    used = sum(running)
    load = pb.SchedulerLoad(
        num_running_reqs=len(running),
        num_waiting_reqs=len(waiting),
        num_total_reqs=len(running) + len(waiting),
        num_used_tokens=used,
        max_total_num_tokens=settings.kv_capacity,
        token_usage=used / settings.kv_capacity,
        utilization=len(running) / settings.max_running_requests,
        max_running_requests=settings.max_running_requests,
        num_waiting_uncached_tokens=sum(waiting),
    )
    wanted = set(include) or {"all"}
    if wanted & {"all", "memory"}:
        load.memory.token_capacity = settings.kv_capacity
    if wanted & {"all", "disagg"}:
        load.disaggregation.mode = "null"
    if wanted & {"all", "queues"}:
        load.queues.waiting = len(waiting)
    return load


def adapters(ids: Mapping[str, str]) -> pb.ListLoadedLoRAAdaptersResponse:
    """Return the list of the adapters whose *ids* are given by name."""
    return pb.ListLoadedLoRAAdaptersResponse(
        loaded_adapters=[
            pb.LoadedLoRAAdapter(lora_id=each, lora_name=name, lora_path=f"/adapters/{name}")
            for name, each in ids.items()
        ]
    )


def aggregate(load: pb.SchedulerLoad) -> pb.AggregateMetrics:
    """Return the sum over the worker's ranks, of which there is one."""
    return pb.AggregateMetrics(
        total_running_reqs=load.num_running_reqs,
        total_waiting_reqs=load.num_waiting_reqs,
        total_reqs=load.num_total_reqs,
        avg_token_usage=load.token_usage,
        avg_throughput=load.gen_throughput,
        avg_utilization=load.utilization,
    )


def _sampling_defaults(settings: WorkerSettings) -> str:
    """Return the model's generation_config as JSON, the five keys the worker passes on."""
    path = None if settings.tokenizer is None else settings.tokenizer / "generation_config.json"
    if path is None or not path.is_file():
        return ""
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: config[key] for key in _SAMPLING_DEFAULTS if key in config}
    return json.dumps(kept, separators=(",", ":")) if kept else ""


def _struct(values: dict[str, Any]) -> Struct:
    struct = Struct()
    struct.update(values)
    return struct
