"""OpenAI's Responses over the same walk, read by OpenAI's own SDK."""

from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play
from sglr_dataplane.vocab import Vocabulary
from support.router import DEMO_MODEL, RunningRouter, a_worker, manifest, running_router

CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
TOOL: Any = {
    "type": "function",
    "name": "now",
    "description": "The time",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
}


def prompt_of(worker: Any) -> str:
    """Return the text of the last prompt that reached *worker*."""
    return Vocabulary.from_dir(DEMO_MODEL).decode(worker.requests[-1].tokenized.input_ids)


def nameless(response: Any) -> dict[str, Any]:
    """Return what *response* says, without the ids that no two answers share."""
    said: dict[str, Any] = response.model_dump(exclude={"id", "created_at"}, warnings=False)
    for item in said["output"]:
        item.pop("id")
        item.pop("call_id", None)
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return said


@pytest.mark.parametrize(
    ("text", "kinds", "shown"),
    [
        ("Plain é.", ["message"], "Plain é."),
        (f"Let me see.\n{CALL}", ["message", "function_call"], "Let me see."),
        (f"<think>\nhm\n</think>\n\n{CALL}", ["reasoning", "function_call"], ""),
    ],
)
async def test_streamed_and_whole_responses_are_equal(
    tmp_path: Path, text: str, kinds: list[str], shown: str
) -> None:
    """The SDK's own accumulation of the events is the response in one piece."""
    asked: dict[str, Any] = {"model": "m", "input": "Hello", "tools": [TOOL]}
    async with (
        a_worker(Play(text=text)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
    ):
        await sdk.responses.create(**asked)  # later prompts are found in the worker's cache
        whole = await sdk.responses.create(**asked, include=["message.output_text.logprobs"])
        async with sdk.responses.stream(
            **asked, include=["message.output_text.logprobs"]
        ) as stream:
            numbers = [event.sequence_number async for event in stream]
            streamed = await stream.get_final_response()

    assert nameless(whole) == nameless(streamed)
    assert [item.type for item in whole.output] == kinds
    assert whole.output_text == shown
    assert (whole.status, whole.object) == ("completed", "response")
    assert numbers == list(range(len(numbers)))
    assert whole.usage is not None
    assert whole.usage.input_tokens == len(worker.requests[-1].tokenized.input_ids)
    for item in whole.output:
        if item.type == "function_call":
            assert (item.name, item.arguments) == ("now", '{"zone": "CET"}')


async def test_items_become_the_prompt(tmp_path: Path) -> None:
    """Instructions, a call and its output reach the template as from chat completions."""
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "What time?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Looking.", "annotations": []}]},
        {"type": "function_call", "call_id": "call_1", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "12:00"},
    ]  # fmt: skip
    same: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What time?"},
        {"role": "assistant", "content": "Looking.", "reasoning_content": "hm", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
    ]  # fmt: skip
    function: Any = {name: TOOL[name] for name in ("name", "description", "parameters")}
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
    ):
        await sdk.responses.create(model="m", instructions="Be brief.", input=items, tools=[TOOL])
        theirs = prompt_of(worker)
        await sdk.chat.completions.create(
            model="m", messages=same, tools=[{"type": "function", "function": function}]
        )
        ours = prompt_of(worker)

    assert theirs == ours
    assert "12:00" in theirs


async def test_a_limit_makes_a_response_incomplete(tmp_path: Path) -> None:
    """Status and reason say so, in both modes."""
    asked: dict[str, Any] = {"model": "m", "input": "Hello", "max_output_tokens": 2}
    async with (
        a_worker(Play(text="one two three four")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
    ):
        whole = await sdk.responses.create(**asked)
        events = [event async for event in await sdk.responses.create(**asked, stream=True)]

    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.status == "incomplete"


async def test_typed_output_follows_its_schema(tmp_path: Path) -> None:
    """text.format becomes the worker's grammar; the response repeats what was asked."""
    form: Any = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True}
    async with (
        a_worker(Play(text="{}")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
    ):
        response = await sdk.responses.create(
            model="m",
            input="Hello",
            text={"format": form},
            metadata={"k": "v"},
            store=True,
        )

    assert worker.requests[0].sampling_params.json_schema == '{"type":"object"}'
    assert response.metadata == {"k": "v"}
    assert response.text is not None
    assert response.model_dump(warnings=False)["store"] is False


async def test_a_stream_that_fails_says_so(tmp_path: Path) -> None:
    """response.failed, with the reason and with what came before; nothing follows."""
    async with (
        a_worker(Play(text="half an ans", complete="missing")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
    ):
        stream = await sdk.responses.create(model="m", input="Hello", stream=True)
        events: list[Any] = [event async for event in stream]

    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    assert events[-1].response.output[0].content[0].text == "half an ans"
    assert events[-1].response.error.code == "truncated_stream"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"temperature": 9}, "temperature"),
        ({"reasoning": {"effort": "much"}}, "reasoning_effort"),
    ],
)
async def test_what_needs_state_or_cannot_be_is_refused(
    shared: RunningRouter, fields: dict[str, Any], param: str
) -> None:
    """400 with the field that asks for it."""
    answer = await shared.http.post("/v1/responses", json={"model": "m", "input": "Hi", **fields})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
