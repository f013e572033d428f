"""What is asked: parameters, bodies and paths; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict, Unpack

import msgspec

from sglr_client.limits import Timeouts

JsonObject = Mapping[str, Any]


class SamplingParameters(TypedDict, total=False):
    """What chats and completions have in common; a parameter that is None is not sent."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    n: int | None
    stop: str | Sequence[str] | None
    seed: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[str, float] | None
    user: str | None
    stream_options: JsonObject | None


class ChatParameters(SamplingParameters, total=False):
    """What a chat may say besides its model and messages."""

    max_completion_tokens: int | None
    logprobs: bool | None
    top_logprobs: int | None
    tools: Sequence[JsonObject] | None
    tool_choice: str | JsonObject | None
    parallel_tool_calls: bool | None
    response_format: JsonObject | None
    reasoning_effort: str | None


class ChatRequest(ChatParameters):
    """A whole chat, as an entry of a batch; further keys are sent as they are."""

    model: str
    messages: Sequence[JsonObject]


class CompletionParameters(SamplingParameters, total=False):
    """What a completion may say besides its model and prompt."""

    echo: bool | None
    suffix: str | None
    logprobs: int | None
    best_of: int | None


class EmbeddingParameters(TypedDict, total=False):
    """What an embedding may say besides its model and input."""

    dimensions: int | None
    encoding_format: Literal["float", "base64"] | None
    user: str | None


Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


class Options(TypedDict, total=False):
    """How one call differs from its client's ways.

    Attributes:
        extra_body: Further keys of the body, for an engine's extensions; they win.
        headers: Further headers; they win.
        timeout: Instead of the client's.
    """

    extra_body: JsonObject | None
    headers: Mapping[str, str] | None
    timeout: float | Timeouts | None


class ChatArguments(ChatParameters, Options, total=False):
    """The keywords of ``chat`` and ``chat_stream``."""


class CompletionArguments(CompletionParameters, Options, total=False):
    """The keywords of ``completions`` and ``completions_stream``."""


class EmbeddingArguments(EmbeddingParameters, Options, total=False):
    """The keywords of ``embeddings``."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the API, ready to be sent as often as needed.

    Attributes:
        operation: For metrics: ``chat``, ``completions``, ``embeddings``, ``models``, ``post``.
        model: For metrics; ``""`` when the call names none.
        path: Below the base URL, such as ``/v1/models``.
        body: JSON; None: a GET without body.
        choices: Answers a stream must finish.
        headers: Besides the client's.
        timeout: None: the client's.
    """

    operation: str
    path: str
    model: str = ""
    body: bytes | None = None
    stream: bool = False
    choices: int = 1
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: Timeouts | None = None


_CHAT: Final = "/v1/chat/completions"
_COMPLETIONS: Final = "/v1/completions"


def chat(
    model: str,
    messages: Sequence[JsonObject],
    *,
    stream: bool = False,
    **arguments: Unpack[ChatArguments],
) -> Call:
    """Return the call of a chat."""
    return _call("chat", _CHAT, {"model": model, "messages": messages}, arguments, stream=stream)


def completions(
    model: str, prompt: Prompt, *, stream: bool = False, **arguments: Unpack[CompletionArguments]
) -> Call:
    """Return the call of a completion."""
    body: dict[str, Any] = {"model": model, "prompt": prompt}
    return _call("completions", _COMPLETIONS, body, arguments, stream=stream)


def embeddings(model: str, given: Prompt, **arguments: Unpack[EmbeddingArguments]) -> Call:
    """Return the call for the embeddings of what is *given*."""
    return _call("embeddings", "/v1/embeddings", {"model": model, "input": given}, arguments)


def models(timeout: float | Timeouts | None = None) -> Call:
    """Return the call for the list of models."""
    return Call("models", "/v1/models", timeout=_timeout(timeout))


def post(path: str, body: JsonObject, options: Options) -> Call:
    """Return the call of *body* to *path*."""
    return _call("post", path, body, options)


def _call(
    operation: str, path: str, body: JsonObject, arguments: Any, *, stream: bool = False
) -> Call:
    rest = dict(arguments)
    extra: JsonObject = rest.pop("extra_body", None) or {}
    headers: Mapping[str, str] = rest.pop("headers", None) or {}
    timeout = _timeout(rest.pop("timeout", None))
    # None means "not set"; some servers read a null as a value.
    whole = {key: value for key, value in {**body, **rest}.items() if value is not None}
    whole.update(extra)
    if stream:
        whole["stream"] = True
    return Call(
        operation,
        path,
        model=str(whole.get("model", "")),
        body=msgspec.json.encode(whole),
        stream=stream,
        choices=_choices(whole),
        headers=headers,
        timeout=timeout,
    )


def _choices(body: JsonObject) -> int:
    n = body.get("n")
    return (n if isinstance(n, int) else 1) * _prompts(body.get("prompt"))


def _prompts(prompt: Any) -> int:
    if prompt is None or isinstance(prompt, str):
        return 1
    # A list of texts or of id lists is several prompts, a list of ids is one.
    return sum(not isinstance(entry, int) for entry in prompt) or 1


def _timeout(timeout: float | Timeouts | None) -> Timeouts | None:
    return None if timeout is None else Timeouts.of(timeout)


def batch_entry(request: JsonObject) -> Call:
    """Return the call of one entry of a batch: a chat's body, not streamed.

    Raises:
        ValueError: It has no model or no messages.
    """
    missing = [name for name in ("model", "messages") if name not in request]
    if missing:
        raise ValueError(f"A batch's request has no {missing[0]!r}; it has {sorted(request)}.")
    rest = {key: value for key, value in request.items() if key not in {"model", "messages"}}
    rest["stream"] = False
    return chat(request["model"], request["messages"], extra_body=rest)


def health(timeout: float) -> Call:
    """Return the call that asks whether the server is up."""
    return Call("health", "/health", timeout=Timeouts.of(timeout))
