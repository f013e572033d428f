"""What a worker says of itself, reduced to what can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sglr_dataplane.engine import EngineFacts

if TYPE_CHECKING:
    Adapters = tuple[tuple[str, str], ...]

    from google.protobuf.struct_pb2 import Struct

    from sglr_proto.sglang import scheduler_pb2

_RESERVED: Final = 6
"""sglang@v0.5.23 tp_worker.py: what a prompt may have is six below what the window, or the cache
for keys and values where that is smaller, holds."""


def engine_facts(
    model: scheduler_pb2.GetModelInfoResponse,
    server: scheduler_pb2.GetServerInfoResponse | None,
    adapters: scheduler_pb2.ListLoadedLoRAAdaptersResponse | None = None,
) -> EngineFacts:
    """Return the trustworthy part of all answers; None is one that is not served."""
    arguments = server.server_args if server is not None else None
    longest = model.max_req_input_len if model.max_req_input_len > 0 else None
    return EngineFacts(
        served_model_name=model.served_model_name,
        model_path=model.model_path,
        tokenizer_path=model.tokenizer_path,
        max_req_input_len=longest,
        context_length=_window(_count(arguments, "context_length"), longest),
        max_running_requests=_count(arguments, "max_running_requests"),
        version=server.sglang_version if server is not None else "",
        default_sampling_params=model.default_sampling_params_json,
        is_generation=model.is_generation,
        reasoning_parser=_text(arguments, "reasoning_parser"),
        tool_call_parser=_text(arguments, "tool_call_parser"),
        grammar_backend=_text(arguments, "grammar_backend") or "",
        adapters=_adapters(adapters),
    )


def _adapters(listed: scheduler_pb2.ListLoadedLoRAAdaptersResponse | None) -> Adapters:
    """Return name and id of each adapter that has both, by name."""
    found = listed.loaded_adapters if listed is not None else ()
    return tuple(
        sorted((each.lora_name, each.lora_id) for each in found if each.lora_name and each.lora_id)
    )


def _window(declared: int | None, longest: int | None) -> int | None:
    """Return what prompt and answer may have together, by what of it is known."""
    held = longest + _RESERVED if longest is not None else None
    return min((each for each in (declared, held) if each is not None), default=None)


def _text(arguments: Struct | None, name: str) -> str | None:
    """Return a text of *arguments*, ``""`` for null; None when it is absent or something else."""
    if arguments is None or name not in arguments.fields:
        return None
    value = arguments.fields[name]
    if value.WhichOneof("kind") == "null_value":
        return ""
    return value.string_value if value.WhichOneof("kind") == "string_value" else None


def _count(arguments: Struct | None, name: str) -> int | None:
    """Return a positive whole number of *arguments*; None when it is null, absent or no number."""
    if arguments is None or name not in arguments.fields:
        return None
    value = arguments.fields[name]
    if value.WhichOneof("kind") != "number_value" or value.number_value < 1:
        return None
    return int(value.number_value)
