"""YAML is read within bounds, and what a parser would lose in silence is an error."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglr_proto.documents import MAX_BYTES, MAX_DEPTH, read_documents
from sglr_proto.errors import ManifestError


def refusal(text: str) -> str:
    """Return the sentence that *text* is refused with."""
    with pytest.raises(ManifestError) as caught:
        read_documents(text)
    return str(caught.value)


def doubling(levels: int, template: str, first: str) -> str:
    """Return YAML whose last line stands for 9 to the power of *levels* copies of the first."""
    lines = [f"a0: &a0 {first}"]
    lines += [
        f"a{level}: &a{level} " + template % ", ".join([f"*a{level - 1}"] * 9)
        for level in range(1, levels + 1)
    ]
    return "\n".join(lines)


def test_each_document_comes_with_its_place() -> None:
    """Documents are counted from 1, empty ones too; lines from 1."""
    assert read_documents("a: 1\n---\n---\n# c\nb: [x, 2.5, true, ~]\n") == [
        ("document 1 (line 1)", {"a": 1}),
        ("document 3 (line 5)", {"b": ["x", 2.5, True, None]}),
    ]


def test_anchors_and_merge_keys_work() -> None:
    """Whoever shares parts of a manifest by YAML's own means may go on doing so."""
    text = "a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, l: 3}\n"

    [(_, value)] = read_documents(text)

    assert value == {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 2}, "c": {"k": 1, "l": 3}}


def test_a_date_stays_a_string() -> None:
    """A model named like a date, possible or not, is a name."""
    [(_, value)] = read_documents("[2024-01-01, 2024-99-99]")

    assert value == ["2024-01-01", "2024-99-99"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: [1, 2\nc: 3", "(line 3, column 2)"),
        ("a: b: c", "The manifest is not YAML: mapping values are not allowed in this context"),
        ("a: 1\n\tb: 2", "(line 2, column 1)"),
        ("a: 'open", "found unexpected end of stream (line 1, column 9)"),
        ("a: *nowhere", "found undefined alias (line 1, column 4)"),
        ("a: 1\nb: x\0", "U+0000 stands in line 2, column 5; YAML does not allow it."),
        ("a: \ud800", "Half a surrogate pair stands in line 1, column 4; expected UTF-8."),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("a: !!int x", "Document 1 (line 1): a value does not fit its tag."),
        ("a: !!bool x", "Document 1 (line 1): a value does not fit its tag."),
        ("? [a]\n: 1", "found unhashable key"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_place(text: str, problem: str) -> None:
    """Syntax errors carry line and column; nothing but ManifestError comes out."""
    assert problem in refusal(text)


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: 2\na: 3", "{a: 1, 'a': 2}", "x: {y: [{a: 1, b: 2, a: 1}]}", "x: &r {a: 1, a: 2}"],
)
def test_a_key_that_stands_twice_is_refused(text: str) -> None:
    """One of the two values would be lost; the error names the key and both lines."""
    told = refusal(text)

    assert told.startswith("Document 1 (line 1): a stands twice, in line 1 and in line ")


@pytest.mark.parametrize(
    "text",
    [
        doubling(8, "[%s]", "[x, x, x, x, x, x, x, x, x]"),
        doubling(8, "{<<: [%s]}", "{x: 1}"),
        "a: &a [1, *a]",
        "a: &a {b: *a}",
        doubling(8, "[%s]", "[x]").replace("a0", "None"),
    ],
    ids=["lists", "merge keys", "endless list", "endless mapping", "anchor named None"],
)
def test_a_bomb_is_refused_before_it_grows(text: str) -> None:
    """What aliases stand for counts as often as it is named."""
    assert "above 300000 values, aliases followed." in refusal(text)


def test_sharing_below_the_bound_is_no_bomb() -> None:
    """9 to the power of 4 copies are within the bound."""
    [(_, value)] = read_documents(doubling(4, "[%s]", "x"))

    assert isinstance(value, dict)
    assert value["a4"][8][8][8][8] == "x"


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 100_000])
def test_deep_nesting_is_refused_without_recursion(depth: int) -> None:
    """One bracket too many is told by its line; a hundred thousand are no stack overflow."""
    assert "nest" in refusal("[" * depth + "]" * depth)


def test_nesting_up_to_the_bound_is_read() -> None:
    """The bound includes its limit."""
    [(_, value)] = read_documents("[" * MAX_DEPTH + "]" * MAX_DEPTH)

    for _ in range(MAX_DEPTH - 1):
        assert isinstance(value, list)
        [value] = value
    assert value == []


def test_size_is_bounded_in_bytes() -> None:
    """1 MiB of UTF-8 is read, one byte more is not."""
    comment = "# " + "é" * ((MAX_BYTES - 2) // 2)
    assert len(comment.encode()) == MAX_BYTES

    assert read_documents(comment) == []
    assert refusal(comment + "x") == (
        f"The manifest has {MAX_BYTES + 1} bytes; at most {MAX_BYTES} are read."
    )


@settings(deadline=None)  # a loaded machine is no failure
@given(st.text(alphabet="ab:-[]{}&*!'\"\n\t #<?|>%@`~0.\0\ud800\ufeff", max_size=60))
@example("!!timestamp x")
@example("!!binary é")
@example("!!float x")
@example("<<: 1")
@example("a: &a\nb: *a")
@example("? ? a")
@example("1" * 5000)
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever stands in the file, the only exception is ManifestError, with a sentence."""
    try:
        places = [place for place, _ in read_documents(text)]
    except ManifestError as error:
        places = [str(error)]

    assert all(places)
