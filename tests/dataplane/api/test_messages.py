"""Anthropic's Messages over the same walk, read by Anthropic's own SDK."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play
from sglr_dataplane.vocab import Vocabulary
from support.router import DEMO_MODEL, SECONDS, RunningRouter, a_worker, manifest, running_router

anthropic: Any = pytest.importorskip("anthropic")

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
TOOL: Any = {
    "name": "now",
    "description": "The time",
    "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}},
    "cache_control": {"type": "ephemeral"},
}


@asynccontextmanager
async def claude(router: RunningRouter) -> AsyncGenerator[Any]:
    """Anthropic's SDK pointed at the router; it does not retry."""
    async with anthropic.AsyncAnthropic(
        base_url=router.url, api_key="any", max_retries=0, timeout=SECONDS
    ) as sdk:
        yield sdk


def prompt_of(worker: Any) -> str:
    """Return the text of the last prompt that reached *worker*."""
    return Vocabulary.from_dir(DEMO_MODEL).decode(worker.requests[-1].tokenized.input_ids)


@pytest.mark.parametrize(
    ("text", "kinds", "reason"),
    [
        ("Plain é.", ["text"], "end_turn"),
        (f"Let me see.\n{CALL}", ["text", "tool_use"], "tool_use"),
        (f"<think>\nhm\n</think>\n\nYes.\n{CALL}", ["thinking", "text", "tool_use"], "tool_use"),
    ],
)
async def test_streamed_and_whole_messages_are_equal(
    tmp_path: Path, text: str, kinds: list[str], reason: str
) -> None:
    """The SDK's own accumulation of the events is the message in one piece."""
    asked: dict[str, Any] = {
        "model": "m",
        "max_tokens": 200,
        "messages": HELLO,
        "tools": [TOOL],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    async with (
        a_worker(Play(text=text)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        claude(router) as sdk,
    ):
        await sdk.messages.create(**asked)  # later prompts are found in the worker's cache
        whole = await sdk.messages.create(**asked)
        async with sdk.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()

    ours, theirs = whole.model_dump(), streamed.model_dump()
    for message in (ours, theirs):
        message["id"] = None
        for block in message["content"]:
            block.pop("parsed_output", None)
            if block["type"] == "tool_use":
                assert block.pop("id")
                assert (block["name"], block["input"]) == ("now", {"zone": "CET"})
    assert ours["content"] == theirs["content"]
    assert [block["type"] for block in ours["content"]] == kinds
    assert ours["stop_reason"] == theirs["stop_reason"] == reason
    assert whole.usage.output_tokens == streamed.usage.output_tokens > 0
    assert whole.usage.cache_read_input_tokens == streamed.usage.cache_read_input_tokens
    read = (whole.usage.cache_read_input_tokens or 0) + whole.usage.input_tokens
    assert read == len(worker.requests[-1].tokenized.input_ids)


async def test_a_history_becomes_the_prompt(tmp_path: Path) -> None:
    """System, thought, call and its result reach the template as they would from OpenAI's API."""
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "What time?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {"zone": "CET"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "12:00"}],
                },
                {"type": "text", "text": "Thanks"},
            ],
        },
    ]
    same: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What time?"},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "toolu_1",
                    "type": "function",
                    "function": {"name": "now", "arguments": '{"zone":"CET"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "12:00"},
        {"role": "user", "content": "Thanks"},
    ]
    function = {"name": "now", "description": "The time", "parameters": TOOL["input_schema"]}
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        claude(router) as sdk,
    ):
        await sdk.messages.create(
            model="m",
            max_tokens=5,
            system=[{"type": "text", "text": "Be brief."}],
            messages=messages,
            tools=[TOOL],
        )
        theirs = prompt_of(worker)
        counted = await sdk.messages.count_tokens(
            model="m",
            system=[{"type": "text", "text": "Be brief."}],
            messages=messages,
            tools=[TOOL],
        )
        await router.http.post(
            "/v1/chat/completions",
            json={
                "model": "m",
                "messages": same,
                "tools": [{"type": "function", "function": function}],
                "thinking": {"type": "disabled"},
            },
        )
        ours = prompt_of(worker)

    assert theirs == ours
    assert "12:00" in theirs
    assert counted.input_tokens == len(worker.requests[0].tokenized.input_ids)


async def test_a_stop_sequence_is_named(tmp_path: Path) -> None:
    """The reason is stop_sequence, with the string, in both modes; a limit is max_tokens."""
    async with (
        a_worker(Play(text="one STOP two")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        claude(router) as sdk,
    ):
        asked: dict[str, Any] = {"model": "m", "max_tokens": 50, "messages": HELLO}
        whole = await sdk.messages.create(**asked, stop_sequences=["STOP"])
        async with sdk.messages.stream(**asked, stop_sequences=["STOP"]) as stream:
            streamed = await stream.get_final_message()
        cut = await sdk.messages.create(**{**asked, "max_tokens": 1})

    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "STOP")
        assert message.content[0].type == "text"
        assert message.content[0].text == "one "
    assert cut.stop_reason == "max_tokens"


async def test_the_assistants_last_turn_is_gone_on_with(tmp_path: Path) -> None:
    """What the client put into its mouth ends the prompt."""
    messages: list[Any] = [*HELLO, {"role": "assistant", "content": "The answer is"}]
    async with (
        a_worker(Play(text=" 42")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        claude(router) as sdk,
    ):
        message = await sdk.messages.create(model="m", max_tokens=9, messages=messages)

    assert prompt_of(worker).endswith("The answer is")
    assert message.content[0].type == "text"
    assert message.content[0].text == " 42"


async def test_a_required_tool_and_a_schema_become_grammars(tmp_path: Path) -> None:
    """tool_choice any, and output_config.format, constrain the worker."""
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {}}}}
    async with (
        a_worker(Play(text="{}")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        asked = {"model": "m", "max_tokens": 5, "messages": HELLO}
        choice = {"type": "any", "disable_parallel_tool_use": True}
        for more in (
            {"tools": [TOOL], "tool_choice": choice},
            {"output_config": {"format": form}},
        ):
            answer = await router.http.post("/v1/messages", json={**asked, **more})
            assert answer.status_code == 200

    tools, schema = (request.sampling_params for request in worker.requests)
    assert '"at_least_one":true,"stop_after_first":true' in tools.structural_tag
    assert schema.json_schema == '{"type":"object","properties":{"a":{}}}'


async def test_errors_have_anthropics_shape(tmp_path: Path) -> None:
    """Before a stream as JSON that the SDK raises by status; within one as an error event."""
    async with (
        a_worker(Play(text="half an ans", complete="missing")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        claude(router) as sdk,
    ):
        with pytest.raises(anthropic.NotFoundError) as unknown:
            await sdk.messages.create(model="nope", max_tokens=5, messages=HELLO)
        with pytest.raises(anthropic.APIStatusError, match="finished"):
            async with sdk.messages.stream(model="m", max_tokens=50, messages=HELLO) as stream:
                await stream.get_final_message()

    assert unknown.value.body == {
        "type": "error",
        "error": {
            "type": "not_found_error",
            "message": "The model 'nope' does not exist here, or not for this key; "
            "GET /v1/models lists those that do.",
        },
    }


IMAGE = {"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "'image'"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"temperature": 7}, "temperature"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    shared: RunningRouter, fields: dict[str, Any], words: str
) -> None:
    """400 in Anthropic's shape, with the field in the sentence."""
    asked = {"model": "m", "max_tokens": 5, "messages": HELLO, **fields}
    answer = await shared.http.post("/v1/messages?beta=true", json=asked)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert words in answer.json()["error"]["message"]
