"""Tools and the choice among them, checked and told apart from their deprecated forms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglr_dataplane.api.schema.json_schemas import SPELLINGS, check_schema
from sglr_dataplane.api.schema.refusals import invalid, missing, mistyped
from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.prompt.conversation import Tool, ToolChoice
from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.ranges import at_most, shown

MAX_TOOLS = 1024
"""OpenAI takes 128; agents with several tool servers send more."""

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_KEYS = ("description", "name", "parameters", "strict", "defer_loading")


class ToolBody(msgspec.Struct, frozen=True):
    """One of ``tools``, as it is sent."""

    function: dict[str, Any] | None = None
    type: str = "function"
    defer_loading: bool | None = None


def tools_of(
    tools: Sequence[ToolBody] | None, functions: Sequence[dict[str, Any]] | None
) -> tuple[Tool, ...]:
    """Return the tools of a request; ``functions`` is their deprecated form.

    Raises:
        InvalidRequestError: One is no function, is malformed, or has another's name.
    """
    if tools and functions:
        raise invalid("functions", "expected either 'tools' or the deprecated 'functions'")
    at_most(tools or functions or (), "tools" if tools else "functions", MAX_TOOLS)
    if tools:
        found = [_tool(tool, f"tools[{at}]") for at, tool in enumerate(tools)]
        _refuse_duplicates(found, "tools[{}].function.name")
    else:
        found = [
            _function(function, f"functions[{at}]", defer_loading=None)
            for at, function in enumerate(functions or ())
        ]
        _refuse_duplicates(found, "functions[{}].name")
    return tuple(found)


def _tool(tool: ToolBody, path: str) -> Tool:
    if tool.type != "function":
        raise invalid(
            f"{path}.type", f"tools of type {shown(tool.type)} are not served; expected 'function'"
        )
    if tool.function is None:
        raise missing(f"{path}.function")
    return _function(tool.function, f"{path}.function", defer_loading=tool.defer_loading)


def _function(function: Mapping[str, Any], path: str, *, defer_loading: bool | None) -> Tool:
    name = function.get("name")
    if name is None:
        raise missing(f"{path}.name")
    if not isinstance(name, str):
        raise mistyped(f"{path}.name", "a string", name)
    if not _NAME.fullmatch(name):
        raise invalid(
            f"{path}.name",
            f"expected 1 to 64 of letters, digits, '_', '-' and '.', but got {shown(name)}",
        )
    for key, kind, expected in (
        ("description", str, "a string"),
        ("parameters", dict, "an object"),
        ("strict", bool, "a boolean"),
    ):
        value = function.get(key)
        if value is not None and not isinstance(value, kind):
            raise mistyped(f"{path}.{key}", expected, value)
    parameters = function.get("parameters")
    if parameters is not None:
        check_schema(parameters, f"{path}.parameters", also=SPELLINGS)
    return Tool(
        name=name,
        parameters=parameters,
        strict=bool(function.get("strict")),
        function=_shown_to_templates(function, defer_loading=defer_loading),
    )


def _shown_to_templates(
    function: Mapping[str, Any], *, defer_loading: bool | None
) -> dict[str, Any]:
    """Return *function* as sglang@v0.5.23 hands it on.

    Its keys come in the client's order, then null for a description or parameters that it did not
    send; strict and defer_loading are there only if they are set.
    """
    seen = {
        key: value
        for key, value in function.items()
        if key in _KEYS and not (value is None and key in ("strict", "defer_loading"))
    }
    for key in ("description", "parameters"):
        seen.setdefault(key, None)
    if defer_loading is not None:
        seen.setdefault("defer_loading", defer_loading)
    return seen


def _refuse_duplicates(tools: Sequence[Tool], path: str) -> None:
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.name in names:
            raise invalid(path.format(at), f"there is another function named {tool.name!r}")
        names.add(tool.name)


def choice_of(choice: Any, function_call: Any, tools: Sequence[Tool]) -> ToolChoice:
    """Return which of *tools* may or must be called; ``function_call`` is the deprecated form.

    Raises:
        InvalidRequestError: The choice is malformed, requires a call without tools, or names an
            unknown one.
    """
    if choice is None and function_call is not None:
        return _choice(function_call, tools, "function_call")
    return _choice(choice, tools, "tool_choice")


def _choice(choice: Any, tools: Sequence[Tool], param: str) -> ToolChoice:
    if choice is None:
        return ToolChoice("auto" if tools else "none")
    if isinstance(choice, str):
        return _plain(choice, tools, param)
    if not is_object(choice):
        raise mistyped(param, "a string or an object", choice)
    kind = choice.get("type", "function")
    if kind == "function":
        named = choice if param == "function_call" else choice.get("function", choice)
        return ToolChoice("required", (_known_name(named, tools, param),), named=True)
    if kind == "allowed_tools":
        return _allowed(choice, tools, param)
    raise invalid(
        param,
        f"choices of type {shown(kind)} are not served; expected 'function' or 'allowed_tools'",
    )


def _plain(choice: str, tools: Sequence[Tool], param: str) -> ToolChoice:
    if choice == "none" or (choice == "auto" and not tools):
        return ToolChoice("none")
    if choice == "auto":
        return ToolChoice("auto")
    if choice != "required":
        raise invalid(
            param,
            f"expected 'none', 'auto', 'required' or an object, but got {shown(choice)}",
        )
    if not tools:
        raise invalid(param, "'required' needs 'tools' to choose from")
    return ToolChoice("required")


def _allowed(choice: dict[str, Any], tools: Sequence[Tool], param: str) -> ToolChoice:
    # OpenAI's chat API nests what its Responses API has flat; clients send both.
    allowed = choice.get("allowed_tools", choice)
    if not is_object(allowed):
        raise mistyped(f"{param}.allowed_tools", "an object", allowed)
    mode, listed = allowed.get("mode", "auto"), allowed.get("tools")
    if mode not in ("auto", "required"):
        raise invalid(f"{param}.mode", f"expected 'auto' or 'required', but got {shown(mode)}")
    if not is_array(listed):
        raise mistyped(f"{param}.tools", "an array", listed)
    if not listed:
        raise invalid(f"{param}.tools", "expected at least one tool", "empty_array")
    names = tuple(
        _known_name(tool.get("function", tool) if is_object(tool) else tool, tools, param)
        for tool in listed
    )
    return ToolChoice("required" if mode == "required" else "auto", names)


def _known_name(function: Any, tools: Sequence[Tool], param: str) -> str:
    name = function.get("name") if is_object(function) else None
    if not isinstance(name, str):
        raise _unnamed(param)
    if all(tool.name != name for tool in tools):
        known = ", ".join(repr(tool.name) for tool in tools[:20]) or "none"
        raise invalid(param, f"there is no tool named {shown(name)}; the tools are: {known}")
    return name


def _unnamed(param: str) -> InvalidRequestError:
    return invalid(param, "expected the name of a function, a string")
