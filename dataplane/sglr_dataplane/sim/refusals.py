"""Requests the real worker refuses with INVALID_ARGUMENT; everything else it takes. Pure.

What is not here is accepted although it is invalid: temperature -1, top_p 2, top_k -5, min_p 2,
presence 5, min_new_tokens above max_new_tokens, stop ids outside the vocabulary.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from sglr_dataplane.sim.shapes import object_of

if TYPE_CHECKING:
    from sglr_proto.sglang import scheduler_pb2 as pb

MAX_STOPS = 32


def refusal_of(request: pb.GenerateRequest, max_req_input_len: int) -> str | None:
    """Return the worker's message for a request it refuses; None when it takes it."""
    if not request.HasField("tokenized"):
        return "Tokenized input must be provided"
    if len(request.sampling_params.stop) > MAX_STOPS:
        return (
            f"The number of stop strings ({len(request.sampling_params.stop)}) exceeds the"
            f" maximum allowed number ({MAX_STOPS})."
        )
    if request.return_hidden_states:
        return (
            "Hidden states are served by the Rust servicer: run the worker with"
            " `--servicer-impl rust`. The Python servicer does not return them."
        )
    return _too_long(len(request.tokenized.input_ids), max_req_input_len) or _bad_grammar(
        request.sampling_params
    )


def _too_long(count: int, limit: int) -> str | None:
    if count < limit:
        return None
    return (
        f"Input length ({count} tokens) exceeds the maximum allowed length ({limit} tokens)."
        " Use a shorter input or enable --allow-auto-truncate."
    )


def _bad_grammar(sampling: pb.SamplingParams) -> str | None:
    kind = sampling.WhichOneof("constraint")
    if kind is None:
        return None
    source = str(getattr(sampling, kind))
    fault = _CHECKS[kind](source)
    return None if fault is None else f"Failed to compile {kind} grammar: {fault}"


def _regex_fault(source: str) -> str | None:
    try:
        re.compile(source)
    except re.error as error:
        return str(error)
    return None


def _schema_fault(source: str) -> str | None:
    try:
        schema = json.loads(source)
    except ValueError as error:
        return str(error)
    return None if isinstance(schema, dict | bool) else "a schema is an object or a boolean"


def _ebnf_fault(source: str) -> str | None:
    found = re.search(r"^\s*root\s*::=\s*\S", source, re.MULTILINE)
    return None if found else "the root rule is not defined"


def _tag_fault(source: str) -> str | None:
    try:
        tag = object_of(json.loads(source))
    except ValueError as error:
        return str(error)
    if tag.get("type") != "structural_tag":
        return "its type is not structural_tag"
    current = isinstance(tag.get("format"), dict)
    legacy = isinstance(tag.get("structures"), list) and isinstance(tag.get("triggers"), list)
    return None if current or legacy else "it has neither a format nor structures and triggers"


_CHECKS = {
    "regex": _regex_fault,
    "json_schema": _schema_fault,
    "ebnf_grammar": _ebnf_fault,
    "structural_tag": _tag_fault,
}
