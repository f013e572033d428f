"""The requests that are sent to SGLang's own HTTP server and to the router, to be compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
GENERATE: Final = "/generate"
TOKENIZE: Final = "/v1/tokenize"
DETOKENIZE: Final = "/v1/detokenize"
MODEL: Final = "tiny"
_ASKED: Final[dict[str, Any]] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Name three colors."}],
    "temperature": 0,
    "max_tokens": 12,
}
_TEXT: Final[dict[str, Any]] = {
    "model": MODEL,
    "prompt": "Once upon a time",
    "temperature": 0,
    "max_tokens": 12,
}
_SAMPLING: Final[dict[str, Any]] = {"temperature": 0, "max_new_tokens": 12}
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "now",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Case:
    """One request and what is compared of its two answers."""

    name: str
    path: str
    body: dict[str, Any]
    differs: str = ""
    """Why the answers differ on purpose, in what is compared or in what is not."""
    ignored: frozenset[str] = field(default_factory=frozenset)
    """Aspects that are not compared: the engine has no say in them, or none that can be repeated."""


def _chat(name: str, differs: str = "", /, **fields: Any) -> Case:
    return Case(f"chat: {name}", CHAT, {**_ASKED, **fields}, differs)


def _text(name: str, differs: str = "", /, **fields: Any) -> Case:
    return Case(f"completion: {name}", COMPLETIONS, {**_TEXT, **fields}, differs)


def _native(name: str, differs: str = "", /, *, sampling: Any = None, **fields: Any) -> Case:
    given = {"text": "Once upon a time"} if "input_ids" not in fields else {}
    asked = {**given, **fields, "sampling_params": {**_SAMPLING, **(sampling or {})}}
    return Case(f"generate: {name}", GENERATE, asked, differs)


_COMES: Final = ["o"]
"""A stop string that comes soon in any text of this model."""
_VOWELS: Final = ["a", "e", "i", "o", "u"]
"""Stop strings of which several come within one token."""
_CONTENT: Final = [{"type": "text", "text": "Name three "}, {"type": "text", "text": "colors."}]
_NO_SEED: Final = "SGLang's gRPC interface has no field for a seed"

CASES: Final[tuple[Case, ...]] = (
    _chat("greedy"),
    _chat("a system message", messages=[{"role": "system", "content": "Be brief."},
                                         *_ASKED["messages"]]),
    _chat("text parts", messages=[{"role": "user", "content": _CONTENT}]),
    _chat("several turns", messages=[*_ASKED["messages"],
                                     {"role": "assistant", "content": "Red."},
                                     {"role": "user", "content": "Go on."}]),
    _chat("a result of a call", messages=[
        *_ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"}]),
    _chat("tools", tools=[_TOOL]),
    _chat("tools that must not be called", tools=[_TOOL], tool_choice="none"),
    _chat("thinking switched off", chat_template_kwargs={"enable_thinking": False}),
    _chat("one token", max_tokens=1),
    _chat("max_completion_tokens", max_tokens=None, max_completion_tokens=5),
    _chat("max_completion_tokens over max_tokens", max_tokens=9, max_completion_tokens=4),
    _chat("min_tokens", min_tokens=12),
    _chat("two choices", n=2),
    _chat("top_k 1", temperature=1, top_k=1),
    _chat("a frequency penalty", frequency_penalty=1.5),
    _chat("a presence penalty", presence_penalty=1.5),
    _chat("a repetition penalty", repetition_penalty=1.3),
    _chat("a bias", logit_bias={"100": 100}),
    _chat("ignore_eos", ignore_eos=True),
    _chat("log probabilities", logprobs=True),
    _chat("log probabilities with alternatives", logprobs=True, top_logprobs=3),
    _chat("a stop string that does not come", stop="@@never@@"),
    _chat("several stop strings", stop=["@@never@@", "@@nor this@@"]),
    _chat("a stop string that comes", stop=_COMES, max_tokens=40),
    _chat("a stop string that is kept", stop=_COMES, max_tokens=40, no_stop_trim=True),
    _chat("a stop string in each choice", stop=_COMES, max_tokens=40, n=2),
    _chat("a stop string within min_tokens",
          "the least of tokens holds stop strings off here, as in vLLM; there it does not",
          stop=_COMES, max_tokens=30, min_tokens=30),
    _chat("a stop token", stop_token_ids=[100]),
    _chat("a schema", max_tokens=30, response_format={
        "type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}}),
    _chat("a regular expression", regex="(red|blue)"),
    _chat("a grammar", ebnf='root ::= "yes" | "no"'),
    _chat("any JSON object", max_tokens=20, response_format={"type": "json_object"}),
    _chat("text, as the format", response_format={"type": "text"}),
    _chat("a developer's message", "the role becomes the system's where templates do not know it",
          messages=[{"role": "developer", "content": "Be brief."}, *_ASKED["messages"]]),
    _chat("a user's name", messages=[{"role": "user", "name": "Ann", "content": "Hi"}]),
    _chat("control tokens that are typed", "what people type is text here, unless AsTokens",
          messages=[{"role": "user", "content": "<|im_end|>"}]),
    _chat("log probabilities of two choices", logprobs=True, n=2),
    _chat("log probabilities up to a stop string", logprobs=True, stop=_COMES, max_tokens=40),
    _chat("nulls", stop=None, tools=None, response_format=None, logit_bias=None),
    _chat("an unknown field", no_such_field=1),
    _chat("a user", user="me"),
    _chat("going on with the last message", continue_final_message=True, messages=[
        *_ASKED["messages"], {"role": "assistant", "content": "The colors are"}]),
    _text("greedy"),
    _text("ids", prompt=[100, 200, 300]),
    _text("a list of texts", prompt=["Once upon", "In the beginning"]),
    _text("lists of ids", prompt=[[100, 200], [300, 400, 500]]),
    _text("two choices", n=2),
    _text("two choices of two prompts", prompt=["Once upon", "In the beginning"], n=2),
    _text("the default length", "null means unset here, as at OpenAI's; there it is 400",
          max_tokens=None),
    _text("echo", echo=True),
    _text("log probabilities", "text_offset is counted here, and always -1 there", logprobs=2),
    _text("a stop string that does not come", stop="@@never@@"),
    _text("a stop string that comes", stop=_COMES, max_tokens=40),
    _text("several stop strings in one token",
          "the one that comes first in the text ends it here, the first in the list there",
          stop=_VOWELS, max_tokens=40),
    _text("echo, and a stop string", echo=True, stop=_COMES, max_tokens=40),
    _text("log probabilities of one alternative",
          "text_offset is counted here, and always -1 there", logprobs=1),
    _text("ignore_eos", ignore_eos=True, max_tokens=30),
    _text("a regular expression", regex="(red|blue)"),
    _text("a bias", logit_bias={"100": 100}),
    _text("a penalty", frequency_penalty=1.0),
    _chat("streamed", stream=True),
    _chat("streamed with usage", stream=True, stream_options={"include_usage": True}),
    _chat("streamed choices", stream=True, n=2),
    _chat("streamed log probabilities", stream=True, logprobs=True, top_logprobs=2),
    _chat("streamed up to a stop string", stream=True, stop=_COMES, max_tokens=40),
    _chat("streamed with usage all along", stream=True,
          stream_options={"include_usage": True, "continuous_usage_stats": True}),
    _text("streamed up to a stop string", stream=True, stop=_COMES, max_tokens=40),
    _text("streamed choices of two prompts", stream=True, prompt=["Once upon", "In the"], n=2),
    _text("streamed", stream=True),
    _text("streamed with usage", stream=True, stream_options={"include_usage": True}),
    _native("greedy"),
    _native("ids", input_ids=[100, 200, 300]),
    _native("a list of texts", text=["Once upon", "In the beginning"]),
    _native("a stop string", sampling={"stop": _COMES, "max_new_tokens": 40}),
    _native("two choices", sampling={"n": 2}),
    _native("log probabilities", return_logprob=True, top_logprobs_num=2),
    _native("log probabilities of the prompt", return_logprob=True, logprob_start_len=0),
    _native("streamed", stream=True),
    Case("tokens of a text", TOKENIZE, {"model": MODEL, "prompt": "Once upon a time"}),
    Case("text of tokens", DETOKENIZE, {"model": MODEL, "tokens": [100, 200, 300]}),
    _native("a temperature below zero", sampling={"temperature": -1}),
    _native("an unknown sampling parameter", sampling={"no_such": 1}),
    _chat("no messages", messages=[]),
    _chat("an unknown role", messages=[{"role": "robot", "content": "x"}]),
    _chat("too hot", "OpenAI's range ends at 2", temperature=3),
    _chat("no such probability", top_p=2),
    _chat("no choices", n=0),
    _chat("a bias of no id", logit_bias={"abc": 1}),
    _chat("a bias outside the vocabulary", logit_bias={"99999999": 1}),
    _chat("messages that are a text", messages="Hi"),
    _chat("a message without a role", messages=[{"content": "Hi"}]),
    _chat("arguments that are no JSON", messages=[*_ASKED["messages"], {
        "role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{"}}]}]),
    _chat("more tokens than the context has", max_tokens=9000),
    _chat("a minimum above the maximum", min_tokens=9, max_tokens=3),
    _chat("a choice of a tool that is not there", tools=[_TOOL], tool_choice={
        "type": "function", "function": {"name": "then"}}),
    _chat("a negative limit", max_tokens=-1),
    _chat("a penalty out of range", repetition_penalty=-1),
    _chat("a prompt that is too long", messages=[{"role": "user", "content": "word " * 9000}]),
    _chat("a schema that is none", response_format={
        "type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}),
    _chat("a regular expression that is none", regex="(unclosed"),
    _chat("a seed", _NO_SEED, seed=1, temperature=1),
    _text("an empty prompt", prompt=""),
    _text("a suffix", "a suffix cannot be honoured, so it is refused here and ignored there",
          suffix="end"),
    _text("an id outside the vocabulary", "SGLang's own server accepts it, and its process ends",
          prompt=[99_999_999]),
    _native("no text", "SGLang's own server accepts it, and its process ends", text=""),
)  # fmt: skip
"""Every case; the last two end the reference."""
