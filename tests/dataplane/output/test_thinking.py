"""Where an answer starts."""

from __future__ import annotations

import pytest

from sglr_dataplane.output.formats import reasoning_format
from sglr_dataplane.output.grammar import Start
from sglr_dataplane.output.thinking import reasoning_start

QWEN3 = reasoning_format("qwen3")
R1 = reasoning_format("deepseek-r1")


@pytest.mark.parametrize(
    ("prompt", "start"),
    [
        ("<|im_start|>assistant\n", "outside"),
        ("<|im_start|>assistant\n<think>\n", "inside"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "off"),
        ("use <think> tags\n<|im_start|>assistant\n", "outside"),
    ],
)
def test_the_prompts_end_decides_where_the_answer_starts(prompt: str, start: Start) -> None:
    """An open marker at the very end means inside, a closed block means off, else outside."""
    assert reasoning_start(prompt, QWEN3) == start


def test_a_model_that_always_thinks_starts_inside_without_a_marker() -> None:
    """Formats of models that never write the opening marker say so themselves."""
    assert reasoning_start("<|Assistant|>", R1) == "inside"
    assert reasoning_start("<|Assistant|><think>\n\n</think>", R1) == "off"


def test_a_marker_that_ends_in_a_line_break_is_found_at_the_prompts_end() -> None:
    """Gemma's opening marker is two tokens and a line break."""
    gemma = reasoning_format("gemma4")

    assert reasoning_start("<|turn>model\n<|channel>thought\n", gemma) == "inside"
    assert reasoning_start("<|turn>model\n<|channel>thought\n<channel|>", gemma) == "off"


def test_without_a_format_reasoning_is_off() -> None:
    """A model that does not think has nothing to find."""
    assert reasoning_start("<think>", None) == "off"
    assert reasoning_start("<think>a", None, "a") == "off"


@pytest.mark.parametrize(
    ("prompt", "continuation", "start"),
    [
        ("<|im_start|>assistant\n", "<think>so far", "inside"),
        ("<|im_start|>assistant\n", "<think>a</think>b", "off"),
        ("<|im_start|>assistant\n", "b", "off"),
        ("<|im_start|>assistant\n<think>\n", "so far", "inside"),
        ("<|im_start|>assistant\n<think>\n", "a</think>b", "off"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "b", "off"),
    ],
)
def test_a_continued_answer_goes_on_where_its_beginning_ended(
    prompt: str, continuation: str, start: Start
) -> None:
    """continue_final_message: an open block in the prefix, or before it, goes on."""
    assert reasoning_start(prompt + continuation, QWEN3, continuation) == start
