"""Stop strings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.output.stop import Cut, StopMatcher


def run(stops: list[str], chunks: list[str], *, trim: bool = True) -> tuple[list[str], str | None]:
    """Return what each chunk released (the flush last) and the stop string that matched."""
    matcher = StopMatcher(stops, trim=trim)
    released = ["".join(p.text for p in matcher.feed([Cut(chunk)])) for chunk in chunks]
    if matcher.matched is None:
        released.append("".join(p.text for p in matcher.last(())))
    return released, matcher.matched


def test_text_is_cut_at_the_first_occurrence() -> None:
    """Nothing of a stop string, and nothing after it, is shown."""
    assert run(["END"], ["one END two END"]) == (["one "], "END")


def test_the_stop_string_stays_when_it_is_not_trimmed() -> None:
    """With no_stop_trim the text ends with the stop string."""
    assert run(["END"], ["one E", "ND two"], trim=False) == (["one ", "END"], "END")


def test_a_stop_string_across_three_pieces_is_found() -> None:
    """Where the tokens are cut does not matter."""
    assert run(["</s>"], ["hi<", "/s", "> there"]) == (["hi", "", ""], "</s>")


def test_only_a_possible_beginning_is_held_back() -> None:
    """Text is never delayed by more than what may still become a stop string."""
    assert run(["abcabd"], ["xxabcab"]) == (["xx", "abcab"], None)
    assert run(["abcabd"], ["xxabcab", "c"]) == (["xx", "abc", "abc"], None)


def test_the_stop_string_that_is_complete_first_counts() -> None:
    """Of several, the earliest end wins, not the first in the list."""
    assert run(["abcdef", "cd"], ["abcdef"]) == (["ab"], "cd")


def test_of_two_that_end_together_the_longer_one_counts() -> None:
    """The text is cut as early as a stop string allows."""
    assert run(["d", "bcd"], ["abcd"]) == (["a"], "bcd")


def test_a_special_token_keeps_its_id_when_it_was_held_back() -> None:
    """Holding back does not turn markup into prose."""
    matcher = StopMatcher(["<a>b"], trim=True)

    held = matcher.feed([Cut("<a>", 7)])
    released = matcher.feed([Cut("c")])

    assert list(held) == []
    assert [(p.text, p.token_id) for p in released] == [("<a>", 7), ("c", None)]


def test_a_stop_string_that_is_passed_over_counts_only_from_where_it_is_fed() -> None:
    """Complete before: no match. Complete after, be it begun before or within another: one."""
    for passed, fed, shown, matched in (
        ("xENDy", "z", "xENDyz", None),
        ("xEND", "yENDz", "xENDy", "END"),
        ("xEN", "Dy", "x", "END"),
        ("aaa", "a", "aa", "aa"),
        ("ENDEND", "", "ENDEND", None),
    ):
        matcher = StopMatcher(["END", "aa"], trim=True)
        pieces = [*matcher.pass_over([Cut(passed)]), *matcher.feed([Cut(fed)])]
        if matcher.matched is None:
            pieces += matcher.last(())

        assert "".join(piece.text for piece in pieces) == shown, passed
        assert matcher.matched == matched, passed


@given(
    text=st.text("ab<>", max_size=40),
    stops=st.lists(st.text("ab<>", min_size=1, max_size=5), max_size=3, unique=True),
    cuts=st.lists(st.integers(1, 4), max_size=40),
)
def test_any_chunking_shows_the_text_before_the_first_complete_stop_string(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    """What is shown equals the plain definition, computed on the whole text."""
    chunks: list[str] = []
    rest = text
    for size in cuts:
        chunks.append(rest[:size])
        rest = rest[size:]
    chunks.append(rest)
    ends = [(text.find(s) + len(s), -len(s), s) for s in stops if s in text]
    first = min(ends, default=None)
    expected = text if first is None else text[: first[0] + first[1]]

    released, matched = run(stops, chunks)

    assert "".join(released) == expected
    assert matched == (first[2] if first else None)
