"""Grammars that make the model call tools: a JSON array of calls, which any model can write.

SGLang and its gateway send the same one where a model's own markup has no grammar (sglang 0.5.23,
``get_json_schema_constraint``); the tool parsers read it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.job import Constraint
from sglr_dataplane.prompt.conversation import Tool, ToolChoice
from sglr_dataplane.prompt.json_values import is_object

_ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def tool_constraint(
    tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
) -> Constraint | None:
    """Return the grammar that *choice* asks for; None when the model may answer freely.

    Args:
        tools: All tools of the request; at least one when *choice* requires a call.
        choice: Which of them may be called, and whether one must be.
        parallel: Whether more than one call is allowed.

    Raises:
        InvalidRequestError: Two tools define one name in their ``$defs`` differently.
    """
    if choice.mode != "required":
        return None
    offered = [tool for tool in tools if choice.allowed is None or tool.name in choice.allowed]
    items = [_call_schema(tool) for tool in offered]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": items[0] if choice.named else {"type": "object", "anyOf": items},
    }
    if not parallel:
        schema["maxItems"] = 1
    definitions = _definitions(offered)
    if definitions:
        schema["$defs"] = definitions
    return Constraint("json_schema", compact(schema))


def compact(value: Any) -> str:
    """Return *value* as JSON text; equal values give equal text, which the engine caches by."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _call_schema(tool: Tool) -> dict[str, Any]:
    own = tool.parameters or _ANY_ARGUMENTS
    parameters = {key: value for key, value in own.items() if key != "$defs"}
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [tool.name]},
            "parameters": parameters or _ANY_ARGUMENTS,
        },
        "required": ["name", "parameters"],
    }


def _definitions(tools: Sequence[Tool]) -> Mapping[str, Any]:
    """Return every tool's ``$defs``: references are resolved from the root of the schema."""
    merged: dict[str, Any] = {}
    for tool in tools:
        definitions = (tool.parameters or {}).get("$defs")
        if not is_object(definitions):
            continue
        for name, definition in definitions.items():
            if merged.setdefault(name, definition) != definition:
                raise InvalidRequestError(
                    f"Tool {tool.name!r} defines '$defs.{name}' differently from another tool;"
                    " tools whose calls are required share their definitions.",
                    param="tools",
                    code="invalid_schema",
                )
    return merged
