"""Completions: every form of a prompt, echo, log probabilities, several choices, streamed or not."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.sim.script import Play, Rule, Script, When
from sglr_dataplane.vocab import Vocabulary
from support.router import DEMO_MODEL, RunningRouter, a_worker, manifest, running_router
from support.sim import sim_worker

VOCABULARY = Vocabulary.from_dir(DEMO_MODEL)
TOKENIZER = Tokenizer.from_dir(DEMO_MODEL)


async def complete(router: RunningRouter, **fields: Any) -> Any:
    """Return the answer to a completion request."""
    return await router.http.post("/v1/completions", json={"model": "m", "prompt": "Hi", **fields})


def chunks(body: str) -> list[Any]:
    """Return the chunks of a stream, which must end with [DONE]."""
    *frames, done, rest = body.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame[6:]) for frame in frames]


def texts(parts: list[Any], count: int) -> list[str]:
    """Return the text of each of *count* choices of a stream."""
    found = [""] * count
    for part in parts:
        for choice in part["choices"]:
            found[choice["index"]] += choice["text"]
    return found


async def test_a_text_is_gone_on_with(tmp_path: Path) -> None:
    """The prompt goes out as it is, without a template; the answer has OpenAI's shape."""
    async with (
        a_worker(Play(text=" there <think>no</think>")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = (await complete(router, max_tokens=50)).json()

    (choice,) = answer["choices"]
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert choice["text"] == " there <think>no</think>"
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    assert VOCABULARY.decode(worker.requests[0].tokenized.input_ids) == "Hi"


async def test_unset_max_tokens_is_sixteen(tmp_path: Path) -> None:
    """OpenAI's default for completions alone."""
    async with (
        a_worker(Play(text="word " * 40)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = (await complete(router)).json()

    assert worker.requests[0].sampling_params.max_new_tokens == 16
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 16


SCRIPT = Script(
    rules=(
        Rule(when=When(prompt="one"), play=(Play(text="1a"), Play(text="1b"))),
        Rule(when=When(prompt="two"), play=(Play(text="2a"), Play(text="2b"))),
    )
)


@pytest.mark.parametrize("by_ids", [False, True])
async def test_choices_are_numbered_by_prompt_and_n(tmp_path: Path, by_ids: bool) -> None:
    """Choice i of prompt p has index p * n + i, as text or ids, in both modes; prompts count once."""
    prompt: list[Any] = ["one", "two!"]
    if by_ids:
        prompt = [list(TOKENIZER.encode(each)) for each in prompt]
    async with (
        sim_worker(SCRIPT, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await complete(router, prompt=prompt, n=2)).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        *parts, last = chunks((await complete(router, prompt=prompt, n=2, **options)).text)

    expected = ["1a", "1b", "2a", "2b"]
    assert [(c["index"], c["text"]) for c in whole["choices"]] == list(enumerate(expected))
    assert texts(parts, 4) == expected
    finishes = [c["index"] for p in parts for c in p["choices"] if c["finish_reason"]]
    assert sorted(finishes) == [0, 1, 2, 3]
    asked = sum(len(TOKENIZER.encode(each)) for each in ("one", "two!"))
    assert whole["usage"]["prompt_tokens"] == last["usage"]["prompt_tokens"] == asked
    assert whole["usage"]["completion_tokens"] == last["usage"]["completion_tokens"]


async def test_a_list_of_ids_is_one_prompt(tmp_path: Path) -> None:
    """Ids go to the worker as they are."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = (await complete(router, prompt=[5, 6, 7])).json()

    assert list(worker.requests[0].tokenized.input_ids) == [5, 6, 7]
    assert len(answer["choices"]) == 1


async def test_echo_puts_the_prompt_first(tmp_path: Path) -> None:
    """Text and log probabilities: the first token has none, offsets count from the text's start."""
    async with (
        a_worker(Play(text=" b é")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        asked = {"prompt": "Say a", "echo": True, "logprobs": 1}
        whole = (await complete(router, **asked)).json()["choices"][0]
        parts = chunks((await complete(router, **asked, stream=True)).text)

    logprobs = whole["logprobs"]
    assert whole["text"] == "Say a b é"
    assert texts(parts, 1) == ["Say a b é"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert len({len(column) for column in logprobs.values()}) == 1
    visible = "Say a b é"
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if "\ufffd" not in token and token != "<|im_end|>":
            assert visible[offset : offset + len(token)] == token
    streamed = [part["choices"][0]["logprobs"] for part in parts]
    for column, values in logprobs.items():
        assert [v for each in streamed if each for v in each[column]] == values


async def test_the_prompt_alone_can_be_scored(tmp_path: Path) -> None:
    """max_tokens 0 with echo: the prompt and its log probabilities, and nothing is written."""
    async with (
        a_worker(Play(text="never")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = (await complete(router, max_tokens=0, echo=True, logprobs=0)).json()

    choice = answer["choices"][0]
    assert worker.requests[0].sampling_params.HasField("max_new_tokens")
    assert worker.requests[0].sampling_params.max_new_tokens == 0
    assert (choice["text"], choice["finish_reason"]) == ("Hi", "length")
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]
    assert choice["logprobs"]["top_logprobs"] is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [[1, "a"]]}, "prompt[0][1]"),
        ({"prompt": [10**9]}, "prompt[0]"),
        ({"prompt": [[1], [-1]]}, "prompt[1][0]"),
        ({"prompt": ["a"] * 513}, "prompt"),
        ({"prompt": ["a"] * 100, "n": 11}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 9000}, "prompt"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
async def test_what_cannot_be_is_refused(
    shared: RunningRouter, fields: dict[str, Any], param: str
) -> None:
    """With 400, and the name of what is wrong."""
    answer = await complete(shared, **fields)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_one_failing_prompt_fails_the_answer(tmp_path: Path) -> None:
    """No half answers: the others are cancelled, and the client hears of the failure."""
    script = Script(
        rules=(
            Rule(when=When(prompt="one"), play=Play(text="fine " * 50, delay="50ms")),
            Rule(when=When(prompt="two"), play=Play(text="half", complete="missing")),
        )
    )
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await complete(router, prompt=["one", "two"], max_tokens=200)

    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "truncated_stream"


async def test_the_sdk_reads_completions(tmp_path: Path) -> None:
    """openai-python's typed answer, streamed and whole."""
    async with (
        a_worker(Play(text=" you")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
    ):
        whole = await sdk.completions.create(model="m", prompt="Hi", logprobs=2)
        stream = await sdk.completions.create(model="m", prompt="Hi", stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])

    assert whole.choices[0].text == text == " you"
    assert whole.choices[0].logprobs is not None
    assert whole.choices[0].logprobs.tokens
