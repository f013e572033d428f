"""OpenAI's Responses, the part that keeps no state: the same walk in other words."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from sglr_dataplane.api.faults import named_event
from sglr_dataplane.api.logprobs import chat_logprobs
from sglr_dataplane.api.replies import total_usage
from sglr_dataplane.api.schema import ChatRequest
from sglr_dataplane.api.schema.responses import decode_responses
from sglr_dataplane.output.deltas import CallArguments, CallStart, Finished, Reasoning, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sglr_dataplane.api.answer import News, WholeChoice
    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import TokenLogprob, Usage
    from sglr_dataplane.output.deltas import Delta
    from sglr_dataplane.recipe import PromptIds, Recipe

    Event = dict[str, Any]


class ResponsesDialect:
    """``POST /v1/responses``."""

    def decode(self, body: bytes) -> ChatRequest:
        """Return the request in *body*; raises InvalidRequestError."""
        return decode_responses(body)

    def reply(self, asked: Asked, recipe: Recipe, *, created: int) -> ResponsesReply:
        """Return a response to be told."""
        return ResponsesReply(asked, recipe, created=created)


class ResponsesReply:
    """One response: items of reasoning, text and calls, in the order in which they came.

    The whole response is collected from the same events that a stream has.
    """

    def __init__(self, asked: Asked, recipe: Recipe, *, created: int) -> None:
        """Have an id of its own; nothing is kept under it."""
        origin: Mapping[str, Any] = asked.origin if isinstance(asked, ChatRequest) else {}
        self._shared: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(24)}",
            "object": "response",
            "created_at": created,
            "model": asked.model or recipe.model,
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            **origin,
        }
        self._vocabulary = recipe.vocabulary
        self._has_logprobs = asked.logprobs is not None
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._finish: Finished | None = None

    def begin(self, _prompts: Sequence[PromptIds], _usage: Usage) -> bytes:
        """Return ``response.created`` and ``response.in_progress``."""
        response = self._response("in_progress")
        return b"".join(
            self._frame({"type": f"response.{name}", "response": response})
            for name in ("created", "in_progress")
        )

    def news(self, news: News) -> bytes:
        """Return the events that tell *news*."""
        return b"".join(map(self._frame, self._events(news)))

    def around(self, _kind: type[Text | Reasoning]) -> None:
        """Return None: every event has a number."""

    def end(self, usages: Sequence[Usage]) -> bytes:
        """Return ``response.completed``, or ``response.incomplete`` where a limit ended it."""
        response = self._response(self._status(), total_usage(usages))
        return self._frame({"type": f"response.{response['status']}", "response": response})

    def failure(self, error: RouterError) -> bytes:
        """Return ``response.failed``, with what was told so far."""
        response = self._response("failed")
        response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._frame({"type": "response.failed", "response": response})

    def whole(self, _prompts: Sequence[PromptIds], choices: Sequence[WholeChoice]) -> object:
        """Return the response."""
        (choice,) = choices
        for news in choice.news:
            self._events(news)
        return self._response(self._status(), choice.usage)

    def _events(self, news: News) -> list[Event]:
        """Return the events of *news*; log probabilities belong to text, and are told with it."""
        told: Sequence[TokenLogprob] = news.logprobs
        events: list[Event] = []
        for delta in news.deltas:
            events += self._told(delta, told)
            if isinstance(delta, Text):
                told = ()
        return events

    def _told(self, delta: Delta, logprobs: Sequence[TokenLogprob]) -> Iterator[Event]:
        match delta:
            case Text(text):
                yield from self._within("message")
                entries = self._entries(logprobs)
                part = self._part()
                part["text"] += text
                if self._has_logprobs:
                    part["logprobs"] += entries
                yield self._at({"type": "response.output_text.delta", "content_index": 0,
                                "delta": text, "logprobs": entries})  # fmt: skip
            case Reasoning(text):
                yield from self._within("reasoning")
                self._part()["text"] += text
                yield self._at(
                    {"type": "response.reasoning_text.delta", "content_index": 0, "delta": text}
                )
            case CallStart(_, id, name):
                yield from self._close("completed")
                yield from self._start(
                    {
                        "type": "function_call",
                        "id": f"fc_{secrets.token_hex(12)}",
                        "call_id": id,
                        "name": name,
                        "arguments": "",
                        "status": "in_progress",
                    }
                )
            case CallArguments(_, text):
                self._output[-1]["arguments"] += text
                yield self._at({"type": "response.function_call_arguments.delta", "delta": text})
            case Finished():
                self._finish = delta
                yield from self._close(self._status())

    def _within(self, kind: str) -> Iterator[Event]:
        """Open an item of *kind* with its one part, unless that is open."""
        if self._open is not None and self._open["type"] == kind:
            return
        yield from self._close("completed")
        item: dict[str, Any]
        if kind == "message":
            item = {"type": kind, "id": f"msg_{secrets.token_hex(12)}", "role": "assistant",
                    "status": "in_progress", "content": []}  # fmt: skip
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
            if self._has_logprobs:
                part["logprobs"] = []
        else:
            item = {"type": kind, "id": f"rs_{secrets.token_hex(12)}", "summary": [],
                    "status": "in_progress", "content": []}  # fmt: skip
            part = {"type": "reasoning_text", "text": ""}
        yield from self._start(item)
        yield self._at(
            {"type": "response.content_part.added", "content_index": 0, "part": {**part}}
        )
        self._output[-1]["content"] = [part]

    def _start(self, item: dict[str, Any]) -> Iterator[Event]:
        self._output.append(item)
        self._open = item
        yield {
            "type": "response.output_item.added",
            "output_index": len(self._output) - 1,
            "item": {**item},
        }

    def _close(self, status: str) -> Iterator[Event]:
        item, self._open = self._open, None
        if item is None:
            return
        item["status"] = status
        if item["type"] == "function_call":
            arguments = {"name": item["name"], "arguments": item["arguments"]}
            yield self._at({"type": "response.function_call_arguments.done", **arguments})
        else:
            part: dict[str, Any] = item["content"][0]
            kind = "output_text" if item["type"] == "message" else "reasoning_text"
            done = {"type": f"response.{kind}.done", "content_index": 0, "text": part["text"]}
            if kind == "output_text":
                done["logprobs"] = part.get("logprobs", [])
            yield self._at(done)
            yield self._at({"type": "response.content_part.done", "content_index": 0, "part": part})
        index = len(self._output) - 1
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = self._output[-1]["content"][0]
        return part

    def _at(self, event: Event) -> Event:
        """Return *event* with the item that it is about."""
        return event | {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}

    def _entries(self, logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        if not logprobs:
            return []
        entries: list[dict[str, Any]] = chat_logprobs(self._vocabulary, logprobs)["content"]
        return entries

    def _status(self) -> str:
        cut = self._finish is not None and self._finish.reason == "length"
        return "incomplete" if cut else "completed"

    def _response(self, status: str, usage: Usage | None = None) -> dict[str, Any]:
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return self._shared | {
            "status": status,
            "error": None,
            "incomplete_details": reason,
            "output": self._output,
            "usage": None if usage is None else _usage(usage),
        }

    def _frame(self, event: Event) -> bytes:
        numbered = event | {"sequence_number": self._sequence}
        self._sequence += 1
        return named_event(numbered)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
