"""Deltas as server-sent events of OpenAI's chat completion stream.

Only ``data:`` lines and comments are sent: clients crash on ``retry:``, on empty data and on named
events (openai-python 3.57). What does not change within a stream is rendered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from sglr_dataplane.api.faults import envelope
from sglr_dataplane.api.replies import total_usage, usage_object
from sglr_dataplane.output.deltas import (
    CallArguments,
    CallStart,
    Finished,
    Reasoning,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglr_dataplane.api.answer import News
    from sglr_dataplane.api.schema.common import StreamUsage
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import TokenLogprob, Usage
    from sglr_dataplane.output.deltas import Delta

_FRAME: Final = b'%b"choices":[{"index":%d,"delta":%b,"finish_reason":%b%b'
"""A frame: its head, the choice's index, its delta and finish, and what ends both."""
DONE: Final = b"data: [DONE]\n\n"
_MARK: Final = "\0"
"""Stands for a text; whatever follows a text in a frame is without it."""
_WRITTEN_MARK: Final = orjson.dumps(_MARK)[1:-1]


class ChatFrames:
    """Renders one stream's frames; every frame has the same id, time and model."""

    def __init__(
        self,
        *,
        id: str,
        created: int,
        model: str,
        usage: StreamUsage,
        logprobs: Callable[[Sequence[TokenLogprob]], object] | None = None,
    ) -> None:
        """Render the parts that all frames share.

        Args:
            id: The completion's id, ``chatcmpl-…``.
            created: Seconds since 1970 when the request came.
            model: The name the client asked for.
            usage: When usage is told; a chunk that does not tell it says null if another will.
            logprobs: Makes the object for some tokens; None: nobody asked for log probabilities.
        """
        head = orjson.dumps(
            {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        )
        self._head = b"data: " + head[:-1] + b","
        self._tail = b',"usage":null}\n\n' if usage.at_end else b"}\n\n"
        self._usage = usage
        self._logprobs = logprobs

    def roles(self, count: int) -> bytes:
        """Return the first frame of each of *count* choices: the only ones that name the role."""
        role = b'{"role":"assistant","content":""}'
        rest = (b"}]" if self._logprobs is None else b',"logprobs":null}]') + self._tail
        if count == 1:
            return _FRAME % (self._head, 0, role, b"null", rest)
        return b"".join(
            [_FRAME % (self._head, index, role, b"null", rest) for index in range(count)]
        )

    def news(self, news: News, /) -> bytes:
        """Return the frames that tell *news*; log probabilities come with the first of them."""
        tail = self._tail
        if self._usage.always:
            tail = b',"usage":' + orjson.dumps(usage_object(news.usage)) + b"}\n\n"
        if self._logprobs is None:
            rest = b"}]" + tail
            frames = b""
            for delta in news.deltas:  # one, nearly always
                said, finish = _said(delta)
                frames += _FRAME % (self._head, news.index, said, finish, rest)
            return frames
        told = self._logprobs(news.logprobs) if news.logprobs else None
        first = b',"logprobs":' + orjson.dumps(told) + b"}]" + tail
        later = b',"logprobs":null}]' + tail
        return b"".join(
            _FRAME % (self._head, news.index, *_said(delta), later if at else first)
            for at, delta in enumerate(news.deltas)
        )

    def around(self, kind: type[Text | Reasoning], /) -> tuple[bytes, bytes] | None:
        """Return what stands around the text of a delta of choice 0; None if it is not all."""
        if self._usage.always or self._logprobs is not None:
            return None
        said, finish = _said(kind(_MARK))
        frame = _FRAME % (self._head, 0, said, finish, b"}]" + self._tail)
        before, _, after = frame.rpartition(_WRITTEN_MARK)
        return before, after

    def end(self, usages: Sequence[Usage], /) -> bytes:
        """Return what ends a complete stream: usage where it was asked for, then ``[DONE]``."""
        if not self._usage.at_end:
            return DONE
        total = usage_object(total_usage(usages, len(usages)))
        return self._head + b'"choices":[],"usage":' + orjson.dumps(total) + b"}\n\n" + DONE


def _said(delta: Delta) -> tuple[bytes, bytes]:
    """Return *delta* as JSON, and the finish reason with what follows it."""
    match delta:
        case Text(text):
            return b'{"content":' + orjson.dumps(text) + b"}", b"null"
        case Reasoning(text):
            return b'{"reasoning_content":' + orjson.dumps(text) + b"}", b"null"
        case CallStart(position, id, name):
            function = {"name": name, "arguments": ""}
            call = {"index": position, "id": id, "type": "function", "function": function}
            return orjson.dumps({"tool_calls": [call]}), b"null"
        case CallArguments(position, text):
            call = {"index": position, "function": {"arguments": text}}
            return orjson.dumps({"tool_calls": [call]}), b"null"
        case Finished(reason, matched):
            return b"{}", b'"%b","matched_stop":%b' % (reason.encode(), orjson.dumps(matched))


def failure_frame(error: RouterError) -> bytes:
    """Return what ends a stream that failed after its status was sent.

    The error is nested: openai-python dies on a flat one instead of raising APIError.
    """
    return b"data: " + orjson.dumps(envelope(error)) + b"\n\n" + DONE
