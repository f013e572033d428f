"""What LangChain accumulates from a stream; runs in an environment that has ``langchain-openai``.

``python langchain_client.py BASE_URL COUNT`` asks COUNT times, with two tools, and prints a JSON line
``{"content", "calls", "invalid"}`` for each answer.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for name in ("weather", "now")
]


def main(base_url: str, count: str) -> None:
    """Ask and print."""
    chat: Any = importlib.import_module("langchain_openai").ChatOpenAI
    model = chat(base_url=base_url, api_key="any", model="m", max_retries=0).bind_tools(_TOOLS)
    for _ in range(int(count)):
        total: Any = None
        for chunk in model.stream("The weather?"):
            total = chunk if total is None else total + chunk
        calls = [[call["name"], call["args"]] for call in total.tool_calls]
        told = {"content": total.content, "calls": calls, "invalid": total.invalid_tool_calls}
        print(json.dumps(told, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
