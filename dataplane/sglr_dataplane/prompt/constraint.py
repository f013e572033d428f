"""Grammars that make the model call tools: a JSON array of calls, which any model can write.

SGLang and its gateway send the same one where a model's own markup has no grammar (sglang 0.5.23,
``get_json_schema_constraint``); the tool parsers read it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sglr_dataplane.job import Constraint
from sglr_dataplane.prompt.conversation import Tool, ToolChoice
from sglr_dataplane.prompt.json_values import is_array, is_object

_DEFINITIONS = "#/$defs/"
_NAMING = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members are named by the schema's author."""
_DATA = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""
_ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def tool_constraint(
    tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool
) -> Constraint | None:
    """Return the grammar that *choice* asks for; None when the model may answer freely.

    Args:
        tools: All tools of the request; at least one when *choice* requires a call.
        choice: Which of them may be called, and whether one must be.
        parallel: Whether more than one call is allowed.
    """
    if choice.mode != "required":
        return None
    offered = [tool for tool in tools if choice.allowed is None or tool.name in choice.allowed]
    definitions: dict[str, Any] = {}
    items = [_call_schema(tool.name, _shared(tool, definitions)) for tool in offered]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": items[0] if choice.named else {"type": "object", "anyOf": items},
    }
    if not parallel:
        schema["maxItems"] = 1
    if definitions:
        schema["$defs"] = definitions
    return Constraint("json_schema", compact(schema))


def compact(value: Any) -> str:
    """Return *value* as JSON text; equal values give equal text, which the engine caches by."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _call_schema(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [name]},
            "parameters": parameters or _ANY_ARGUMENTS,
        },
        "required": ["name", "parameters"],
    }


def _shared(tool: Tool, definitions: dict[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of *tool* without their ``$defs``, which join *definitions*.

    References are resolved from the root of the schema, so all tools' definitions stand there. A
    tool that means something else by a name than one before it gets names of its own.
    """
    parameters = tool.parameters or _ANY_ARGUMENTS
    own = parameters.get("$defs")
    if not is_object(own):
        return {key: value for key, value in parameters.items() if key != "$defs"}
    if any(definitions.get(name, definition) != definition for name, definition in own.items()):
        prefix = f"{tool.name}."
        while any(prefix + name in definitions for name in own):
            prefix += "."
        parameters = _prefixed(parameters, prefix)
        own = {prefix + name: definition for name, definition in parameters["$defs"].items()}
    definitions.update(own)
    return {key: value for key, value in parameters.items() if key != "$defs"}


def _prefixed(schema: Any, prefix: str) -> Any:
    """Return *schema* with *prefix* before the names of the definitions that it refers to."""
    if is_array(schema):
        return [_prefixed(each, prefix) for each in schema]
    if not is_object(schema):
        return schema
    renamed: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str):
            named = value.removeprefix(_DEFINITIONS)
            renamed[key] = value if named == value else _DEFINITIONS + prefix + named
        elif key in _NAMING and is_object(value):
            renamed[key] = {name: _prefixed(each, prefix) for name, each in value.items()}
        else:
            renamed[key] = value if key in _DATA else _prefixed(value, prefix)
    return renamed
