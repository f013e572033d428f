"""Requests of every shape that chats come in, as clients send them."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def user(content: Any = "What is the weather in Paris?") -> Json:
    """Return a user's message."""
    return {"role": "user", "content": content}


def system(content: Any = "You are terse.") -> Json:
    """Return a system message."""
    return {"role": "system", "content": content}


def said(content: Any = "Paris is the capital of France.", **more: Any) -> Json:
    """Return an assistant's message."""
    return {"role": "assistant", "content": content, **more}


def call(
    name: str = "get_weather",
    arguments: Any = '{"city": "Paris", "days": 2}',
    id: str = "abc123def",
) -> Json:
    """Return a call in the assistant's history; nine letters and digits is what Mistral wants."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content: Any = '{"celsius": 21}', id: str = "abc123def") -> Json:
    """Return a tool's answer."""
    return {"role": "tool", "tool_call_id": id, "content": content}


def text(*parts: str) -> list[Json]:
    """Return content in parts."""
    return [{"type": "text", "text": part} for part in parts]


WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city: <now> & later, in °C.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city's name"},
                "days": {"type": "integer", "minimum": 1},
                "unit": {"type": "string", "enum": ["c", "f"]},
            },
            "required": ["city"],
        },
    },
}
NOW: Json = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "The time.",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    },
}
TOOLS: Json = {"tools": [WEATHER, NOW]}
LOOP = [user(), said(None, tool_calls=[call()]), result(), said("21 °C."), user("And tomorrow?")]
TWO = [
    user(),
    said("", tool_calls=[call(), call("now", "{}", "fed321cba")]),
    result(),
    result("noon", "fed321cba"),
]


def _chat(*messages: Json, **more: Any) -> Json:
    # The date stands in Llama's prompt: without one there, its template says 26 July 2024.
    return {"model": "m", "messages": list(messages), **more}


SHAPES: dict[str, Json] = {
    "one user": _chat(user()),
    "system and user": _chat(system(), user()),
    "several turns": _chat(system(), user("Hi"), said("Hello!"), user()),
    "other scripts": _chat(user("你好,мир! 👩‍👩‍👧‍👦 e\u0301 שלום\u200f ไทย")),
    "white space": _chat(system("  a\n\n"), user("\n  code:\n\tx = 1  \n\n"), said(" b "), user(" c ")),
    "markup in text": _chat(user("<b>bold</b> & {{ jinja }} {% raw %} [INST] \\n")),
    "control tokens typed": _chat(
        user("a<|im_end|><|eot_id|><end_of_turn><|end|><|user|></s>[/INST] b"), said("<|im_end|>c")
        , user("d<think>")
    ),
    "empty content": _chat(user("")),
    "two users": _chat(user("a"), user("b")),
    "two systems": _chat(system("a"), system("b"), user()),
    "system later": _chat(user("a"), said("b"), system("c"), user("d")),
    "assistant first": _chat(said("Welcome."), user()),
    "assistant last": _chat(user(), said("It is")),
    "parts": _chat(user(text("a", "b"))),
    "parts everywhere": _chat(system(text("s")), user(text("a ", " b")), said(text("c")), user("d")),
    "no parts": _chat(user([])),
    "named user": _chat({**user(), "name": "Ann"}),
    "thoughts in history": _chat(user(), said("21", reasoning_content="Let me see."), user("Why?")),
    "thoughts in content": _chat(user(), said("<think>\nHm.\n</think>\n\n21"), user("Why?")),
    "tools offered": _chat(user(), **TOOLS),
    "tools and system": _chat(system(), user(), **TOOLS),
    "tools, none wanted": _chat(user(), **TOOLS, tool_choice="none"),
    "tools, one required": _chat(user(), **TOOLS, tool_choice="required"),
    "tools, one named": _chat(
        user(), **TOOLS, tool_choice={"type": "function", "function": {"name": "now"}}
    ),
    "no tools in a list": _chat(user(), tools=[]),
    "tool without parameters": _chat(
        user(), tools=[{"type": "function", "function": {"name": "ping", "description": "Ping."}}]
    ),
    "a call and its result": _chat(user(), said(None, tool_calls=[call()]), result(), **TOOLS),
    "a whole loop": _chat(*LOOP, **TOOLS),
    "a loop without tools": _chat(*LOOP),
    "two calls at once": _chat(*TWO, **TOOLS),
    "arguments in an order": _chat(
        user(), said(None, tool_calls=[call(arguments='{"z": [1.50, null], "a": {"ü": "<>"}}')]),
        result(), **TOOLS,
    ),
    "a call without content": _chat(
        user(), {"role": "assistant", "tool_calls": [call()]}, result(), **TOOLS
    ),
    "a call with words": _chat(user(), said("Looking.", tool_calls=[call()]), result(), **TOOLS),
    "a result in parts": _chat(
        user(), said(None, tool_calls=[call()]), result(text("a", "b")), **TOOLS
    ),
    "thinking on": _chat(user(), chat_template_kwargs={"enable_thinking": True, "thinking": True}),
    "thinking off": _chat(
        user(), chat_template_kwargs={"enable_thinking": False, "thinking": False}
    ),
    "little effort": _chat(user(), reasoning_effort="low"),
    "continued": _chat(user(), said("It is"), continue_final_message=True),
    "continued in parts": _chat(user(), said(text("It", "is")), continue_final_message=True),
    "long history": _chat(
        system(), *[turn for n in range(20) for turn in (user(f"q{n}"), said(f"a{n}"))], user()
    ),
    "agent": _chat(system(), *[message for n in range(4) for message in (
        user(f"step {n}"),
        said(None, tool_calls=[call(arguments=json.dumps({"city": f"c{n}"}), id=f"call0000{n}")]),
        result(f"r{n}", f"call0000{n}"), said(f"done {n}"))], user(), **TOOLS),
}  # fmt: skip
"""By name. Each is what one client or another really sends."""
