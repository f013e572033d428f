"""The formats by name, and what a forced call may look like."""

from __future__ import annotations

import pytest

from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import collect
from sglr_dataplane.output.families.declare import ToolFormat
from sglr_dataplane.output.formats import (
    UnknownFormatError,
    answer_formats,
    forced,
    reasoning_format,
    tool_format,
    tool_formats,
)
from sglr_dataplane.output.replay import Reader, by_character, one

SEARCH = ToolSignature("search", {"properties": {"query": {"type": "string"}}})
SGLANG = (
    "apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots "
    "gemma4 gigachat3 gigachat35 glm glm45 glm47 gpt-oss hermes hunyuan inkling interns1 iquest_q1 "
    "k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo minicpm5 minimax-m2 minimax-m3 mistral muse "
    "nanbeige poolside_v1 pythonic qwen qwen25 qwen3_coder spark25 step3 step3p5 trinity"
)
VLLM = (
    "deepseek_v3 deepseek_v31 deepseek_v32 ernie45 functiongemma granite granite-20b-fc granite4 "
    "hunyuan_a13b hy_v3 hy_v4 internlm jamba llama3_json llama4_json llama4_pythonic longcat "
    "minimax_m2 olmo3 openai phi4_mini_json qwen3_xml seed_oss xlam apertus cohere_command step5"
)
SMG = (
    "cohere deepseek deepseek31 deepseek32 deepseek_v4 deepseek_v41 glm45_moe glm47_moe json "
    "kimik2 llama minimax_m3 nemotron passthrough qwen_coder qwen_xml sarashina dots3 glm4 hy4 "
    "function_gemma iquest lfm2.5 ling llama_nemotron mistral_v13 plain qwen2.5 qwen3 qwen3_tagged"
)
REASONING = (
    "beam deepseek-r1 deepseek_r1 deepseek-v3 deepseek-v4 deepseek-v41 deepseek_v31 dots ernie45 gemma4 "
    "gigachat35 glm45 gpt-oss granite granite_thinking_parser hunyuan hunyuan_a13b inkling interns1 "
    "iquest_q1 k2_horizon kimi kimi_k2 kimi_k25 kimi_k3 kimi_thinking ling3 longcat mimo minimax "
    "minimax-append-think minimax-m3 mistral muse nano_v3 nanbeige nemotron_3 olmo3 openai_gptoss "
    "poolside_v1 qwen3 qwen3-thinking seed_oss step3 step3p5 apertus2509 cohere_command4 cohere_cmd"
)


@pytest.mark.parametrize("name", [*SGLANG.split(), *VLLM.split(), *SMG.split()])
def test_a_tool_parser_is_found_by_the_name_other_projects_give_it(name: str) -> None:
    """SGLang's, vLLM's and SMG's names all work, with hyphens or underscores."""
    assert tool_format(name) is tool_format(name.replace("_", "-").upper())


@pytest.mark.parametrize("name", REASONING.split())
def test_a_reasoning_parser_is_found_by_the_name_other_projects_give_it(name: str) -> None:
    """The same for reasoning."""
    assert reasoning_format(name) is reasoning_format(name.replace("_", "-"))


def test_no_two_formats_share_a_name() -> None:
    """A name means one format, whichever module declares it."""
    names = [name.lower().replace("_", "-") for name in tool_formats()]

    assert len(set(names)) == len(names)


def test_an_unknown_name_is_answered_with_those_that_exist() -> None:
    """A typing error in a backend's manifest is found at once."""
    with pytest.raises(UnknownFormatError, match="Tool parser 'qwenn' is unknown; known are "):
        tool_format("qwenn")
    with pytest.raises(UnknownFormatError, match="Reasoning parser 'x' is unknown; known are "):
        reasoning_format("x")


ARRAY = '[{"name": "search", "parameters": {"query": "]"}}, {"name": "search", "parameters": {}}]'


@pytest.mark.parametrize("native", [None, tool_format("qwen"), tool_format("pythonic")])
def test_a_forced_call_may_come_as_the_array_of_its_grammar(native: ToolFormat | None) -> None:
    """tool_choice required: the constrained output is parsed back, with any parser or none."""
    reader = Reader(forced(native), signatures=(SEARCH,))

    for cut in (one, by_character):
        calls = collect(reader.read(cut(ARRAY, frozenset()))).tool_calls
        assert [(c.name, c.arguments) for c in calls] == [
            ("search", '{"query": "]"}'),
            ("search", "{}"),
        ]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"query": "x"}', '{"query": "x"}'),
        ('{ "query" : {}}', '{ "query" : {}}'),
        ("{}", "{}"),
        ('{"name": "search", "parameters": {"query": "y"}}', '{"query": "y"}'),
        ('{"que', '{"que'),
    ],
)
def test_a_named_tool_may_come_as_nothing_but_its_arguments(text: str, arguments: str) -> None:
    """The other shape in use: the whole output is one call's arguments."""
    reader = Reader(forced(tool_format("qwen"), "search"), signatures=(SEARCH,))

    for cut in (one, by_character):
        (call,) = collect(reader.read(cut(text, frozenset()))).tool_calls
        assert (call.name, call.arguments) == ("search", arguments)


def test_a_model_that_is_forced_may_still_use_its_own_markup() -> None:
    """A structural tag in the model's format is a forced call as well."""
    text = '<tool_call>{"name": "search", "arguments": {}}</tool_call>'

    (call,) = collect(Reader(forced(tool_format("qwen"))).read(one(text, frozenset()))).tool_calls

    assert call.name == "search"


def test_a_forced_call_in_a_framed_answer_is_found_in_its_final_message() -> None:
    """gpt-oss frames whatever it says."""
    tools, reasoning = answer_formats("gpt-oss")
    text = f"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{ARRAY}"

    message = collect(Reader(forced(tools), reasoning).read(by_character(text, frozenset())))

    assert [c.name for c in message.tool_calls] == ["search", "search"]
    assert (message.reasoning, message.content) == ("hm", None)


def test_without_a_call_a_forced_answer_stays_text_and_finishes_as_it_did() -> None:
    """Required and nothing parsed: the client sees the raw text, not an empty list of calls."""
    message = collect(Reader(forced(None)).read(one("[]", frozenset())))

    assert (message.content, message.tool_calls) == ("[]", ())
    assert message.finish is not None
    assert message.finish.reason == "stop"
