"""What a process sent where: bounded, forgotten in time, the longest common beginning."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.fleet.policies.prefix_index import PrefixIndex, block_hashes
from support.engines import FakeClock


def text(topic: int, length: int) -> tuple[int, ...]:
    """Return tokens that no other topic has."""
    return tuple(range(topic * 100_000, topic * 100_000 + length))


def test_memory_is_bounded() -> None:
    """However many prompts come, no more blocks are remembered than allowed."""
    index, clock = PrefixIndex(most=1000, ttl=1e9), FakeClock()
    for n in range(500):
        index.add(block_hashes(text(n, 320), 10, 100), f"w{n % 4}", clock())
        assert len(index) <= 1000


def test_what_is_used_outlives_what_is_not() -> None:
    """A block that is added again and again stays, one that is not goes."""
    index = PrefixIndex(most=100, ttl=1e9)
    hot, cold = list(block_hashes(text(1, 50), 10, 9)), list(block_hashes(text(2, 50), 10, 9))
    index.add(cold, "w0", 0)
    for n in range(100):
        index.add(hot, "w0", 0)
        index.add(block_hashes(text(100 + n, 50), 10, 9), "w1", 0)

    assert index.depths(hot, ["w0"]) == {"w0": 5}
    assert index.depths(cold, ["w0"]) == {"w0": 0}


def test_what_nobody_uses_is_forgotten() -> None:
    """After its time a block has no holder, and not before half of it."""
    index = PrefixIndex(most=100, ttl=60)
    block = list(block_hashes(text(1, 10), 10, 9))
    index.add(block, "w0", 0)
    index.add([1], "w0", 29)
    early = index.depths(block, ["w0"])
    index.add([1], "w0", 61)
    index.add([1], "w0", 92)
    late = index.depths(block, ["w0"])

    assert (early, late) == ({"w0": 1}, {"w0": 0})


@given(
    prompts=st.lists(
        st.tuples(st.lists(st.integers(0, 1), max_size=12), st.integers(0, 3)), max_size=20
    ),
    asked=st.lists(st.integers(0, 1), max_size=12),
)
def test_depths_are_the_longest_common_beginnings(
    prompts: list[tuple[list[int], int]], asked: list[int]
) -> None:
    """Against the plain definition: whole blocks of two that a worker was sent, from the start."""
    index = PrefixIndex(most=10_000, ttl=1e9)
    for prompt, worker in prompts:
        index.add(block_hashes(tuple(prompt), 2, 99), f"w{worker}", 0)
    hashes = list(block_hashes(tuple(asked), 2, 99))
    found = index.depths(hashes, [f"w{n}" for n in range(4)])

    for n in range(4):
        known = [tuple(prompt[: len(prompt) // 2 * 2]) for prompt, worker in prompts if worker == n]
        longest = 0
        for size in range(2, len(asked) + 1, 2):
            if any(prompt[:size] == tuple(asked[:size]) for prompt in known):
                longest = size // 2
        assert found[f"w{n}"] == longest


def test_blocks_of_an_encoders_array_are_those_of_its_numbers() -> None:
    """And what is in no whole block has no hash."""
    ids = (7, 2**32 - 1, 0, 5, 9)

    assert block_hashes(array("I", ids), 2, 9) == block_hashes(ids, 2, 9)
    assert len(set(block_hashes(ids, 2, 9))) == 2
    assert block_hashes(ids, 2, 9)[:1] == block_hashes(ids, 2, 1)
