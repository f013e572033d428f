"""The prefix cache's counter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.sim.cache import PrefixCache

SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)


@given(known=st.lists(SEQUENCES, max_size=6), prompt=SEQUENCES)
def test_the_longest_known_prefix_counts(
    known: list[tuple[int, ...]], prompt: tuple[int, ...]
) -> None:
    """At most all tokens but the last, which is always computed."""
    cache = PrefixCache()
    for ids in known:
        cache.add(ids)
    prefixes = [ids[:length] for ids in known for length in range(len(ids) + 1)]
    longest = max((len(p) for p in prefixes if prompt[: len(p)] == p), default=0)

    assert cache.match(prompt) == min(longest, len(prompt) - 1)


def test_the_oldest_is_forgotten() -> None:
    """A cache has an end; what was used lately stays."""
    cache = PrefixCache()
    for number in range(129):
        cache.add((number, 1, 1))
        cache.add((0, 1, 1))

    assert cache.match((0, 1, 1)) == 2
    assert cache.match((1, 1, 1)) == 0
    assert cache.match((128, 1, 1)) == 2


def test_clearing_forgets_everything() -> None:
    """FlushCache."""
    cache = PrefixCache()
    cache.add((1, 2, 3))
    cache.clear()

    assert cache.match((1, 2, 3)) == 0
