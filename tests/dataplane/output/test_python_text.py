"""Python literals, rewritten as JSON."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.output.python_text import python_literal

LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=st.lists(LITERALS, max_size=4))
def test_what_repr_writes_is_read_back(value: list[object]) -> None:
    """Every literal that Python writes says the same in JSON."""
    text = python_literal(repr(value))

    assert text is not None
    assert json.loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        r"['a\n\t\x41\u00e9\U0001F600\'\"\\', r'\d', b'x', u'y']",
        "['a' 'b' \"c\"]",
        '["""two\nlines"""]',
        "[1_000, 0x1f, -2, +3, .5, 1., 1e3]",
        "[(1, 2), {'a': (), 1: 2}]",
    ],
)
def test_what_python_reads_is_read_alike(text: str) -> None:
    """Escapes, joined strings, long strings, every number; tuples are arrays."""
    expected = ast.literal_eval(text)
    said = python_literal(text)

    assert said is not None
    assert said.encode()
    plain = json.dumps(expected, default=lambda value: value.decode())
    assert json.loads(said) == json.loads(plain)


def test_json_words_are_read_too() -> None:
    """Models mix the two languages."""
    assert python_literal("[true, null, False, {'a': true}]") == '[true, null, false, {"a": true}]'


def test_half_a_surrogate_pair_stays_escaped() -> None:
    """UTF-8 cannot hold it, JSON can: both halves together are one character again."""
    assert python_literal(r"['\ud83d\ude00']") == r'["\ud83d\ude00"]'


@pytest.mark.parametrize(
    "text",
    ["[1, 2", "['a", "{1, 2}", "[" * 200, "[float('inf')]", "['a'] b", "5", "name", "[1 2]"],
)
def test_what_is_no_literal_is_refused(text: str) -> None:
    """None, and never an exception; plain numbers and names are not this function's."""
    assert python_literal(text) is None
