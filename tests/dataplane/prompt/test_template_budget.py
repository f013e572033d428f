"""No template, and no request, can make a rendering long, large or unsafe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest

from sglr_dataplane.errors import TemplateRefusalError
from sglr_dataplane.prompt.budget import RenderBudgetError, RenderLimits
from sglr_dataplane.prompt.template import ChatTemplate

HI = [{"role": "user", "content": "hi"}]
GROW = "{% set ns = namespace(v='x') %}{% for i in range(60) %}{% set ns.v = EXPR %}{% endfor %}"
SMALL = RenderLimits(steps=20_000, characters=200_000, seconds=5)

BOMBS = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "text in nested loops": "{% for a in range(999) %}{% for b in range(999) %}xxxxxxxxx"
    "{% endfor %}{% endfor %}",
    "recursive macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(40) }}",
    "macro text": "{% macro f() %}" + "x" * 9999 + "{% endmacro %}"
    "{% for a in range(9999) %}{% set y = f() %}{% endfor %}",
    "captured block": "{% set y %}{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}"
    "{% endset %}",
    "call block": "{% macro f() %}{% for a in range(9999) %}{{ caller() }}{% endfor %}"
    "{% endmacro %}{% call f() %}" + "x" * 9999 + "{% endcall %}",
    "string times": "{{ 'x' * 200000000 }}",
    "times string": "{{ 200000000 * 'x' }}",
    "list times": "{{ ([1] * 99999999) | length }}",
    "doubled by plus": GROW.replace("EXPR", "ns.v + ns.v"),
    "doubled by tilde": GROW.replace("EXPR", "ns.v ~ ns.v"),
    "doubled lists": GROW.replace("EXPR", "[ns.v, ns.v]"),
    "doubled tuples": GROW.replace("EXPR", "(ns.v, ns.v)"),
    "doubled dicts": GROW.replace("EXPR", "{'a': ns.v, 'b': ns.v}"),
    "doubled by dict()": GROW.replace("EXPR", "dict(a=ns.v, b=ns.v)"),
    "doubled views": GROW.replace("'x'", "{}").replace("EXPR", "dict(a=ns.v.items(),b=ns.v.items())"),
    "compared": GROW.replace("EXPR", "[ns.v, ns.v]") + "{{ ns.v == ns.v }}",
    "joined": "{{ (('x' * 9999) | list) | join('y' * 999) }}",
    "joined by method": "{{ ('y' * 9999).join(('x' * 9999) | list) }}",
    "replaced": "{{ ('x' * 9999) | replace('x', 'y' * 999) }}",
    "replaced by method": "{{ ('x' * 9999).replace('x', 'y' * 999) }}",
    "replaced nothing": "{{ ('x' * 9999).replace('', 'y' * 999) }}",
    "padded": "{{ 'x'.ljust(999999999) }}",
    "zeros": "{{ '1'.zfill(999999999) }}",
    "tabs": "{{ '\t'.expandtabs(999999999) }}",
    "formatted": "{{ ('{0}' * 999).format('x' * 9999) }}",
    "percent": "{{ ('%(a)s' * 999) % {'a': 'x' * 9999} }}",
    "mapped": "{{ range(99999) | map('replace', '0', 'y' * 99999) | list | length }}",
    "shared": "{{ range(9999) | map(attribute='x') | map('default', messages) | list | tojson }}",
    "shared text": "{{ range(99999) | map('string') | map('replace', '1', 'y' * 999) | list }}",
    "shared, sorted": "{{ range(9999) | map(attribute='x') | map('default', messages) | sort(attribute='0.role') }}",
    "shared, joined": "{{ range(9999) | map(attribute='x') | map('default', messages) | join }}",
    "messages times": "{{ messages * 99999 }}",
}  # fmt: skip


@pytest.mark.parametrize("template", BOMBS.values(), ids=BOMBS)
def test_a41_bombs_are_ended_by_the_budget(template: str) -> None:
    """Field failure A41: 400 within the limits, whatever the template multiplies."""
    started = time.monotonic()
    with pytest.raises(RenderBudgetError) as caught:
        ChatTemplate(template, limits=SMALL).render(HI)

    assert (caught.value.status, caught.value.param) == (400, "messages")
    assert caught.value.code == "render_budget_exceeded"
    assert time.monotonic() - started < SMALL.seconds


FORBIDDEN = [
    "{{ 10 ** 10 ** 9 }}",
    "{{ (2 ** 99) * (2 ** 99) * (2 ** 99) }}",
    "{{ 2.0 ** 999999999 }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 999999999) }}",
    "{{ '{a:>999999999}'.format_map({'a': 1}) }}",
    "{{ 'a' | center(999999999) }}",
    "{{ 'a' | indent(999999999) }}",
    "{{ 1 | round(999999999, 'floor') }}",
    "{{ [1] | tojson(indent=999999999) }}",
    "{{ [1] | batch(999999999, 'x') | list }}",
    "{{ [[1]] | sum(start=[]) }}",
    "{{ (1).to_bytes(999999999, 'big') }}",
    "{{ dict.fromkeys('ab') }}",
    "{{ range(999999999) }}",
    "{{ lipsum(n=9999) }}",
    "{{ 'x'.encode().ljust(999999999) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ raise_exception.__globals__.keys() }}",
    "{{ namespace.__init__.__globals__.keys() }}",
    "{{ messages.clear() }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ (messages | attr('__class__')).__mro__ }}",
]


@pytest.mark.parametrize("template", FORBIDDEN)
def test_a41_what_the_sandbox_forbids_is_refused(template: str) -> None:
    """Field failure A41: no escape by attributes, no computed widths, no huge numbers."""
    started = time.monotonic()
    messages = [dict(HI[0])]
    with pytest.raises(TemplateRefusalError):
        ChatTemplate(template).render(messages)

    assert messages == HI
    assert time.monotonic() - started < 10


def ticking(seconds: float) -> Iterator[float]:
    """Count *seconds* up with every look at the clock."""
    return (seconds * tick for tick in count())


def test_time_is_limited() -> None:
    """A rendering that takes too long is ended at its next step."""
    clock = ticking(0.1)
    template = ChatTemplate(
        "{% for x in range(99) %}{% endfor %}",
        limits=RenderLimits(seconds=5),
        clock=lambda: next(clock),
    )
    with pytest.raises(RenderBudgetError, match="5 seconds"):
        template.render(HI)

    assert 50 <= next(clock) / 0.1 <= 53


def test_the_budget_is_each_renderings_own() -> None:
    """What one request has used up is not missing in the next."""
    template = ChatTemplate(
        "{% for x in range(30) %}{{ x }}{% endfor %}", limits=RenderLimits(steps=40)
    )

    assert len({template.render(HI) for _ in range(10)}) == 1


def test_output_is_limited() -> None:
    """A prompt longer than any context is not made."""
    limits = RenderLimits(characters=1000)
    template = ChatTemplate("{{ messages[0].content }}{{ messages[0].content }}", limits=limits)

    assert len(template.render([{"content": "x" * 500}])) == 1000
    with pytest.raises(RenderBudgetError):
        template.render([{"content": "x" * 501}])


def test_long_histories_fit_the_limits() -> None:
    """Ten thousand messages and a megabyte of text are no attack."""
    text = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim ~ '\n' }}{% endfor %}"
    messages = [{"role": "user", "content": "x" * 100}] * 10_000

    assert len(ChatTemplate(text).render(messages)) == 10_000 * 107


def test_a_request_cannot_reach_the_budget() -> None:
    """The budget stands where no template and no kwarg can name it."""
    with pytest.raises(TemplateRefusalError):
        ChatTemplate("{{ self._TemplateReference__context.parent }}").render(HI)
