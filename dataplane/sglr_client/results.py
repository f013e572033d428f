"""What calls return: OpenAI's objects as structs.

Servers add fields of their own; each struct keeps those it does not name in ``extra``. What a
server leaves out or sends as null has the field's default.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field


class Result(msgspec.Struct, kw_only=True):
    """An object of the API.

    Attributes:
        extra: Fields the struct does not name, as decoded JSON.
    """

    extra: dict[str, Any] = field(default_factory=dict)


class PromptDetails(Result):
    """Where prompt tokens came from."""

    cached_tokens: int = 0


class CompletionDetails(Result):
    """What completion tokens were spent on."""

    reasoning_tokens: int = 0


class Usage(Result):
    """Tokens, by the server's counters."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptDetails = field(default_factory=PromptDetails)
    completion_tokens_details: CompletionDetails = field(default_factory=CompletionDetails)


class FunctionCall(Result):
    """A function's name and its arguments, as JSON text."""

    name: str = ""
    arguments: str = ""


class ToolCall(Result):
    """A call the model makes."""

    id: str = ""
    type: str = "function"
    function: FunctionCall = field(default_factory=FunctionCall)


class Message(Result):
    """An answer's message.

    Attributes:
        content: None when the model only called tools.
        refusal: Why the model refused; None when it did not.
        reasoning_content: Its thoughts, where the server tells them; None when it does not.
    """

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list[ToolCall])


class ChatChoice(Result):
    """One of the answers.

    Attributes:
        finish_reason: ``stop``, ``length``, ``tool_calls`` or ``content_filter``; None if unknown.
        logprobs: As decoded JSON; None when not asked for.
    """

    index: int = 0
    message: Message = field(default_factory=Message)
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatCompletion(Result):
    """The answer to a chat.

    Attributes:
        usage: None when the server did not count.
    """

    id: str = ""
    object: str = "chat.completion"
    created: int = 0
    model: str = ""
    choices: list[ChatChoice] = field(default_factory=list[ChatChoice])
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The first answer's content; ``""`` when it has none."""
        return (self.choices[0].message.content or "") if self.choices else ""


class FunctionDelta(Result):
    """A piece of a function call: the name comes once and whole, the arguments in pieces."""

    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(Result):
    """A piece of the call with this index; None: this piece does not say."""

    index: int = 0
    id: str | None = None
    type: str | None = None
    function: FunctionDelta = field(default_factory=FunctionDelta)


class Delta(Result):
    """What a chunk adds to a message; None: nothing."""

    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] = field(default_factory=list[ToolCallDelta])


class ChunkChoice(Result):
    """What a chunk adds to one of the answers.

    Attributes:
        finish_reason: None until the answer's last chunk.
        logprobs: As decoded JSON; None when not asked for.
    """

    index: int = 0
    delta: Delta = field(default_factory=Delta)
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatChunk(Result):
    """A piece of a streamed chat.

    Attributes:
        usage: In the last chunk, which has no choices, when the request asked for it; else None.
    """

    id: str = ""
    object: str = "chat.completion.chunk"
    created: int = 0
    model: str = ""
    choices: list[ChunkChoice] = field(default_factory=list[ChunkChoice])
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """What it adds to the first answer's content."""
        return "".join(c.delta.content or "" for c in self.choices if c.index == 0)


class TextChoice(Result):
    """One of the texts, or what a chunk adds to it; *finish_reason* None until its end."""

    index: int = 0
    text: str = ""
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class Completion(Result):
    """The answer to a completion, or in a stream a piece of it; *usage* None: not counted here."""

    id: str = ""
    object: str = "text_completion"
    created: int = 0
    model: str = ""
    choices: list[TextChoice] = field(default_factory=list[TextChoice])
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The first text, or what this piece adds to it."""
        return "".join(choice.text for choice in self.choices if choice.index == 0)


class Embedding(Result):
    """The vector of the input with this index."""

    index: int = 0
    embedding: list[float] = field(default_factory=list[float])


class Embeddings(Result):
    """Vectors, in the order of the inputs."""

    model: str = ""
    data: list[Embedding] = field(default_factory=list[Embedding])
    usage: Usage | None = None


class Model(Result):
    """A model the server offers.

    Attributes:
        max_model_len: Its context in tokens; None: the server does not say.
    """

    id: str = ""
    object: str = "model"
    created: int = 0
    owned_by: str = ""
    max_model_len: int | None = None


class Models(Result):
    """The models the server offers."""

    data: list[Model] = field(default_factory=list[Model])
