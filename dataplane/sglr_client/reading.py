"""From a stream's bytes to its chunks: what counts as content, as an error and as the end; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sglr_client.decoding import converted
from sglr_client.errors import (
    InvalidChunkError,
    StreamError,
    TruncatedStreamError,
    refused_in_band,
)
from sglr_client.json_values import is_object
from sglr_client.results import ChatChunk, ChunkChoice, Completion, TextChoice, Usage
from sglr_client.sse import Event, EventParser

Chunk = ChatChunk | Completion

_DONE: Final = b"[DONE]"
_HELD: Final = 64
"""Chunks without content held back before they count as content: a server that sends only such
must not fill memory."""
_TELLING: Final = re.compile(
    rb'"(?:error|usage|finish_reason)"\s*:\s*[^n\s]|"object"\s*:\s*"error"'
)
"""What a chunk must contain to be worth parsing when nobody wants it parsed: nulls tell nothing."""


class ChunkReader:
    """The chunks of one attempt's stream.

    Attributes:
        started: Content came; before that nothing was handed out and all may be tried again.
        done: ``[DONE]`` came.
        chunks: Chunks with content so far.
        skipped: Events that were no chunks, if they are to be skipped.
        usage: By the server's counters; None: it told none so far.
    """

    def __init__(
        self,
        kind: type[ChatChunk | Completion],
        *,
        choices: int,
        cap: int,
        raw: bool = False,
        skip_invalid: bool = False,
    ) -> None:
        """Read chunks of one *kind*.

        Args:
            kind: The struct of a chunk.
            choices: How many answers must finish.
            cap: As of `EventParser`.
            raw: Hand out the chunks' JSON as bytes.
            skip_invalid: Count events that are no chunks instead of raising.
        """
        self._kind: type[Chunk] = kind
        self._choices = choices
        self._parser = EventParser(cap)
        self._raw = raw
        self._skip_invalid = skip_invalid
        self._held: list[Any] = []
        self._finished: set[int] = set()
        self._events = 0
        self.started = False
        self.done = False
        self.chunks = 0
        self.skipped = 0
        self.usage: Usage | None = None

    def __repr__(self) -> str:
        return f"<ChunkReader {self._events} events, {len(self._finished)} finished>"

    @property
    def finished(self) -> bool:
        """Every answer had its finish reason, or the stream said it is done."""
        return self.done or len(self._finished) >= self._choices

    def feed(self, part: bytes) -> Iterator[Any]:
        """Yield the chunks that *part* completes, as soon as there was content.

        Raises:
            RefusedError: The stream tells an error.
            InvalidChunkError: An event is no chunk.
            LineTooLongError: As of `EventParser`.
        """
        for event in self._parser.feed(part):
            self._events += 1
            yield from self._take(event)
            if self.done:
                return

    def end(self) -> Iterator[Any]:
        """Yield what was held back at the end of the bytes.

        Raises:
            TruncatedStreamError: The end came before a finish reason.
            LineTooLongError: As of `EventParser`.
        """
        yield from self.feed(b"")  # an overlong line behind the last events is told only now
        if not self.finished:
            raise TruncatedStreamError(
                f"The stream ended after {self._events} events, before"
                f" {self._choices} finish reason(s)."
            )
        yield from self._release()

    def _take(self, event: Event) -> Iterator[Any]:
        if event.data == _DONE:
            self.done = True
            yield from self._release()
            return
        if event.event == "error":
            raise refused_in_band(event.data)
        if event.event == "ping":  # a keep-alive of some proxies; its data is no chunk
            return
        chunk = None
        if self._wants_parsing(event.data):
            chunk = self._parsed(event)
            if chunk is None:
                return
        content = self._learn(chunk)
        self.chunks += content
        item = event.data if self._raw else chunk
        if not self.started and not content and len(self._held) < _HELD:
            self._held.append(item)
            return
        yield from self._release()
        yield item

    def _wants_parsing(self, data: bytes) -> bool:
        return not self._raw or not self.started or _TELLING.search(data) is not None

    def _release(self) -> Iterator[Any]:
        self.started = True
        held, self._held = self._held, []
        yield from held

    def _parsed(self, event: Event) -> Chunk | None:
        """Return the event's chunk; None: it is none and is skipped."""
        try:
            document: Any = msgspec.json.decode(event.data)
            if _is_error(document):
                raise refused_in_band(event.data)
            return converted(document, self._kind)
        except (ValueError, RecursionError) as error:
            if not self._skip_invalid:
                raise InvalidChunkError(
                    self._events, event.offset, event.data, f"{error}."
                ) from error
            self.skipped += 1
            return None

    def _learn(self, chunk: Chunk | None) -> bool:
        """Take in what *chunk* tells; return whether it has content."""
        if chunk is None:  # raw, and nothing but content in it
            return True
        if chunk.usage is not None:
            self.usage = chunk.usage
        content = False
        for choice in chunk.choices:
            content = content or _has_content(choice)
            if choice.finish_reason:
                self._finished.add(choice.index)
        return content


def _has_content(choice: ChunkChoice | TextChoice) -> bool:
    if choice.finish_reason:
        return True
    if isinstance(choice, TextChoice):
        return bool(choice.text)
    delta = choice.delta
    texts = delta.content or delta.reasoning_content or delta.refusal
    return bool(texts or delta.tool_calls or any(delta.extra.values()))


def _is_error(document: Any) -> bool:
    if not is_object(document):
        return False
    return bool(document.get("error")) or document.get("object") == "error"


def unexpected_answer(body: bytes) -> StreamError:
    """Return the error of a server that answered a stream's request with JSON."""
    return StreamError(f"The server did not stream; its answer begins with {body[:80]!r}.")
