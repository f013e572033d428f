"""The demo model's files: small, consistent, and with a prompt in the markup of its family."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from support.tokenizers import DEMO_MODEL, vocabulary_of

VOCABULARY = vocabulary_of(DEMO_MODEL)
HELLO = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def refuse(message: str) -> NoReturn:
    """Raise what templates raise."""
    raise jinja2.TemplateError(message)


def rendered(*messages: dict[str, Any], **variables: Any) -> str:
    """Return the prompt for *messages*, by jinja2 as the engines set it up."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    source = (DEMO_MODEL / "chat_template.jinja").read_text("utf-8")
    return environment.from_string(source).render(
        messages=list(messages), **{"add_generation_prompt": True} | variables
    )


def test_all_files_together_are_small() -> None:
    """They are in every wheel."""
    assert sum(path.stat().st_size for path in DEMO_MODEL.iterdir()) < 1_000_000


def test_the_files_name_the_same_ids() -> None:
    """End tokens and sizes are said in several files."""
    generation, config, settings = (
        json.loads((DEMO_MODEL / name).read_bytes())
        for name in ("generation_config.json", "config.json", "tokenizer_config.json")
    )
    end = VOCABULARY.id_of(settings["eos_token"])

    assert config["eos_token_id"] == end == generation["eos_token_id"][0]
    assert VOCABULARY.id_of(settings["pad_token"]) == generation["pad_token_id"]
    # As in real models, the embedding is larger than the tokenizer's vocabulary.
    assert config["vocab_size"] > VOCABULARY.size


def test_control_tokens_are_marked_as_in_qwen3() -> None:
    """ChatML is hidden from text; thinking and tool markup is part of it."""
    special = {VOCABULARY.added[i] for i in VOCABULARY.special}

    assert special == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    assert set(VOCABULARY.added.values()) - special == {
        *("<think>", "</think>", "<tool_call>", "</tool_call>"),
        *("<tool_response>", "</tool_response>"),
    }


def test_a_chat_is_chatml() -> None:
    """System, user, and the turn that the model is to write."""
    assert rendered({"role": "system", "content": "Be kind."}, HELLO) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_no_turn_is_opened_without_being_asked() -> None:
    """For training data, or to go on with an answer."""
    assert rendered(HELLO, add_generation_prompt=False) == "<|im_start|>user\nHello<|im_end|>\n"


def test_thinking_is_turned_off_by_an_empty_thought() -> None:
    """On, the model opens its thought itself."""
    assert rendered(HELLO, enable_thinking=True) == rendered(HELLO)
    assert rendered(HELLO, enable_thinking=False) == rendered(HELLO) + "<think>\n\n</think>\n\n"


def test_a_developer_speaks_as_the_system() -> None:
    """OpenAI's newer name for it."""
    messages = ({"role": role, "content": "x"} for role in ("system", "developer"))

    assert rendered(next(messages), HELLO) == rendered(next(messages), HELLO)


def test_tools_stand_in_the_system_turn() -> None:
    """After the system's own words, one JSON line each."""
    prompt = rendered({"role": "system", "content": "Be kind."}, HELLO, tools=[TOOL, TOOL])
    system, _, rest = prompt.partition("<|im_end|>\n")

    assert system.startswith("<|im_start|>system\nBe kind.\n\n# Tools\n")
    assert f"<tools>\n{json.dumps(TOOL)}\n{json.dumps(TOOL)}\n</tools>" in system
    assert rest == rendered(HELLO)


def test_tools_make_a_system_turn_of_their_own() -> None:
    """When nobody spoke as the system."""
    assert rendered(HELLO, tools=[TOOL]).startswith("<|im_start|>system\n# Tools\n")


def test_calls_and_results_are_told_in_the_familys_markup() -> None:
    """Arguments as an object or as JSON text; a run of results is one turn."""
    calls = [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}},
        {"type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}},
    ]
    results = ({"role": "tool", "content": text} for text in ("one", "two"))

    prompt = rendered(HELLO, {"role": "assistant", "content": "", "tool_calls": calls}, *results)
    assert prompt.removeprefix("<|im_start|>user\nHello<|im_end|>\n") == (
        '<|im_start|>assistant\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n"
        "<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_thoughts_are_kept_only_after_the_last_user_message() -> None:
    """A tool loop goes on thinking; an answered question is closed."""
    answer = {"role": "assistant", "content": "Hi.", "reasoning_content": "A greeting."}

    assert "<think>\nA greeting.\n</think>\n\nHi.<|im_end|>" in rendered(HELLO, answer)
    assert "A greeting." not in rendered(HELLO, answer, HELLO)
    assert "<|im_start|>assistant\nHi.<|im_end|>" in rendered(HELLO, answer, HELLO)


def test_thoughts_inside_the_content_are_thoughts() -> None:
    """For clients that send back what they got without a reasoning parser."""
    inside = {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHi."}
    apart = {"role": "assistant", "content": "Hi.", "reasoning_content": "A greeting."}

    assert rendered(HELLO, inside) == rendered(HELLO, apart)
    assert rendered(HELLO, inside, HELLO) == rendered(HELLO, apart, HELLO)


def test_an_unknown_role_is_refused() -> None:
    """Its words reach the client, so they name the role and the message."""
    with pytest.raises(jinja2.TemplateError, match="Unknown role 'robot' in message 1"):
        rendered(HELLO, {"role": "robot", "content": "x"})
