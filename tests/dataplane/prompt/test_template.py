"""Templates render as they would for the engine, and refuse in their own words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.errors import InvalidRequestError, TemplateRefusalError
from sglr_dataplane.prompt.conversation import Conversation, Message, Prompt, Tool, ToolChoice
from sglr_dataplane.prompt.rendering import rendered
from sglr_dataplane.prompt.template import BrokenTemplateError, ChatTemplate

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- '\\n' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>' ~ call.function.name ~ call.function.arguments | tojson }}
        {%- endfor %}
        {%- endgeneration %}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
HI = [{"role": "user", "content": "hi"}]


SUMMANDS = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    | st.integers(-9, 9)
    | st.sampled_from([0.5, -1.25])
    | st.booleans()
    | st.none()
    | st.lists(st.integers(0, 3), max_size=2)
)


def text_of(template: str, **names: Any) -> str:
    """Return what *template* renders for one user's message."""
    chat = ChatTemplate(template, special_tokens={"bos_token": "<s>"}, model="m")
    return chat.render(HI, kwargs=names)


def refusal_of(template: str) -> TemplateRefusalError:
    """Return what *template* refuses one user's message with."""
    with pytest.raises(TemplateRefusalError) as caught:
        text_of(template)
    return caught.value


def a_conversation(*messages: dict[str, Any], **fields: Any) -> Conversation:
    """Return the conversation of *messages* as they come off the wire."""
    return Conversation(tuple(msgspec.convert(list(messages), list[Message])), **fields)


def test_a_chat_becomes_its_markup() -> None:
    """Roles, content, calls and the start of the answer, worked out by hand."""
    arguments = '{"q": "é<b>", "n": 1}'
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": arguments}}
    prompt = rendered(
        a_conversation(
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "1"},
        ),
        ChatTemplate(CHATML),
    )

    assert prompt == Prompt(
        "<|im_start|>system\nBe kind.<|im_end|>\n"
        "<|im_start|>user\na<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>find{"q": "é<b>", "n": 1}<|im_end|>\n'
        "<|im_start|>tool\n1<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_tools_kwargs_and_continuations_have_their_places() -> None:
    """Tools are JSON without HTML escapes; thinking is a kwarg; the continuation stays apart."""
    tool = Tool("f", None, strict=False, function={"name": "f", "description": "a < b"})
    prompt = rendered(
        a_conversation(
            *HI,
            {"role": "assistant", "content": "So"},
            tools=(tool,),
            choice=ToolChoice("auto"),
            template_kwargs={"enable_thinking": False},
            add_generation_prompt=False,
            continue_final_message=True,
        ),
        ChatTemplate(CHATML),
    )

    assert prompt == Prompt(
        "<|im_start|>system\n"
        '{"type": "function", "function": {"name": "f", "description": "a < b"},'
        ' "defer_loading": null}\n<|im_end|>\n'
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "So",
    )


def test_without_a_generation_prompt_it_ends_after_the_last_message() -> None:
    """The request may ask for that."""
    prompt = rendered(a_conversation(*HI, add_generation_prompt=False), ChatTemplate(CHATML))

    assert prompt.text == "<|im_start|>user\nhi<|im_end|>\n"


def test_templates_that_want_flat_tools_get_them() -> None:
    """As for Mistral: wrapped first, then without OpenAI's wrapper."""
    mistral = "{% for tool in tools %}{{ tool.name.upper() }}{% endfor %}"
    tool = Tool("f", None, strict=False, function={"name": "f"})
    conversation = a_conversation(*HI, tools=(tool,), choice=ToolChoice("auto"))

    assert rendered(conversation, ChatTemplate(mistral)).text == "F"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}", "<s>hi"),
        ("{{ {'b': [1.0, True], 'a': None} | tojson }}", '{"b": [1.0, true], "a": null}'),
        ("{{ {'b': 1, 'a': '\u00e9'} | tojson(sort_keys=true, ensure_ascii=true) }}",
         '{"a": "\\u00e9", "b": 1}'),
        ("{{ {'a': [1]} | tojson(indent=1) }}", '{\n "a": [\n  1\n ]\n}'),
        ("{{ {'a': [1, 2]} | tojson(separators=(',', ':')) }}", '{"a":[1,2]}'),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
         "13"),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"),
        ("{% for x in 'ab' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
         "1/2False 2/2True "),
        ("{% for x in range(5) if x % 2 %}{{ loop.revindex }}{{ x }}{% else %}-{% endfor %}",
         "2113"),
        ("{% for k, v in {'a': 1}.items() %}{{ k ~ v ~ none }}{% endfor %}", "a1None"),
        ("{% set n = namespace(n=0) %}{% for x in [1, 2] %}{% set n.n = n.n + x %}{% endfor %}{{ n.n }}",
         "3"),
        ("{% macro f(a, b=2) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call f(1) %}!{% endcall %}",
         "12!"),
        ("{{ [1, 2] | join('-') }}{{ messages | map(attribute='role') | join(',') }}", "1-2user"),
        ("{{ ', '.join(messages | map(attribute='role')) }}{{ 'a'.replace('a', 'bb') }}",
         "userbb"),
        ("{{ '%s|%5d' % ('a', 5) }}{{ '{:>3}'.format('b') }}{{ '%s' | format('c') }}",
         "a|    5  bc"),
        ("{{ 'a\n  b' | indent(2, true) }}{{ (1.25) | round(1) }}{{ 'x' * 3 }}",
         "  a\n    b1.2xxx"),
        ("{{ documents is none }}{{ tools is none }}{{ x is defined }}", "TrueTrueFalse"),
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"),
        ("{{ messages[-1:] + [{'role': 'x'}] | list }}",
         "[{'role': 'user', 'content': 'hi'}, {'role': 'x'}]"),
        ("{{ strftime_now('%d %b %Y') }}", "29 Feb 2024"),
        ("{{ '<b>' }}{{ '<b>' | e }}", "<b>&lt;b&gt;"),
    ],
)  # fmt: skip
def test_templates_render_as_jinja_says(template: str, text: str) -> None:
    """What the budget is woven into changes no output."""
    chat = ChatTemplate(
        template,
        special_tokens={"bos_token": "<s>"},
        now=lambda: datetime(2024, 2, 29, tzinfo=UTC),
    )

    assert chat.render(HI) == text


@given(st.lists(SUMMANDS, min_size=2, max_size=5))
def test_sums_are_pythons(values: list[Any]) -> None:
    """However long a sum is and whatever is added, it is what adding two by two gives."""
    names = [f"v{at}" for at in range(len(values))]
    template = ChatTemplate("{{ (" + " + ".join(names) + ") | tojson }}")
    try:
        expected = reduce(add, values)
    except TypeError:
        with pytest.raises(TemplateRefusalError, match="TypeError"):
            template.render([], kwargs=dict(zip(names, values, strict=True)))
        return

    text = template.render([], kwargs=dict(zip(names, values, strict=True)))
    assert json.loads(text) == expected
    assert type(json.loads(text)) is type(expected)


def test_what_is_marked_as_markup_stays_so_in_a_sum() -> None:
    """What jinja2 escapes once something was declared safe, it escapes here."""
    assert text_of("{{ '<' + ('<' | safe) + '<' }}") == "&lt;<&lt;"
    assert text_of("{{ '<' + 'a' + '<' }}") == "<a<"


def test_methods_of_objects_come_before_their_keys() -> None:
    """A client that names a key like a method does not take the method from the template."""
    message = {"role": "user", "content": "hi", "items": "mine"}
    template = ChatTemplate(
        "{% for k, v in messages[0].items() %}{{ k }} {% endfor %}{{ messages[0].nothing }}"
        "{{ messages[0]['items'] }}{{ messages[0].role }}"
    )

    assert template.render([message]) == "role content items mineuser"


def test_a28_refusals_are_400_in_the_templates_words() -> None:
    """Field failure A28: what raise_exception says is what the client reads."""
    error = refusal_of("{{ raise_exception('Conversation roles must alternate') }}")

    assert (error.status, error.param) == (400, "messages")
    assert error.message == "Conversation roles must alternate"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ nobody.name }}", "UndefinedError: 'nobody' is undefined"),
        ("{{ messages[0].nothing.more }}", "has no attribute 'nothing'"),
        ("{{ 'a' + messages }}", "TypeError"),
        ("{{ nobody | tojson }}", "TypeError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages[9].role }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ 'x'.index('y') }}", "ValueError"),
        ("{% include 'other' %}", "TypeError"),
        ("{% for a in 5 %}{% endfor %}", "TypeError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ],
)
def test_a28_failures_are_400_and_say_that_the_template_failed(template: str, words: str) -> None:
    """Field failure A28: a template's bug is no 500, which clients would send again."""
    error = refusal_of(template)

    assert (error.status, error.param) == (400, "messages")
    assert "chat template of this model cannot render" in error.message
    assert words in error.message


def test_a28_a_model_without_a_template_is_named(tmp_path: Path) -> None:
    """Field failure A28: nothing is made up; the sentence names the model."""
    template = ChatTemplate.from_dir(tmp_path, model="base-7b")
    with pytest.raises(InvalidRequestError, match="'base-7b' has no chat template") as caught:
        rendered(a_conversation(*HI), template)

    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_a28_tools_are_not_dropped_by_templates_that_ignore_them() -> None:
    """Field failure A28: a template that never looks at tools cannot offer any."""
    tool = Tool("f", None, strict=False, function={"name": "f"})
    conversation = a_conversation(*HI, tools=(tool,), choice=ToolChoice("auto"))
    with pytest.raises(InvalidRequestError) as caught:
        rendered(conversation, ChatTemplate("{{ messages[0].content }}"))

    assert caught.value.param == "tools"


def test_an_empty_prompt_never_leaves() -> None:
    """A real engine's process ends on an empty prompt."""
    with pytest.raises(TemplateRefusalError, match="empty prompt"):
        rendered(a_conversation(*HI), ChatTemplate("{% if false %}{% endif %}"))


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "string"),
        ("{% for p in message.content %}{% endfor %}", "openai"),
        ("{% for p in message['content'] | list %}{% endfor %}", "openai"),
        ("{% for p in msg.content[1:] %}{% endfor %}", "openai"),
        ("{% for p in m['content'] if p %}{% endfor %}", "openai"),
        ("{% for p in other.content %}{% endfor %}", "string"),
        ("{% for p in message.tool_calls %}{% endfor %}", "string"),
        ("{# shows an image #}", "openai"),
    ],
)
def test_the_content_format_is_read_off_the_template(template: str, form: str) -> None:
    """As SGLang: media words, or a loop over a message's content, mean parts."""
    assert ChatTemplate(template).content_format == form


def test_features_are_read_off_the_template() -> None:
    """What a template looks at, for checks and reports."""
    template = ChatTemplate(CHATML)

    assert template.reads("tools")
    assert template.reads("enable_thinking")
    assert not template.reads("thinking")
    assert not template.knows_developer
    assert ChatTemplate("{% if m.role == 'developer' %}{% endif %}").knows_developer


@pytest.mark.parametrize("text", ["{% for %}", "{{ x", "{{ 'a' | lipstick }}", "{% endif %}"])
def test_a_broken_template_is_told_when_it_is_loaded(text: str) -> None:
    """Loading names the model and the place; no request has to find out."""
    with pytest.raises(BrokenTemplateError, match="'m' does not compile in line 1"):
        ChatTemplate(text, model="m")


CONFIG = "tokenizer_config.json"


def a_directory(path: Path, files: dict[str, Any]) -> Path:
    """Write *files* to *path*: text as it is, anything else as JSON."""
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        file.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({CONFIG: {"chat_template": "config"}}, "config"),
        ({CONFIG: {"chat_template": "config"}, "chat_template.jinja": "own"}, "own"),
        ({"chat_template.json": {"chat_template": "legacy"}}, "legacy"),
        ({CONFIG: {"chat_template": "c"}, "chat_template.json": {"chat_template": "l"}}, "c"),
        ({CONFIG: {"chat_template": [{"name": "default", "template": "named"}]}}, "named"),
        ({CONFIG: {}}, None),
    ],
)
def test_the_template_is_found_where_transformers_finds_it(
    tmp_path: Path, files: dict[str, Any], text: str | None
) -> None:
    """chat_template.jinja, then tokenizer_config.json, then chat_template.json."""
    assert ChatTemplate.from_dir(a_directory(tmp_path, files)).text == text


@pytest.mark.parametrize(
    "files",
    [
        {CONFIG: {"chat_template": [
            {"name": "default", "template": "plain"},
            {"name": "tool_use", "template": "with {{ tools | length }}"},
        ]}},
        {"chat_template.jinja": "plain",
         "additional_chat_templates/tool_use.jinja": "with {{ tools | length }}"},
    ],
)  # fmt: skip
def test_requests_with_tools_have_their_own_template(tmp_path: Path, files: dict[str, Any]) -> None:
    """The template named tool_use is used when there are tools."""
    template = ChatTemplate.from_dir(a_directory(tmp_path, files))

    assert template.render(HI) == "plain"
    assert template.render(HI, [{"type": "function"}]) == "with 1"


def test_special_tokens_are_strings_or_added_tokens(tmp_path: Path) -> None:
    """Both shapes of the config, and the map beside it, give the template its names."""
    config = {"bos_token": {"__type": "AddedToken", "content": "<B>"}, "pad_token": None}
    files = {
        CONFIG: {**config, "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}"},
        "special_tokens_map.json": {"eos_token": "<E>", "bos_token": "<old>"},
    }

    assert ChatTemplate.from_dir(a_directory(tmp_path, files)).render(HI) == "<B><E>"


@pytest.mark.parametrize(
    "files",
    [
        {CONFIG: "{"},
        {CONFIG: "[]"},
        {CONFIG: {"chat_template": 5}},
        {CONFIG: {"chat_template": [{"name": "x"}]}},
        {"chat_template.jinja": "{{"},
    ],
)
def test_broken_files_are_told_when_they_are_loaded(tmp_path: Path, files: dict[str, Any]) -> None:
    """A directory that cannot be read is one error, whatever is wrong with it."""
    with pytest.raises(BrokenTemplateError):
        ChatTemplate.from_dir(a_directory(tmp_path, files))
