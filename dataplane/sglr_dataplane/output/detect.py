"""Which formats a model writes in: from its chat template's markers, else from its name."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.families.deepseek import BAR
from sglr_dataplane.output.formats import (
    has_reasoning_format,
    has_tool_format,
    reasoning_format,
    tool_format,
)

AUTO: Final = "auto"
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The formats of one model, and why these."""

    tool: ToolFormat | None
    reasoning: ReasoningFormat | None
    reason: str
    """One clause for the log."""
    asks_tool: bool = False
    """Whether neither spec nor template told the format of calls: the workers' word counts."""
    asks_reasoning: bool = False
    """Whether neither told the format of thoughts."""

    def told(self, tool_call_parser: str | None, reasoning_parser: str | None) -> Chosen:
        """Return what is chosen when the workers name these parsers, or none.

        A name that is not known here says nothing.
        """
        tool, reasoning, reasons = self.tool, self.reasoning, [self.reason]
        if self.asks_tool and tool_call_parser and has_tool_format(tool_call_parser):
            tool = tool_format(tool_call_parser)
            reasons.append(f"the workers' tool_call_parser is {tool_call_parser}")
        if self.asks_reasoning and reasoning_parser and has_reasoning_format(reasoning_parser):
            reasoning = reasoning_format(reasoning_parser)
            reasons.append(f"the workers' reasoning_parser is {reasoning_parser}")
        return replace(self, tool=tool, reasoning=reasoning, reason="; ".join(reasons))


@dataclass(frozen=True, slots=True)
class Probe:
    """Formats, and the marks that a template of their models prints, all of them."""

    marks: tuple[str, ...]
    tool: str | None = None
    reasoning: str | None = None
    """None leaves it to the probes of reasoning."""


# The first whose marks are all there decides: what is more special stands first.
_TOOL_PROBES = (
    Probe(("<|open|>", "<|sep|>", "<|close|>"), "kimi_k3", "kimi_k3"),
    Probe((f"{BAR}GCML{BAR}",), "gigachat35", "gigachat35"),
    Probe((f"{BAR}DSML{BAR}", "function_calls"), "deepseekv32", "deepseek-v3"),
    Probe((f"{BAR}DSML{BAR}", "tool_calls>"), "deepseekv4", "deepseek-v4"),
    Probe((f"{BAR}DSML{BAR}", " calls"), "deepseekv41", "deepseek-v41"),
    Probe((f"<{BAR}tool▁calls▁begin{BAR}>", "```json", "</think>"), "deepseekv3", "deepseek-r1"),
    Probe((f"<{BAR}tool▁calls▁begin{BAR}>", "```json"), "deepseekv3"),
    Probe((f"<{BAR}tool▁calls▁begin{BAR}>", "</think>"), "deepseekv31", "deepseek-v3"),
    Probe((f"<{BAR}tool▁calls▁begin{BAR}>",), "deepseekv31"),
    Probe(("<|tool_calls_section_begin|>",), "kimi_k2"),
    Probe(("]<]minimax[>[",), "minimax-m3", "minimax-m3"),
    Probe(("<minimax:tool_call>",), "minimax-m2", "minimax"),
    Probe(("<rfl:parameter",), "beam", "beam"),
    Probe(("<|channel|>", "<|start|>"), "gpt-oss", "gpt-oss"),
    Probe(("<|tool_call>", "<|channel>"), "gemma4", "gemma4"),
    Probe(("<start_function_call>",), "functiongemma"),
    Probe(("<ifm|tool_call>",), "k2_horizon", "k2_horizon"),
    Probe(("<iquest_tool_call>",), "iquest_q1", "iquest_q1"),
    Probe(("<longcat_tool_call>",), "longcat", "longcat"),
    Probe(("<dots_function_call>",), "dots", "dots"),
    Probe(("<seed:tool_call>",), "seed_oss", "seed_oss"),
    Probe(("<steptml:invoke",), "step3", "step3"),
    Probe(("<atem:",), "muse", "muse"),
    Probe(("<|content_invoke_tool_json|>",), "inkling", "inkling"),
    Probe(("<|START_ACTION|>",), "cohere_command4", "cohere_command4"),
    Probe(("<cofl:tool_calls>",), "cohere_command4", "cohere_command4"),
    Probe(("<|tools_prefix|>",), "apertus2509", "apertus2509"),
    Probe(("<|action_start|>",), "interns1"),
    Probe(("<|tool_call_start|>",), "lfm2"),
    Probe(("<|tool_calls|>",), "sarashina"),
    Probe(("<tool_sep>",), "hunyuan", "hunyuan"),
    Probe(("<tool_calls>", "<arg_key>"), "hunyuan", "hunyuan"),
    Probe(("<tool_call>", "</arg_key><arg_value>"), "glm47", "glm45"),
    Probe(("<arg_key>", "<arg_value>"), "glm45", "glm45"),
    Probe(("<function=", "<parameter="), "qwen3_coder"),
    Probe(("<function name=", "<param name="), "minicpm5"),
    Probe(("[TOOL_CALLS]",), "mistral"),
    Probe(("<|python_start|>",), "pythonic"),
    Probe(("<|python_tag|>",), "llama3"),
    Probe(("<function_calls>",), "olmo3", "olmo3"),
    Probe(("<tool_calls>",), "hunyuan_a13b"),
    Probe(("<tool_response>", "<response>", "<tool_call>"), "ernie45", "ernie45"),
    Probe(("<|tool_call|>",), "granite"),
    Probe(("<function_call>",), "granite-20b-fc"),
    Probe(("functools[",), "phi4_mini_json"),
    Probe(("function call<|role_sep|>",), "gigachat3"),
    Probe(("<tool_call>",), "qwen"),
)
_REASONING_PROBES = (
    Probe(("<think>", "]~b]"), reasoning="minimax"),
    Probe(("<|START_THINKING|>",), reasoning="cohere_command4"),
    Probe(("<|inner_prefix|>",), reasoning="apertus2509"),
    Probe(("[THINK]",), reasoning="mistral"),
    Probe(("◁think▷",), reasoning="kimi"),
    Probe(("<seed:think>",), reasoning="seed_oss"),
    Probe(("Here is my thought process",), reasoning="granite"),
    Probe(("<think>",), reasoning="qwen3"),
    Probe(("</think>",), reasoning="qwen3"),
)
# Pattern in the lower-case name → tool format, reasoning format: only where no template tells.
_NAMES: tuple[tuple[str, str | None, str | None], ...] = (
    (r"gpt-?oss", "gpt-oss", "gpt-oss"),
    (r"deepseek-?v4\.1", "deepseekv41", "deepseek-v41"),
    (r"deepseek-?v4", "deepseekv4", "deepseek-v4"),
    (r"deepseek-?v3\.1|v3\.2-exp", "deepseekv31", "deepseek-v3"),
    (r"deepseek-?v3\.2", "deepseekv32", "deepseek-v3"),
    (r"deepseek-?r1", "deepseekv3", "deepseek-r1"),
    (r"deepseek-?v3", "deepseekv3", None),
    (r"kimi-?k3", "kimi_k3", "kimi_k3"),
    (r"kimi-?k2-thinking", "kimi_k2", "kimi_thinking"),
    (r"kimi-?k2", "kimi_k2", "kimi_k2"),
    (r"kimi", None, "kimi"),
    (r"qwen3-?coder|qwen3\.5", "qwen3_coder", None),
    (r"qwen3.*thinking|qwq", "qwen", "qwen3-thinking"),
    (r"qwen-?3", "qwen", "qwen3"),
    (r"qwen|hermes", "qwen", None),
    (r"glm-?(?:4\.[7-9]|[5-9])", "glm47", "glm45"),
    (r"glm-?4\.[5-6]", "glm45", "glm45"),
    (r"llama-?4", "pythonic", None),
    (r"llama-?3", "llama3", None),
    (r"magistral|ministral|mistral-large-3", "mistral", "mistral"),
    (r"mistral|mixtral|devstral", "mistral", None),
    (r"minimax-?m3", "minimax-m3", "minimax-m3"),
    (r"minimax|mm-m2", "minimax-m2", "minimax"),
    (r"step-?3\.5|step3p5", "qwen3_coder", "step3p5"),
    (r"step-?3", "step3", "step3"),
    (r"command|cohere|c4ai", "cohere_command4", "cohere_command4"),
    (r"nemotron|nano-v3", "qwen3_coder", "nemotron_3"),
    (r"seed-?oss", "seed_oss", "seed_oss"),
    (r"gemma-?4", "gemma4", "gemma4"),
    (r"functiongemma", "functiongemma", None),
    (r"olmo-?3", "olmo3", "olmo3"),
    (r"lfm-?2", "lfm2", None),
    (r"apertus", "apertus2509", "apertus2509"),
    (r"inkling", "inkling", "inkling"),
    (r"sarashina", "sarashina", None),
    (r"xlam", "xlam", None),
    (r"jamba", "hunyuan_a13b", None),
    (r"phi-?4-mini", "phi4_mini_json", None),
    (r"granite-?20b", "granite-20b-fc", None),
    (r"granite-?4", "granite4", "granite4"),
    (r"granite", "granite", "granite"),
    (r"longcat", "longcat", "longcat"),
    (r"ernie", "ernie45", "ernie45"),
    (r"exaone", "qwen", "exaone"),
    (r"hunyuan-a13b", "hunyuan_a13b", "hunyuan"),
    (r"hunyuan", "hunyuan", "hunyuan"),
)


def detect(template_text: str, model_name: str, added_tokens: AbstractSet[str]) -> Chosen:
    """Return the formats a model writes in.

    The chat template decides, because it prints the markers the model was trained on, with the
    tokenizer's added tokens for what a template leaves to the model. A name only counts where no
    template is: names are given by whoever deploys.

    Args:
        template_text: The chat template's source; empty when the model has none.
        model_name: The model's name.
        added_tokens: Texts of the tokenizer's added tokens.
    """
    if not template_text:
        return _by_name(model_name)
    tool = _first(_TOOL_PROBES, template_text, added_tokens)
    reasoning = tool if tool is not None and tool.reasoning is not None else None
    reasoning = reasoning or _first(_REASONING_PROBES, template_text, frozenset())
    if tool is None and reasoning is None:
        return Chosen(None, None, "the chat template prints no marker of a known format")
    marks = dict.fromkeys(mark for probe in (tool, reasoning) if probe for mark in probe.marks)
    return _chosen(
        tool.tool if tool else None,
        reasoning.reasoning if reasoning else None,
        f"the chat template or the tokenizer has {', '.join(marks)}",
    )


def choose(
    wanted_tool: str,
    wanted_reasoning: str,
    template_text: str,
    model_name: str,
    added_tokens: AbstractSet[str],
) -> Chosen:
    """Return the formats that a backend's spec wants: by name, ``none``, or ``auto``: detected.

    Raises:
        UnknownFormatError: A format is wanted that is not known.
    """
    found = detect(template_text, model_name, added_tokens)
    tool, reasoning, reasons = found.tool, found.reasoning, [found.reason]
    if wanted_tool != AUTO:
        tool = None if wanted_tool == NONE else tool_format(wanted_tool)
        reasons.append(f"spec.parsers.toolCall is {wanted_tool}")
    if wanted_reasoning != AUTO:
        reasoning = None if wanted_reasoning == NONE else reasoning_format(wanted_reasoning)
        reasons.append(f"spec.parsers.reasoning is {wanted_reasoning}")
    if AUTO not in (wanted_tool, wanted_reasoning):
        del reasons[0]
    return Chosen(
        tool,
        reasoning,
        "; ".join(reasons),
        asks_tool=wanted_tool == AUTO and (tool is None or not template_text),
        asks_reasoning=wanted_reasoning == AUTO and (reasoning is None or not template_text),
    )


def _first(
    probes: tuple[Probe, ...], template_text: str, added_tokens: AbstractSet[str]
) -> Probe | None:
    """Return the first probe whose marks are all there, at least one of them in the template.

    What the tokenizer has and the template never prints counts only for markers that no template
    needs to print: the model's tokenizer would not have them for another reason.
    """
    for probe in probes:
        printed = [mark in template_text for mark in probe.marks]
        if all(printed):
            return probe
        told = [mark in added_tokens and mark in _UNMISTAKABLE for mark in probe.marks]
        if all(a or b for a, b in zip(printed, told, strict=True)):
            return probe
    return None


_UNMISTAKABLE: Final = frozenset({"<|tool_calls_section_begin|>", "<|content_invoke_tool_json|>"})


def _by_name(model_name: str) -> Chosen:
    name = model_name.lower().replace("_", "-")
    for pattern, tool, reasoning in _NAMES:
        if re.search(pattern, name):
            return _chosen(tool, reasoning, f"there is no chat template; the name has {pattern!r}")
    return Chosen(None, None, "there is no chat template, and the name is of no known family")


def _chosen(tool: str | None, reasoning: str | None, reason: str) -> Chosen:
    return Chosen(
        tool_format(tool) if tool else None,
        reasoning_format(reasoning) if reasoning else None,
        reason,
    )
