"""A conversation and a template become a prompt."""

from __future__ import annotations

from sglr_dataplane.errors import InvalidRequestError, TemplateRefusalError
from sglr_dataplane.prompt.budget import RenderBudgetError
from sglr_dataplane.prompt.conversation import Conversation, Prompt
from sglr_dataplane.prompt.messages import flat, prepared
from sglr_dataplane.prompt.template import ChatTemplate


def rendered(conversation: Conversation, template: ChatTemplate) -> Prompt:
    """Return the prompt of *conversation*; takes milliseconds: call it off the event loop.

    Raises:
        InvalidRequestError: The messages cannot be prepared, or the model's template offers no
            tools although some are given.
        TemplateRefusalError: The template refuses the messages, or makes nothing of them.
    """
    ready = prepared(conversation, template)
    if ready.tools is not None and template.text is not None and not template.reads("tools"):
        raise InvalidRequestError(
            "The chat template of this model does not show tools to the model; send the request"
            " without 'tools', or with tool_choice 'none'.",
            param="tools",
        )
    kwargs = conversation.template_kwargs
    # sglang: what is continued follows the start of the answer, whatever the request says.
    start = conversation.add_generation_prompt or conversation.continue_final_message
    try:
        text = template.render(ready.messages, ready.tools, kwargs, add_generation_prompt=start)
    except RenderBudgetError:
        raise
    except TemplateRefusalError:
        if ready.tools is None:
            raise
        # sglang: Mistral's templates want tools without OpenAI's wrapper.
        text = template.render(
            ready.messages, flat(ready.tools), kwargs, add_generation_prompt=start
        )
    if not text and not ready.continuation:
        # sglang 0.5.23 over gRPC: an empty prompt ends the engine's process.
        raise TemplateRefusalError(
            "The chat template of this model renders these messages as an empty prompt.",
            param="messages",
        )
    return Prompt(text, ready.continuation)
