"""A conversation and a template become a prompt."""

from __future__ import annotations

import logging

from sglr_dataplane.errors import InvalidRequestError, TemplateRefusalError
from sglr_dataplane.prompt.budget import RenderBudgetError
from sglr_dataplane.prompt.conversation import Conversation, Prompt
from sglr_dataplane.prompt.literals import LiteralSearch
from sglr_dataplane.prompt.messages import flat, prepared
from sglr_dataplane.prompt.template import ChatTemplate
from sglr_dataplane.prompt.typed import Inputs, Mark

logger = logging.getLogger(__name__)


def rendered(
    conversation: Conversation, template: ChatTemplate, controls: LiteralSearch | None = None
) -> Prompt:
    """Return the prompt of *conversation*; takes milliseconds: call it off the event loop.

    Args:
        conversation: What the client sent.
        template: The model's.
        controls: Finds the control tokens that are to be told apart where the request itself spells
            them; None: they are not.

    Raises:
        InvalidRequestError: The messages cannot be prepared, or the model's template offers no
            tools although some are given, or typed control tokens cannot be told apart.
        TemplateRefusalError: The template refuses the messages, or makes nothing of them.
    """
    ready = prepared(conversation, template)
    if ready.tools is not None and template.text is not None and not template.reads("tools"):
        raise InvalidRequestError(
            "The chat template of this model does not show tools to the model; send the request"
            " without 'tools', or with tool_choice 'none'.",
            param="tools",
        )
    # sglang: what is continued follows the start of the answer, whatever the request says.
    start = conversation.add_generation_prompt or conversation.continue_final_message
    inputs = Inputs(ready.messages, ready.tools, conversation.template_kwargs)
    text = _text(inputs, template, start=start)
    if not text and not ready.continuation:
        # sglang 0.5.23 over gRPC: an empty prompt ends the engine's process.
        raise TemplateRefusalError(
            "The chat template of this model renders these messages as an empty prompt.",
            param="messages",
        )
    if controls is None or not inputs.spell(controls):
        return Prompt(text, ready.continuation)
    text, typed = _told_apart(text, inputs, template, controls, start=start)
    return Prompt(text, ready.continuation, typed)


def _text(inputs: Inputs, template: ChatTemplate, *, start: bool) -> str:
    messages, tools, kwargs = inputs.messages, inputs.tools, inputs.kwargs
    try:
        return template.render(messages, tools, kwargs, add_generation_prompt=start)
    except RenderBudgetError:
        raise
    except TemplateRefusalError:
        if tools is None:
            raise
        # sglang: Mistral's templates want tools without OpenAI's wrapper.
        return template.render(messages, flat(tools), kwargs, add_generation_prompt=start)


def _told_apart(
    text: str,
    inputs: Inputs,
    template: ChatTemplate,
    controls: LiteralSearch,
    *,
    start: bool,
) -> tuple[str, tuple[int, ...]]:
    """Return the prompt and where in it somebody typed.

    The prompt is *text*, but for templates that look for control tokens in what people write: they
    must not find any either.
    """
    mark = Mark.unused_in(inputs, template.text or "", controls)
    if mark is None:
        raise _inseparable()
    try:
        marked = _text(mark.marked(inputs), template, start=start)
    except TemplateRefusalError as error:
        raise _inseparable() from error
    clean, typed = mark.removed(marked)
    if clean != text and mark.escapes_in(clean) > mark.escapes_in(text):
        raise _inseparable()
    return clean, typed


def _inseparable() -> InvalidRequestError:
    logger.warning("typed control tokens refused: the chat template rewrites what people write")
    return InvalidRequestError(
        "These messages spell a control token of the model, and its chat template rewrites them, so"
        " that it cannot be kept as text; take the control token out.",
        param="messages",
    )
