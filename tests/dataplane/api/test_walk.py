"""The walk of a request, over real HTTP to the router and real gRPC to simulated workers."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.sim.script import Incident, Play, Rule, Script
from support.router import DEMO_MODEL, RunningRouter, a_worker, manifest, running_router
from support.sim import sim_worker

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "The time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}


def events(body: str) -> list[Any]:
    """Return the JSON of each data frame; ``[DONE]`` stays a string."""
    frames = [frame for frame in body.split("\n\n") if frame]
    assert all(frame.startswith("data: ") for frame in frames)
    return [f if f == "data: [DONE]" else json.loads(f[6:]) for f in frames]


async def chat(router: RunningRouter, **fields: Any) -> Any:
    """Return the router's answer to a chat request."""
    request = {"model": "m", "messages": HELLO, **fields}
    return await router.http.post("/v1/chat/completions", json=request)


@pytest.mark.parametrize("chunk_size", [1, 3, 0])
async def test_a_stream_says_what_the_worker_said(tmp_path: Path, chunk_size: int) -> None:
    """Text over character and chunk borders arrives whole, in order, with one finish and [DONE]."""
    text = "It is 12 °C — 你好, 🙂 né."
    play = Play(text=text, chunk_size=chunk_size)
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await chat(router, stream=True)

    frames = events(answer.text)
    choices = [frame["choices"][0] for frame in frames[:-1]]
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "".join(choice["delta"].get("content", "") for choice in choices) == text
    assert choices[0]["delta"]["role"] == "assistant"
    assert sum("role" in choice["delta"] for choice in choices) == 1
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert {(frame["id"], frame["created"], frame["model"]) for frame in frames[:-1]} == {
        (frames[0]["id"], frames[0]["created"], "m")
    }
    assert frames[-1] == "data: [DONE]"


@pytest.mark.parametrize(
    "text", ["Plain.", f"Let me see.\n{CALL}", "<think>\nhm\n</think>\n\nYes."]
)
async def test_streamed_and_whole_answers_are_equal(tmp_path: Path, text: str) -> None:
    """The same worker output gives the same message, finish and usage in both modes."""
    async with (
        a_worker(Play(text=text)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await chat(router, tools=[TOOL])).json()
        streamed = await chat(
            router, tools=[TOOL], stream=True, stream_options={"include_usage": True}
        )

    *frames, usage, done = events(streamed.text)
    message = _accumulated([frame["choices"][0]["delta"] for frame in frames])
    expected = whole["choices"][0]["message"]
    calls = [call["function"] for call in expected.get("tool_calls", [])]
    assert message["content"] == (expected["content"] or "")
    assert message["reasoning_content"] == expected.get("reasoning_content", "")
    assert message["tool_calls"] == calls
    assert frames[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert all(frame["usage"] is None for frame in frames)
    assert usage["choices"] == []
    # The second request finds its prompt in the worker's prefix cache; all else is the same.
    del usage["usage"]["prompt_tokens_details"], whole["usage"]["prompt_tokens_details"]
    assert usage["usage"] == whole["usage"]
    assert done == "data: [DONE]"


def _accumulated(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """Put a message together as a naive client does: append everything by index."""
    calls: list[dict[str, str]] = []
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(calls)
                assert call["type"] == "function"
                calls.append({"name": "", "arguments": ""})
            function = call["function"]
            calls[call["index"]]["name"] += function.get("name", "")
            calls[call["index"]]["arguments"] += function["arguments"]
    return {
        "content": "".join(delta.get("content", "") for delta in deltas),
        "reasoning_content": "".join(delta.get("reasoning_content", "") for delta in deltas),
        "tool_calls": calls,
    }


async def test_a_tool_call_arrives_as_openai_has_it(tmp_path: Path) -> None:
    """Name and arguments are the model's own bytes; content is what stood before the call."""
    async with (
        a_worker(Play(text=f"Let me see.\n{CALL}")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = (await chat(router, tools=[TOOL])).json()

    choice = answer["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] == "Let me see."
    assert call["function"] == {"name": "now", "arguments": '{"zone": "CET"}'}
    assert call["id"].startswith("call_")
    assert call["type"] == "function"
    assert choice["finish_reason"] == "tool_calls"


async def test_tools_that_were_not_offered_are_not_parsed(tmp_path: Path) -> None:
    """Without tools the markup is text the user asked for."""
    async with (
        a_worker(Play(text=CALL)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        message = (await chat(router)).json()["choices"][0]["message"]

    assert message["content"] == CALL
    assert "tool_calls" not in message


async def test_a_disabled_thought_leaves_the_answer_content(tmp_path: Path) -> None:
    """With enable_thinking false the prompt closes the thought, and the answer is no reasoning."""
    async with (
        a_worker(Play(text="Paris.")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await chat(router, chat_template_kwargs={"enable_thinking": False})

    message = answer.json()["choices"][0]["message"]
    assert message["content"] == "Paris."
    assert "reasoning_content" not in message


async def test_several_choices_keep_apart(tmp_path: Path) -> None:
    """With n = 2 each choice has its own role, text and finish, in both modes."""
    script = Script(rules=(Rule(play=(Play(text="First one."), Play(text="Second."))),))
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await chat(router, n=2)).json()
        streamed = events((await chat(router, n=2, stream=True)).text)[:-1]

    texts = ["", ""]
    for frame in streamed:
        choice = frame["choices"][0]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert [choice["message"]["content"] for choice in whole["choices"]] == [
        "First one.",
        "Second.",
    ]
    assert texts == ["First one.", "Second."]
    assert sum(frame["choices"][0]["finish_reason"] == "stop" for frame in streamed) == 2


async def test_what_reaches_the_worker_is_what_was_asked(tmp_path: Path) -> None:
    """Every sampling field is filled; what the client left out is the model's own default."""
    script = Script(
        rules=(Rule(play=Play(text="ok")),),
        model_info={"default_sampling_params_json": '{"temperature": 0.7, "top_k": 20}'},
    )
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        await chat(router, temperature=0.5, max_tokens=9, max_completion_tokens=7, stop="###")

    (received,) = worker.requests
    sampling = received.sampling_params
    assert sampling.temperature == 0.5
    assert sampling.top_k == 20
    assert sampling.max_new_tokens == 7
    assert list(sampling.stop) == ["###"]
    assert (sampling.top_p, sampling.repetition_penalty, sampling.n) == (1, 1, 1)
    assert received.logprob_start_len == -1
    assert len(received.request_id) == 32


async def test_a_seed_is_said_to_have_no_effect(tmp_path: Path) -> None:
    """The wire cannot carry it, so the answer says so."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        seeded = await chat(router, seed=1)
        plain = await chat(router)

    assert "seed" in seeded.headers["x-sglr-warning"]
    assert "x-sglr-warning" not in plain.headers


async def test_a_stop_string_ends_the_answer_before_it(tmp_path: Path) -> None:
    """Text before the stop string is kept, the string is not shown, the reason is stop."""
    async with (
        a_worker(Play(text="one two STOP three", chunk_size=1)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await chat(router, stop=["STOP"])).json()["choices"][0]
        frames = events((await chat(router, stop=["STOP"], stream=True)).text)[:-1]

    streamed = "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames)
    assert whole["message"]["content"] == "one two "
    assert whole["finish_reason"] == "stop"
    assert streamed == "one two "


@pytest.mark.parametrize("stream", [False, True])
async def test_min_tokens_holds_off_stop_strings_at_every_api(tmp_path: Path, stream: bool) -> None:
    """A stop string within the first tokens ends nothing; the next one does, whatever the API."""
    least = len(Tokenizer.from_dir(DEMO_MODEL).encode("one STOP two"))
    shared = {"model": "m", "stream": stream}
    sampling = {"stop": ["STOP"], "min_tokens": least}
    native = {"stop": ["STOP"], "min_new_tokens": least}
    async with (
        a_worker(Play(text="one STOP two STOP three", chunk_size=2)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        bodies = [
            (await router.http.post(path, json={**shared, **fields})).text
            for path, fields in (
                ("/v1/chat/completions", {"messages": HELLO, **sampling}),
                ("/v1/completions", {"prompt": "Hi", **sampling}),
                ("/generate", {"text": "Hi", "sampling_params": native}),
            )
        ]

    for body in bodies:
        frames = events(body)[:-1] if stream else [json.loads(body)]
        assert "".join(map(said, frames)) == "one STOP two ", body


@pytest.mark.parametrize("chunk_size", [1, 3, 0])
@pytest.mark.parametrize("thought", ["<think>\nLet me see.\n</think>", "<think>\nNo end", ""])
async def test_tokens_of_thoughts_are_counted(
    tmp_path: Path, thought: str, chunk_size: int
) -> None:
    """Markers included, however the worker cuts its chunks, and whichever API tells it."""
    is_cut = thought.endswith("end")
    # As in SGLang the token that ends the answer belongs to the thought that it cuts.
    count = len(Tokenizer.from_dir(DEMO_MODEL).encode(thought)) + is_cut
    answer = "" if is_cut else "\n\nYes."
    play = Play(text=thought + answer, chunk_size=chunk_size, finish="length")
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await chat(router)).json()["usage"]
        options = {"include_usage": True}
        last = events((await chat(router, stream=True, stream_options=options)).text)[-2]["usage"]
        asked = {"model": "m", "input": "Hi", "max_output_tokens": 500}
        other = (await router.http.post("/v1/responses", json=asked)).json()["usage"]

    assert whole["completion_tokens_details"]["reasoning_tokens"] == count
    assert last["completion_tokens_details"] == whole["completion_tokens_details"]
    assert other["output_tokens_details"]["reasoning_tokens"] == count


def said(frame: Any) -> str:
    """Return the text in one frame, or one answer, of any of OpenAI's and SGLang's APIs."""
    if "choices" not in frame:
        return str(frame["text"])
    choice = frame["choices"][0]
    told = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
    return told.get("content") or ""


async def test_the_openai_sdk_streams_and_parses(tmp_path: Path) -> None:
    """The SDK's own accumulation gives text, tool call and usage."""
    async with (
        a_worker(Play(text=f"Let me see.\n{CALL}")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
        sdk.chat.completions.stream(
            model="m",
            messages=HELLO,  # type: ignore[arg-type]  # plain dicts, as users write them
            tools=[TOOL],  # type: ignore[list-item]  # same
            stream_options={"include_usage": True},
        ) as stream,
    ):
        completion = await stream.get_final_completion()

    message = completion.choices[0].message
    assert message.content == "Let me see."
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"zone": "CET"}'
    assert completion.usage is not None
    assert completion.usage.total_tokens > 0


async def test_requests_go_round_the_workers(tmp_path: Path) -> None:
    """Two workers get the same number of requests."""
    async with (
        a_worker(Play(text="a")) as one,
        a_worker(Play(text="b")) as two,
        running_router(tmp_path, manifest(one.address, two.address)) as router,
    ):
        ready = (await router.http.get("/readyz")).json()
        while ready["backends"]["default/backend"]["ready_workers"] < 2:
            ready = (await router.http.get("/readyz")).json()
        for _ in range(6):
            await chat(router)

    assert (len(one.requests), len(two.requests)) == (3, 3)


async def test_every_answer_has_a_request_id(tmp_path: Path) -> None:
    """A client's id is echoed where it is printable; else there is a new one."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        given = await router.http.get("/version", headers={"x-request-id": "mine-1"})
        long = await router.http.get("/version", headers={"x-request-id": "x" * 129})
        stream = await chat(router, stream=True)
        missing = await router.http.get("/nowhere")

    assert given.headers["x-request-id"] == "mine-1"
    assert long.headers["x-request-id"].startswith("req_")
    assert stream.headers["x-request-id"].startswith("req_")
    assert missing.headers["x-request-id"].startswith("req_")


async def test_a_worker_that_dies_under_a_request_is_replaced(tmp_path: Path) -> None:
    """Before the first token another worker answers, and the client notices nothing."""
    dying = Play(text="never", incidents=(Incident(after=0, die="exit"),))
    async with (
        a_worker(dying) as one,
        a_worker(Play(text="alive")) as two,
        running_router(tmp_path, manifest(one.address, two.address)) as router,
    ):
        answers = [(await chat(router)).json() for _ in range(2)]

    assert [a["choices"][0]["message"]["content"] for a in answers] == ["alive", "alive"]
