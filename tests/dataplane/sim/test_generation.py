"""What ends a generation, in the order of the real engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.sim.generation import Finish, Limits, exactly, generate

if TYPE_CHECKING:
    from collections.abc import Sequence

EOS = 0
NO_LIMIT = Limits(max_new_tokens=1000, eos_ids=frozenset({EOS}))


class Letters:
    """A tokenizer whose ids 1 to 26 are the letters and 0 is EOS."""

    vocab_size = 27
    eos_ids = (EOS,)
    chooses_thinking = False

    def encode(self, text: str) -> tuple[int, ...]:
        """Return one id per letter."""
        return tuple(ord(letter) - 96 for letter in text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the letters, EOS as a full stop."""
        return "".join(chr(i + 96) if i else "." for i in ids)


TEXT = Letters()
HELLO = (*TEXT.encode("hello"), EOS)


@pytest.mark.parametrize(
    ("limits", "said", "finish"),
    [
        (NO_LIMIT, "hello.", Finish("stop", EOS)),
        (replace(NO_LIMIT, max_new_tokens=3), "hel", Finish("length")),
        (replace(NO_LIMIT, max_new_tokens=0), "", Finish("length")),
        # sglang looks at the length first, so an EOS in the last place does not count.
        (replace(NO_LIMIT, max_new_tokens=6), "hello.", Finish("length")),
        (replace(NO_LIMIT, stop_token_ids=frozenset({12})), "hel", Finish("stop", 12)),
        (replace(NO_LIMIT, stop=("lo",)), "hello", Finish("stop", "lo")),
        (replace(NO_LIMIT, stop=("xyz", "e")), "he", Finish("stop", "e")),
        (replace(NO_LIMIT, stop=("",)), "hello.", Finish("stop", EOS)),
        (replace(NO_LIMIT, min_new_tokens=8), "hellohello.", Finish("stop", EOS)),
        (replace(NO_LIMIT, max_new_tokens=9, ignore_eos=True), "hello.hel", Finish("length")),
        (
            replace(NO_LIMIT, max_new_tokens=4, ignore_eos=True, stop_token_ids=frozenset({8})),
            "hell",
            Finish("length"),
        ),
    ],
)
def test_limits_and_stops(limits: Limits, said: str, finish: Finish) -> None:
    """The stopping token and the tokens of the stop string are among the ids."""
    generated = generate(HELLO, limits, TEXT)

    assert TEXT.decode(generated.ids) == said
    assert generated.finish == finish


def test_a_wish_without_eos_just_stops() -> None:
    """Nothing matched, nothing was too long."""
    assert generate(HELLO[:-1], NO_LIMIT, TEXT).finish == Finish("stop")


def test_exact_ids_are_not_touched() -> None:
    """They end with the EOS that is in them, or with a plain stop."""
    assert exactly((5, 0, 6, 0), (0,)).finish == Finish("stop", 0)
    assert exactly((5, 6), (0,)).finish == Finish("stop")
    assert exactly((), (0,)).finish == Finish("stop")


@given(
    wish=st.lists(st.integers(0, 26), max_size=30),
    maximum=st.integers(0, 40),
    minimum=st.integers(0, 40),
    ignore=st.booleans(),
)
def test_limits_hold_for_any_wish(
    wish: list[int], maximum: int, minimum: int, *, ignore: bool
) -> None:
    """Never more than the maximum; no EOS before the minimum; ends for every input."""
    limits = Limits(maximum, minimum, ignore_eos=ignore, eos_ids=frozenset({EOS}))
    generated = generate(wish, limits, TEXT)

    assert len(generated.ids) <= maximum
    assert ignore or EOS not in generated.ids[:minimum]
    assert (generated.finish.reason == "length") == (len(generated.ids) == maximum)
