"""The JSON of right answers and of errors; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sglr_client.testing.plays import Fail, Say

_CREATED: Final = 1_700_000_000
_DIMENSIONS: Final = 8


def frame(document: object) -> bytes:
    """Return *document* as one event of a stream."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def chat(request: dict[str, Any], say: Say) -> bytes:
    """Return the whole answer to a chat."""
    message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
    if say.reasoning:
        message["reasoning_content"] = say.reasoning
    if say.calls:
        message["tool_calls"] = list(_calls(say))
    choices = [
        {"index": index, "message": message, "finish_reason": _finish_reason(say)}
        for index in range(request.get("n") or 1)
    ]
    return msgspec.json.encode(
        {**_head(request, "chat.completion"), "choices": choices, "usage": _usage(request, say)}
    )


def chat_frames(request: dict[str, Any], say: Say) -> Iterator[bytes]:
    """Yield the frames of a streamed chat, ``[DONE]`` last."""
    head = _head(request, "chat.completion.chunk")
    for index in range(request.get("n") or 1):
        for delta in _deltas(say):
            yield frame(
                {**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
            )
        last: dict[str, Any] = {"index": index, "delta": {}, "finish_reason": _finish_reason(say)}
        yield frame({**head, "choices": [last]})
    yield from _tail(head, request, say)


def completion(request: dict[str, Any], say: Say) -> bytes:
    """Return the whole answer to a completion."""
    choice = {"index": 0, "text": say.text, "finish_reason": _finish_reason(say)}
    return msgspec.json.encode(
        {**_head(request, "text_completion"), "choices": [choice], "usage": _usage(request, say)}
    )


def completion_frames(request: dict[str, Any], say: Say) -> Iterator[bytes]:
    """Yield the frames of a streamed completion, ``[DONE]`` last."""
    head = _head(request, "text_completion")
    for word in _words(say.text):
        yield frame({**head, "choices": [{"index": 0, "text": word, "finish_reason": None}]})
    last = {"index": 0, "text": "", "finish_reason": _finish_reason(say)}
    yield frame({**head, "choices": [last]})
    yield from _tail(head, request, say)


def embeddings(request: dict[str, Any]) -> bytes:
    """Return a vector for each input: its place, then zeros."""
    given = request.get("input")
    count = len(given) if isinstance(given, list) and given else 1  # pyright: ignore[reportUnknownArgumentType]  # JSON
    vectors = [
        {
            "object": "embedding",
            "index": place,
            "embedding": [float(place), *[0.0] * (_DIMENSIONS - 1)],
        }
        for place in range(count)
    ]
    return msgspec.json.encode(
        {
            "object": "list",
            "model": request.get("model", ""),
            "data": vectors,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
    )


def models(ids: list[str]) -> bytes:
    """Return the list of models."""
    entries = [{"id": id, "object": "model", "created": _CREATED, "owned_by": "mock"} for id in ids]
    return msgspec.json.encode({"object": "list", "data": entries})


def error(fail: Fail) -> bytes:
    """Return the body of an error."""
    told = {"message": fail.message, "type": fail.type, "param": None, "code": fail.code}
    return msgspec.json.encode({"error": told})


def _head(request: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": "mock-1",
        "object": kind,
        "created": _CREATED,
        "model": request.get("model", ""),
    }


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text)


def _calls(say: Say) -> Iterator[dict[str, Any]]:
    for place, (name, arguments) in enumerate(say.calls):
        function = {"name": name, "arguments": arguments}
        yield {"id": f"call_{place}", "type": "function", "function": function}


def _deltas(say: Say) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for word in _words(say.reasoning):
        yield {"reasoning_content": word}
    for word in _words(say.text):
        yield {"content": word}
    for place, call in enumerate(_calls(say)):
        yield {"tool_calls": [{"index": place, **call}]}


def _tail(head: dict[str, Any], request: dict[str, Any], say: Say) -> Iterator[bytes]:
    options: dict[str, Any] = request.get("stream_options") or {}
    if options.get("include_usage"):
        yield frame({**head, "choices": [], "usage": _usage(request, say)})
    yield b"data: [DONE]\n\n"


def _finish_reason(say: Say) -> str:
    return say.finish_reason or ("tool_calls" if say.calls else "stop")


def _usage(request: dict[str, Any], say: Say) -> dict[str, int]:
    """Return counts in which a word is a token."""
    prompt = len(str(request.get("messages") or request.get("prompt") or "").split())
    answer = (request.get("n") or 1) * len(_words(say.reasoning) + _words(say.text))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
    }
