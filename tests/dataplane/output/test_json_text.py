"""JSON as it comes: where a value ends, and whether it is one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.output.json_text import JsonScanner, is_json_object

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def scanned(text: str) -> tuple[int, bool, bool]:
    """Where a value ends that comes character by character, whether it did, and is JSON."""
    scanner = JsonScanner()
    end = 0
    while end < len(text) and not scanner.done:
        if scanner.scan(text[: end + 1], end) == end:
            break
        end += 1
    return end, scanner.done, scanner.valid


@given(
    value=st.dictionaries(st.text(max_size=3), VALUES, max_size=3) | st.lists(VALUES),
    indent=st.sampled_from([None, 1]),
)
def test_a_value_ends_where_the_standard_library_says(value: object, indent: int | None) -> None:
    """Whatever stands behind it, and however it is laid out."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)

    assert scanned(text + "} tail") == (len(text), True, True)


@given(text=st.text('{}[]",:01.eE-+tf \\un', max_size=12).map("[{}]".format))
def test_exactly_what_the_standard_library_reads_is_valid(text: str) -> None:
    """Near misses are no JSON; constants that only Python knows are not in the alphabet."""
    try:
        json.loads(text)
        is_json = True
    except ValueError:
        is_json = False

    end, done, valid = scanned(text)

    assert (done and valid and end == len(text)) == is_json


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1,}',
        '{"a" 1}',
        "[1,]",
        '{"a": 01}',
        "{a: 1}",
        '{"\\x": 1}',
        '{"\\u12x4": 1}',
        "{]",
        '{"a": tru}',
        "[NaN]",
    ],
)
def test_near_misses_are_no_objects(text: str) -> None:
    """Each breaks one rule of JSON."""
    assert not is_json_object(text)


def test_control_characters_in_strings_come_out_escaped() -> None:
    """JSON cannot hold them in any other way; everything else is passed on as it is."""
    scanner = JsonScanner()
    text = '{"a": "x\n\ty", \n "b": 1e5}'

    assert scanner.scan(text, 0) == len(text)
    assert scanner.drain() == '{"a": "x\\n\\ty", \n "b": 1e5}'
    assert scanner.valid


def test_nesting_of_any_depth_is_read() -> None:
    """A model that opens brackets forever costs no recursion."""
    text = "[" * 100_000 + "]" * 100_000
    scanner = JsonScanner()

    assert scanner.scan(text, 0) == len(text)
    assert scanner.done
    assert scanner.valid
