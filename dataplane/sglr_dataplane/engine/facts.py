"""What a worker says of itself, reduced to what can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.engine import EngineFacts

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct

    from sglr_proto.sglang import scheduler_pb2


def engine_facts(
    model: scheduler_pb2.GetModelInfoResponse,
    server: scheduler_pb2.GetServerInfoResponse | None,
) -> EngineFacts:
    """Return the trustworthy part of both answers; *server* is None when it is not served."""
    arguments = server.server_args if server is not None else None
    return EngineFacts(
        served_model_name=model.served_model_name,
        model_path=model.model_path,
        tokenizer_path=model.tokenizer_path,
        max_req_input_len=model.max_req_input_len if model.max_req_input_len > 0 else None,
        context_length=_count(arguments, "context_length"),
        max_running_requests=_count(arguments, "max_running_requests"),
        version=server.sglang_version if server is not None else "",
        default_sampling_params=model.default_sampling_params_json,
        is_generation=model.is_generation,
    )


def _count(arguments: Struct | None, name: str) -> int | None:
    """Return a positive whole number of *arguments*; None when it is null, absent or no number."""
    if arguments is None or name not in arguments.fields:
        return None
    value = arguments.fields[name]
    if value.WhichOneof("kind") != "number_value" or value.number_value < 1:
        return None
    return int(value.number_value)
