"""How what was asked becomes prompts, jobs and choices to be read."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.answer import Choice
from sglr_dataplane.api.schema import ChatRequest
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.formats import forced
from sglr_dataplane.output.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.job import Job
    from sglr_dataplane.output.families.declare import ToolFormat
    from sglr_dataplane.prompt.conversation import Conversation
    from sglr_dataplane.prompt.tokenizer import Fits
    from sglr_dataplane.recipe import PromptIds, Recipe


_NO_ENDS: Final[frozenset[int]] = frozenset()
_STREAMED: Final = "streamed"


def prompts_of(asked: Asked, recipe: Recipe, fits: Fits) -> list[PromptIds]:
    """Return the prompts of *asked*, one or as many as it lists; may take long: ``Recipe.aside``.

    Raises:
        InvalidRequestError: The template, the tokenizer or *fits* refuses one.
    """
    if isinstance(asked, ChatRequest):
        return [recipe.chat_prompt(asked.conversation, fits)]
    return [
        recipe.text_prompt(prompt, path, fits)
        for prompt, path in zip(asked.prompts, asked.paths, strict=True)
    ]


def choices_of(
    asked: Asked, recipe: Recipe, prompts: Sequence[PromptIds], jobs: Sequence[Job]
) -> list[Choice]:
    """Return the fresh choices of every job, each for its prompt, in order."""
    choices: list[Choice] = []
    for prompt, job in zip(prompts, jobs, strict=True):
        sampling = job.sampling
        # sglang: ignore_eos switches the request's stop tokens off as well.
        ends = _NO_ENDS if sampling.ignore_eos else recipe.ends | set(sampling.stop_token_ids)
        singly = bool(sampling.stop) or job.logprobs is not None
        for _ in range(sampling.n):
            if isinstance(asked, ChatRequest):
                pipeline, thoughts = _chat_pipeline(asked, recipe, prompt, job), asked.thoughts
            else:
                pipeline, thoughts = _pipeline(asked, recipe, job), _STREAMED
            choices.append(Choice(pipeline, ends=ends, one_by_one=singly, thoughts=thoughts))
    return choices


def _pipeline(asked: Asked, recipe: Recipe, job: Job) -> Pipeline:
    """Return a pipeline that reads text and nothing else."""
    return Pipeline(
        recipe.vocabulary.decoder(),
        stop=job.sampling.stop,
        trim_stop=not job.sampling.no_stop_trim,
        min_tokens=job.sampling.min_new_tokens,
        hidden=frozenset() if asked.shows_special else recipe.vocabulary.special,
        new_call_id=_new_call_id,
    )


def _chat_pipeline(request: ChatRequest, recipe: Recipe, prompt: PromptIds, job: Job) -> Pipeline:
    conversation = request.conversation
    tools, calls = _tools_of(conversation) if conversation.tools else ((), 0)
    thoughts = recipe.reasoning_format if request.separate_reasoning else None
    return Pipeline(
        recipe.vocabulary.decoder(),
        tool_format=_tool_format(conversation, recipe) if tools else None,
        reasoning_format=thoughts,
        starts="off" if thoughts is None else prompt.start(thoughts),
        tools=tools,
        stop=job.sampling.stop,
        trim_stop=not job.sampling.no_stop_trim,
        min_tokens=job.sampling.min_new_tokens,
        hidden=frozenset() if request.shows_special else recipe.vocabulary.special,
        tokens=recipe.added_tokens,
        unknown_tools=recipe.unknown_tools,
        strip_thoughts=recipe.strips_thoughts,
        calls_before=calls,
        new_call_id=_new_call_id,
    )


def _tools_of(conversation: Conversation) -> tuple[tuple[ToolSignature, ...], int]:
    """Return the tools that are offered, and how many calls there were before."""
    tools = tuple([ToolSignature(t.name, t.parameters) for t in conversation.tools])
    return tools, sum([len(message.tool_calls or ()) for message in conversation.messages])


def _tool_format(conversation: Conversation, recipe: Recipe) -> ToolFormat | None:
    """Return how calls to the tools that are offered are written; None when there can be none."""
    choice = conversation.choice
    if choice.mode == "none":
        return None
    if choice.mode == "auto":
        return recipe.tool_format
    # The grammar that forces a call asks for a JSON array instead of the model's own markup.
    return forced(
        recipe.tool_format, choice.allowed[0] if choice.named and choice.allowed else None
    )


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
