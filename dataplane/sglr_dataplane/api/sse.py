"""Deltas as server-sent events of OpenAI's chat completion stream.

Only ``data:`` lines and comments are sent: clients crash on ``retry:``, on empty data and on named
events (openai-python 3.57). What does not change within a stream is rendered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from sglr_dataplane.api.faults import envelope
from sglr_dataplane.api.replies import usage_object
from sglr_dataplane.output.deltas import (
    CallArguments,
    CallStart,
    Finished,
    Reasoning,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import Usage
    from sglr_dataplane.output.deltas import Delta

DONE: Final = b"data: [DONE]\n\n"


class ChatFrames:
    """Renders one stream's frames; every frame has the same id, time and model."""

    def __init__(self, *, id: str, created: int, model: str, include_usage: bool) -> None:
        """Render the parts that all frames share.

        Args:
            id: The completion's id, ``chatcmpl-…``.
            created: Seconds since 1970 when the request came.
            model: The name the client asked for.
            include_usage: Whether a last chunk with usage will come; the others then say null.
        """
        head = orjson.dumps(
            {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        )
        self._head = b"data: " + head[:-1] + b","
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._include_usage = include_usage

    def role(self, index: int) -> bytes:
        """Return the first frame of choice *index*: the only one that names the role."""
        return self._choice(index, b'{"role":"assistant","content":""}')

    def frame(self, index: int, delta: Delta) -> bytes:
        """Return the frame that tells *delta* of choice *index*."""
        match delta:
            case Text(text):
                return self._choice(index, b'{"content":' + orjson.dumps(text) + b"}")
            case Reasoning(text):
                return self._choice(index, b'{"reasoning_content":' + orjson.dumps(text) + b"}")
            case CallStart(position, id, name):
                function = {"name": name, "arguments": ""}
                call = {"index": position, "id": id, "type": "function", "function": function}
                return self._choice(index, orjson.dumps({"tool_calls": [call]}))
            case CallArguments(position, text):
                call = {"index": position, "function": {"arguments": text}}
                return self._choice(index, orjson.dumps({"tool_calls": [call]}))
            case Finished(reason, matched):
                end = b'"%b","matched_stop":%b' % (reason.encode(), orjson.dumps(matched))
                return self._choice(index, b"{}", end)

    def end(self, usages: Iterable[Usage]) -> bytes:
        """Return what ends a complete stream: usage where it was asked for, then ``[DONE]``."""
        if not self._include_usage:
            return DONE
        usage = b'"choices":[],"usage":' + orjson.dumps(usage_object(usages))
        return self._head + usage + b"}\n\n" + DONE

    def failure(self, error: RouterError) -> bytes:
        """Return what ends a stream that failed after its status was sent.

        The error is nested: openai-python dies on a flat one instead of raising APIError.
        """
        return b"data: " + orjson.dumps(envelope(error)) + b"\n\n" + DONE

    def _choice(self, index: int, delta: bytes, finish_reason: bytes = b"null") -> bytes:
        return b'%b"choices":[{"index":%d,"delta":%b,"finish_reason":%b}]%b' % (
            self._head, index, delta, finish_reason, self._tail,
        )  # fmt: skip
