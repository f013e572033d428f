"""Whether a prompt and its answer fit; found out before a worker is asked."""

from __future__ import annotations

from sglr_dataplane.errors import ContextLengthExceededError, InvalidRequestError


def check_length(
    prompt_tokens: int,
    max_new_tokens: int | None,
    *,
    longest_prompt: int | None,
    context: int | None,
    param: str = "messages",
) -> None:
    """Refuse a prompt that no worker takes, in the words that agents look for.

    Args:
        prompt_tokens: Length of the prompt.
        max_new_tokens: How much the client wants at most; None: whatever fits.
        longest_prompt: What the workers take; None when they have not said.
        context: What prompt and answer may have together, ``max_model_len`` of ``/v1/models``; None
            when the workers have not said.
        param: The field that the prompt came in.

    Raises:
        InvalidRequestError: The prompt is empty: it would end the engine.
        ContextLengthExceededError: It does not fit, or not together with *max_new_tokens*.
    """
    if prompt_tokens == 0:
        raise InvalidRequestError(f"'{param}' gives an empty prompt.", param=param)
    if longest_prompt is not None and prompt_tokens > longest_prompt:
        # Workers keep some of the window for the answer.
        known = longest_prompt if context is None else context
        share = "" if known == longest_prompt else f", of which a prompt may have {longest_prompt}"
        raise ContextLengthExceededError(
            f"This model's maximum context length is {known} tokens{share}. However, your {param} "
            f"resulted in {prompt_tokens} tokens. Please reduce the length of the {param}.",
            param=param,
        )
    if context is None or max_new_tokens is None:
        return
    if prompt_tokens + max_new_tokens > context:
        raise ContextLengthExceededError(
            f"This model's maximum context length is {context} tokens. However, you requested "
            f"{prompt_tokens + max_new_tokens} tokens ({prompt_tokens} in the {param}, "
            f"{max_new_tokens} in the completion). Please reduce the length of the {param} or "
            "completion.",
            param=param,
        )
