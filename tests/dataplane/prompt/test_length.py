"""Prompts that do not fit are refused before any worker is asked."""

import pytest

from sglr_dataplane.errors import ContextLengthExceededError, InvalidRequestError
from sglr_dataplane.prompt.length import check_length


@pytest.mark.parametrize(
    ("prompt", "new", "longest", "context"),
    [(1, None, None, None), (90, None, 90, 100), (90, 10, 90, 100), (10, 99, None, None)],
)
def test_what_fits_passes(
    prompt: int, new: int | None, longest: int | None, context: int | None
) -> None:
    """Limits are inclusive, and unknown limits limit nothing."""
    check_length(prompt, new, longest_prompt=longest, context=context)


def test_a38_a_prompt_over_the_limit_is_named() -> None:
    """The words that agents match on, with the window that /v1/models tells, and its part."""
    with pytest.raises(
        ContextLengthExceededError,
        match=r"maximum context length is 100 tokens, of which a prompt may have 90. .* in 91 tok",
    ):
        check_length(91, None, longest_prompt=90, context=100)
    with pytest.raises(ContextLengthExceededError, match=r"maximum context length is 90 tokens\. "):
        check_length(91, None, longest_prompt=90, context=None)


def test_a38_prompt_and_completion_must_fit_together() -> None:
    """The sentence names the sum and its parts."""
    with pytest.raises(ContextLengthExceededError, match=r"requested 101 tokens \(90 .* 11 "):
        check_length(90, 11, longest_prompt=95, context=100)


def test_an_empty_prompt_is_refused() -> None:
    """It would end the engine's process."""
    with pytest.raises(InvalidRequestError, match="empty prompt"):
        check_length(0, 5, longest_prompt=None, context=None)
