"""The recipe of one model, and the prompts that are made by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar

import msgspec

from sglr_dataplane.engine.wire import pack_ids
from sglr_dataplane.output.calls import UnknownTools
from sglr_dataplane.output.detect import Chosen
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.grammar import Start
from sglr_dataplane.output.thinking import reasoning_start
from sglr_dataplane.prompt.conversation import Conversation
from sglr_dataplane.prompt.ranges import integer_in
from sglr_dataplane.prompt.rendering import rendered
from sglr_dataplane.prompt.template import ChatTemplate
from sglr_dataplane.prompt.tokenizer import Fits, Tokenizer
from sglr_dataplane.vocab import Vocabulary

T = TypeVar("T")

_LONG: Final = 32_768
"""Ids that are packed in less than a millisecond."""


class PromptIds(msgspec.Struct, frozen=True):
    """A rendered prompt, as text and as the ids that the worker gets."""

    text: str
    ids: Sequence[int]
    continuation: str = ""
    """The end of *text* that the assistant is to go on from."""
    packed: bytes = b""
    """The ids as the wire has them; ``b""`` for so few that packing them takes no time."""

    def __repr__(self) -> str:
        return f"<PromptIds {len(self.ids)}>"

    def start(self, reasoning: ReasoningFormat | None) -> Start:
        """Return where the answer begins when it is read by *reasoning*."""
        return reasoning_start(self.text, reasoning, self.continuation)


@dataclass(frozen=True)
class Recipe:
    """What the model of one backend needs: template, tokenizer, and how it writes its answers."""

    backend_key: str
    source: str
    """Where the tokenizer came from, for people."""
    family: str
    """What the model's ``config.json`` calls its kind; ``unknown`` without one."""
    template: ChatTemplate
    tokenizer: Tokenizer
    typed_controls_are_text: bool
    """Whether control tokens that a request spells are encoded as the letters they are."""
    formats: Chosen
    """How it writes calls and thoughts."""
    unknown_tools: UnknownTools
    """What becomes of calls to tools that a request did not offer."""
    strips_thoughts: bool
    """Whether whitespace around thoughts is left out."""
    added_tokens: frozenset[str]
    """Texts of the tokenizer's added tokens."""
    ends: frozenset[int]
    """Ids of the tokens that end an answer and are no part of it."""
    threads: Executor
    """Where long prompts are made: as many at a time as it has threads."""
    adapter: str = ""
    """The LoRA adapter that a request asked for, by its name at the workers; ``""`` for none."""

    @property
    def model(self) -> str:
        """The name the backend gives its model."""
        return self.template.model

    @cached_property
    def tool_format(self) -> ToolFormat | None:
        """How it writes calls; None when they are not read."""
        return self.formats.tool

    @cached_property
    def reasoning_format(self) -> ReasoningFormat | None:
        """How it writes thoughts; None when they are not read."""
        return self.formats.reasoning

    @property
    def formats_reason(self) -> str:
        """Why these formats were chosen, in one clause."""
        return self.formats.reason

    def told(self, tool_call_parser: str | None, reasoning_parser: str | None) -> Recipe:
        """Return the recipe when its workers name these parsers, or none."""
        if not (self.formats.asks_tool or self.formats.asks_reasoning):
            return self
        return replace(self, formats=self.formats.told(tool_call_parser, reasoning_parser))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model, by id."""
        return self.tokenizer.vocabulary

    def is_quick(self, size: int) -> bool:
        """Return whether prompts of a body of *size* bytes may be made on the event loop."""
        return size <= self.tokenizer.encode_in_thread_above

    async def aside(self, size: int, make: Callable[[], T]) -> T:
        """Return what *make* makes of a body of *size* bytes, in a thread when it may take long."""
        if self.is_quick(size):
            return make()
        return await asyncio.get_running_loop().run_in_executor(self.threads, make)

    def chat_prompt(self, conversation: Conversation, fits: Fits | None = None) -> PromptIds:
        """Return the prompt of *conversation*; may take long: see :meth:`aside`.

        Args:
            conversation: What the client sent.
            fits: Asked whether so many tokens are wanted, before their ids are made.

        Raises:
            InvalidRequestError: The template, the tokenizer or *fits* refuses it.
        """
        controls = self.tokenizer.controls if self.typed_controls_are_text else None
        prompt = rendered(conversation, self.template, controls)
        ids = self.tokenizer.encode_typed(prompt.text, prompt.typed, fits)
        if not prompt.continuation:
            return PromptIds(prompt.text, ids, packed=_packed(ids))
        ids += self.tokenizer.encode(prompt.continuation)
        if fits is not None:
            fits(len(ids))
        return PromptIds(prompt.text + prompt.continuation, ids, prompt.continuation, _packed(ids))

    def text_prompt(
        self, prompt: str | tuple[int, ...], param: str, fits: Fits | None = None
    ) -> PromptIds:
        """Return *prompt*, text or ids, as it goes to a worker; may take long: see :meth:`aside`.

        Args:
            prompt: Text, which gets the tokens that the model wants around a text; or ids.
            param: What a refusal names.
            fits: As ``chat_prompt``'s.

        Raises:
            InvalidRequestError: An id is none of the vocabulary, or the tokenizer or *fits* refuses
                it.
        """
        if isinstance(prompt, str):
            ids = self.tokenizer.encode_completion(prompt, fits)
            return PromptIds(prompt, ids, packed=_packed(ids))
        if fits is not None:
            fits(len(prompt))
        last = self.vocabulary.size - 1
        for at, token_id in enumerate(prompt):
            integer_in(token_id, f"{param}[{at}]", 0, last)
        text = self.vocabulary.decode(prompt, self.vocabulary.special)
        return PromptIds(text, prompt, packed=_packed(prompt))


def _packed(ids: Sequence[int]) -> bytes:
    """Return *ids* as the wire has them, if they are so many that it takes time."""
    return pack_ids(ids) if len(ids) > _LONG else b""
