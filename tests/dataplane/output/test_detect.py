"""Which formats a model writes in."""

from __future__ import annotations

import pytest

from sglr_dataplane.output.detect import choose, detect

BAR = "\uff5c"


def names(template: str, name: str = "x", tokens: frozenset[str] = frozenset()) -> tuple[str, str]:
    """The names of the formats that are chosen, ``-`` for none."""
    chosen = detect(template, name, tokens)
    tool = chosen.tool.name if chosen.tool else "-"
    return tool, chosen.reasoning.name if chosen.reasoning else "-"


@pytest.mark.parametrize(
    ("template", "tool", "reasoning"),
    [
        ("<tool_call>{{ call | tojson }} <think>", "qwen", "qwen3"),
        ("<tool_call>\n<function={{ name }}>\n<parameter=", "qwen3_coder", "-"),
        ("{{ '<function=' }} <parameter= <think>", "qwen3_coder", "qwen3"),
        ("<seed:tool_call><function= <parameter=", "seed_oss", "seed_oss"),
        ("[gMASK]<sop><tool_call><arg_key><arg_value><think>", "glm45", "glm45"),
        (f"<{BAR}tool▁calls▁begin{BAR}> ```json", "deepseekv3", "-"),
        (f"<{BAR}tool▁calls▁begin{BAR}> ```json </think>", "deepseekv3", "deepseek-r1"),
        (f"<{BAR}tool▁calls▁begin{BAR}> </think>", "deepseekv31", "deepseek-v3"),
        (f"<{BAR}DSML{BAR}function_calls>", "deepseekv32", "deepseek-v3"),
        (f"<{BAR}DSML{BAR}tool_calls>", "deepseekv4", "deepseek-v3"),
        (f"<{BAR}DSML{BAR} calls>", "deepseekv41", "deepseek-v3"),
        ("<|start|>assistant<|channel|>", "gpt-oss", "gpt-oss"),
        ("[TOOL_CALLS] [THINK]", "mistral", "mistral"),
        ("<|python_tag|>", "llama3", "-"),
        ("<minimax:tool_call> <think>", "minimax-m2", "minimax"),
        ("]<]minimax[>[", "minimax-m3", "minimax-m3"),
        ("<|open|>think<|sep|><|close|>", "kimi_k3", "kimi_k3"),
        ("<|START_ACTION|>", "cohere_command4", "cohere_command4"),
        ("◁think▷", "-", "kimi"),
        ("{{ bos }}{{ content }}", "-", "-"),
    ],
)
def test_the_template_decides_by_the_markers_it_prints(
    template: str, tool: str, reasoning: str
) -> None:
    """A family is known by what its template prints."""
    assert names(template) == (tool, reasoning)


def test_a_marker_only_the_tokenizer_has_counts_where_no_template_prints_it() -> None:
    """Kimi K2's template leaves the section marker to the model."""
    assert names("{{ x }}", tokens=frozenset({"<|tool_calls_section_begin|>"})) == ("kimi_k2", "-")
    assert names("{{ x }}", tokens=frozenset({"<tool_call>", "<think>"})) == ("-", "-")


@pytest.mark.parametrize(
    ("name", "tool", "reasoning"),
    [
        ("Qwen/Qwen3-8B", "qwen", "qwen3"),
        ("Qwen/Qwen3-Coder-30B", "qwen3_coder", "-"),
        ("Qwen3-4B-Thinking-2507", "qwen", "qwen3-thinking"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseekv3", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseekv31", "deepseek-v3"),
        ("zai-org/GLM-4.6", "glm45", "glm45"),
        ("openai/gpt-oss-120b", "gpt-oss", "gpt-oss"),
        ("meta-llama/Llama-3.1-8B", "llama3", "-"),
        ("moonshotai/Kimi-K2-Thinking", "kimi_k2", "kimi_thinking"),
        ("my-model", "-", "-"),
    ],
)
def test_without_a_template_the_name_decides(name: str, tool: str, reasoning: str) -> None:
    """Names follow the families' own repositories."""
    assert names("", name) == (tool, reasoning)


def test_a_name_never_overrules_a_template() -> None:
    """Names are given by whoever deploys: an alias must not change the parser."""
    assert names("<tool_call>", "llama-3-alias") == ("qwen", "-")


def test_the_choice_says_why() -> None:
    """The log and /v1/models tell an operator what the choice rests on."""
    by_template = detect("<tool_call> <think>", "x", frozenset())
    by_name = detect("", "qwen3", frozenset())
    nothing = detect("plain", "x", frozenset())

    assert by_template.reason == "the chat template or the tokenizer has <tool_call>, <think>"
    assert by_name.reason.startswith("there is no chat template; the name has ")
    assert nothing.reason == "the chat template prints no marker of a known format"


@pytest.mark.parametrize(
    ("template", "wanted", "tool", "reasoning"),
    [
        ("", "auto", "glm47", "glm45"),
        ("<tool_call> <think>", "auto", "qwen", "qwen3"),
        ("<tool_call>", "auto", "qwen", "glm45"),
        ("", "none", "-", "-"),
    ],
)
def test_the_workers_word_goes_after_the_templates_and_before_the_name(
    template: str, wanted: str, tool: str, reasoning: str
) -> None:
    """For calls and thoughts each; what the spec says goes before all."""
    chosen = choose(wanted, wanted, template, "Llama-3.1-8B", frozenset()).told("glm47", "glm45")

    assert (chosen.tool.name if chosen.tool else "-") == tool
    assert (chosen.reasoning.name if chosen.reasoning else "-") == reasoning


def test_the_name_counts_when_the_workers_name_no_parser() -> None:
    """Null in their arguments, or nothing said, takes nothing away."""
    chosen = choose("auto", "auto", "", "Llama-3.1-8B", frozenset())

    assert chosen.told("", None) == chosen
    assert chosen.tool is not None
    assert chosen.tool.name == "llama3"
