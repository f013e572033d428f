"""What SGLang's own tool parsers make of texts; runs in an environment that has them.

That is SGLang's, or one with ``llm-router-utils``, which packages them. Reads a JSON line
``{"parser", "text", "tools"}`` from standard input for each text, and answers each with a line
``{"content", "calls": [[name, arguments]]}``, or ``{"error"}``; ``null`` when it has no such parser.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from typing import Any

Json = dict[str, Any]
_PACKAGES = ("sglang", "llm_router_utils.sglang")


def _module(name: str) -> Any:
    """Return SGLang's module *name* from whichever package has it."""
    own, packaged = (f"{package}.srt.{name}" for package in _PACKAGES)
    try:
        return importlib.import_module(own)
    except ModuleNotFoundError:
        return importlib.import_module(packaged)


def _read(parsers: Any, protocol: Any, asked: Json) -> Json | None:
    if asked["parser"] not in parsers.FunctionCallParser.ToolCallParserEnum:
        return None
    tools = [protocol.Tool.model_validate(tool) for tool in asked["tools"]]
    parser = parsers.FunctionCallParser(tools=tools, tool_call_parser=asked["parser"])
    if not parser.has_tool_call(asked["text"]):
        return {"content": asked["text"], "calls": []}
    content, calls = parser.parse_non_stream(asked["text"])
    return {"content": content, "calls": [[call.name, call.parameters] for call in calls]}


def main() -> None:
    """Answer each line of the input."""
    logging.disable(logging.CRITICAL)
    parsers = _module("function_call.function_call_parser")
    protocol = _module("entrypoints.openai.protocol")
    for line in sys.stdin:
        try:
            told = _read(parsers, protocol, json.loads(line))
        except Exception as error:  # noqa: BLE001  # what it raises is its answer
            told = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
