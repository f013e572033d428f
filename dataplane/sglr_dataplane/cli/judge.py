"""Asks the demo's three questions through the openai SDK and judges the answers.

What is right is read from the script that the simulated workers play, by other means than the
router's: no code of the router is used here.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

import openai
import yaml

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import Choice

_TITLES: Final = ("A streamed chat", "A tool call", "A chat with reasoning")
RIGHT: Final = "right: what the worker's script says, as the openai SDK has understood it"
_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city right now",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city"],
        },
    },
}


@dataclass
class Answer:
    """A chat answer, as a client has put it together from the stream."""

    content: str = ""
    reasoning: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish_reason: str | None = None

    def add(self, choice: Choice) -> None:
        """Add one streamed choice and print what is new in it."""
        delta = choice.delta
        thought: str = getattr(delta, "reasoning_content", None) or ""
        content = delta.content or ""
        if thought:
            _show(_grey(thought if self.reasoning else f"thinks: {thought.lstrip()}"))
        if content:
            _show(content if self.content else content.lstrip())
        self.reasoning += thought
        self.content += content
        for call in delta.tool_calls or ():
            if call.function is None:
                continue
            name, arguments = call.function.name or "", call.function.arguments or ""
            known = self.calls.setdefault(call.index, {"name": "", "arguments": ""})
            known["name"] += name
            known["arguments"] += arguments
            _show(f"\n  calls {name}({arguments}" if name else arguments)
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
            _show(")" if self.calls else "")


def expected(text: str) -> Answer:
    """Return what a client must have received when a model writes *text*."""
    answer = Answer(finish_reason="stop")
    thought = re.match(r"<think>(.*?)</think>", text, re.DOTALL)
    if thought:
        answer.reasoning = thought[1]
        text = text[thought.end() :]
    call = re.search(r"\s*<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)
    if call:
        written = json.loads(call[1])
        arguments = json.dumps(written["arguments"], ensure_ascii=False)
        answer.calls = {0: {"name": written["name"], "arguments": arguments}}
        answer.finish_reason = "tool_calls"
        text = text[: call.start()]
    answer.content = text
    return answer


def ask(client: openai.OpenAI, request: dict[str, Any]) -> Answer:
    """Return the answer to *request*, printed as it comes."""
    answer = Answer()
    # A request in a dict hides from the SDK's types that it asks for a stream.
    answers = cast("openai.Stream[ChatCompletionChunk]", client.chat.completions.create(**request))  # pyright: ignore[reportUnknownMemberType]  # as said
    for chunk in answers:
        for choice in chunk.choices:
            answer.add(choice)
    _show("\n")
    return answer


def curl(base_url: str, request: dict[str, Any]) -> str:
    """Return the shell command that asks the same."""
    body = shlex.quote(json.dumps(request, ensure_ascii=False))
    return f"curl -N {base_url}/v1/chat/completions -H 'Content-Type: application/json' -d {body}"


def main(model: str) -> int:
    """Ask the router whose URL comes on the input, print and judge; return 1 when one is wrong."""
    script = yaml.safe_load(
        (files("sglr_dataplane.cli") / "demo_script.yaml").read_text(encoding="utf-8")
    )
    base_url = sys.stdin.readline().strip()
    if not base_url:
        return 1  # whoever started this ended before there was a router
    client = openai.OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0, timeout=30)
    wrong = 0
    for title, rule in zip(_TITLES, script["rules"], strict=True):
        request: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": rule["when"]["user"]}],
            "stream": True,
        }
        if "<tool_call>" in rule["play"]["text"]:
            request["tools"] = [_WEATHER]
        print(f"--- {title}\n\n{curl(base_url, request)}\n")
        try:
            answer = ask(client, request)
        except openai.OpenAIError as error:
            print(f"\nWRONG: {error}\n")
            wrong += 1
            continue
        right = expected(rule["play"]["text"])
        wrong += answer != right
        print(f"\n{RIGHT if answer == right else f'WRONG: expected {right}, got {answer}'}\n")
    return int(wrong > 0)


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _grey(text: str) -> str:
    return f"\x1b[90m{text}\x1b[0m" if text and sys.stdout.isatty() else text


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)  # Ctrl-C reaches every process of the demo
