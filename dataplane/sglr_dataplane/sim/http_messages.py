"""The JSON that a worker of HTTP speaks, in SGLang's words or in vLLM's. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from sglr_dataplane.sim.shapes import list_of, object_of

Flavour = Literal["sglang", "vllm"]

_CREATED = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request is told, as far as every API tells it."""

    id: str
    model: str
    words: tuple[str, ...]
    prompt_tokens: int
    finish: str

    @property
    def usage(self) -> dict[str, int]:
        """The counters; a word is a token."""
        completion = len(self.words)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
        }


def words_of(text: str) -> tuple[str, ...]:
    """Return *text* in the pieces that are streamed: words, each with the blanks before it."""
    return tuple(re.findall(r"\s*\S+|\s+$", text))


def prompt_of(body: dict[str, Any]) -> str:
    """Return what a request asks, as text: its messages' contents, its prompt, or its input."""
    if "messages" not in body:
        return str(body.get("prompt") or body.get("text") or body.get("input") or "")
    contents = (object_of(message).get("content") for message in list_of(body["messages"]))
    return "\n".join(map(_text, contents))


def last_words(body: dict[str, Any]) -> str:
    """Return the last user message, or the whole prompt where there are none."""
    messages = [object_of(message) for message in list_of(body.get("messages"))]
    said = [_text(each.get("content")) for each in messages if each.get("role") == "user"]
    return said[-1] if said else prompt_of(body)


def whole(path: str, answer: Answer) -> bytes:
    """Return the answer in one piece."""
    text = "".join(answer.words)
    if path == "/generate":
        return _json({"text": text, "meta_info": _meta(answer, answer.finish)})
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": answer.finish}
    if path == "/v1/chat/completions":
        choice["message"] = {"role": "assistant", "content": text, "tool_calls": None}
        return _json(
            {**_head(answer, "chat.completion"), "choices": [choice], "usage": answer.usage}
        )
    choice["text"] = text
    return _json({**_head(answer, "text_completion"), "choices": [choice], "usage": answer.usage})


@dataclass(frozen=True, slots=True)
class Events:
    """A stream's events, without ``[DONE]``."""

    opening: tuple[bytes, ...]
    words: tuple[bytes, ...]
    """One for each word."""
    closing: tuple[bytes, ...]


def events(path: str, answer: Answer, *, with_usage: bool) -> Events:
    """Return the events of a streamed answer."""
    if path == "/generate":
        return Events((), _native_events(answer), ())
    is_chat = path == "/v1/chat/completions"
    head = _head(answer, "chat.completion.chunk" if is_chat else "text_completion")

    def event(said: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish}
        return _event({**head, "choices": [choice]})

    usage = (_event({**head, "choices": [], "usage": answer.usage}),) if with_usage else ()
    if is_chat:
        role = event({"delta": {"role": "assistant", "content": ""}})
        words = tuple(event({"delta": {"content": word}}) for word in answer.words)
        return Events((role,), words, (event({"delta": {}}, answer.finish), *usage))
    words = tuple(event({"text": word}) for word in answer.words)
    return Events((), words, (event({"text": ""}, answer.finish), *usage))


def models(flavour: Flavour, name: str, length: int) -> bytes:
    """Return the list of models."""
    card = {"id": name, "object": "model", "created": _CREATED, "owned_by": flavour, "root": name}
    card |= {"parent": None, "max_model_len": length}
    return _json({"object": "list", "data": [card]})


def error(flavour: Flavour, status: int, message: str) -> bytes:
    """Return an error as the flavour tells it: SGLang's is flat, vLLM's is nested."""
    kind = "BadRequestError" if status < 500 else "InternalServerError"  # noqa: PLR2004  # HTTP's border
    told = {"message": message, "type": kind, "param": None, "code": status}
    return _json({"object": "error", **told} if flavour == "sglang" else {"error": told})


def error_event(message: str, status: int) -> bytes:
    """Return what both send when a stream fails."""
    told = {"message": message, "type": "InternalServerError", "param": None, "code": status}
    return _event({"error": told})


def _native_events(answer: Answer) -> tuple[bytes, ...]:
    """Return SGLang's own events: each repeats all the text so far, the last says why it ended."""
    told: list[bytes] = []
    for count in range(1, len(answer.words) + 1):
        finish = answer.finish if count == len(answer.words) else None
        text = "".join(answer.words[:count])
        told.append(_event({"text": text, "meta_info": _meta(answer, finish, count)}))
    return tuple(told)


def _meta(answer: Answer, finish: str | None, count: int | None = None) -> dict[str, Any]:
    return {
        "id": answer.id,
        "finish_reason": {"type": finish} if finish else None,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": len(answer.words) if count is None else count,
        "cached_tokens": 0,
    }


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": _CREATED, "model": answer.model}


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(object_of(part).get("text") or "") for part in list_of(content))


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + _json(document) + b"\n\n"


def _json(document: object) -> bytes:
    return msgspec.json.encode(document)
