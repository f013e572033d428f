"""Round robin: each in turn, whoever comes, goes or is left out."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.fleet.policies.named import new_policy
from sglr_dataplane.fleet.policies.round_robin import RoundRobin
from sglr_proto.backend import PolicyName, Routing
from support.fleets import a_job


@dataclass(frozen=True)
class Someone:
    """A candidate."""

    id: str
    in_flight: int = 0
    load: int = 0
    weight: float = 1.0


def someones(ids: str) -> list[Someone]:
    """Return a candidate for each letter."""
    return [Someone(letter) for letter in ids]


def choices(policy: RoundRobin, *groups: str) -> str:
    """Return whom *policy* chooses from each group."""
    return "".join(policy.choose(a_job(), someones(group)).id for group in groups)


def test_each_has_its_turn() -> None:
    """Three candidates take turns by id, in whatever order they are listed."""
    assert choices(RoundRobin(), "cab", "abc", "bca", "abc") == "abca"


def test_who_is_left_out_does_not_shift_the_round() -> None:
    """A retry without the first candidate moves on to the next; nobody has two turns."""
    assert choices(RoundRobin(), "abc", "bc", "abc", "abc") == "abca"


def test_who_comes_and_goes_keeps_its_place() -> None:
    """A new candidate has its turn in order, one that left is passed over."""
    assert choices(RoundRobin(), "bd", "abcd", "abcd", "ab", "ab") == "bcdab"


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), st.integers(1, 40))
def test_nobody_gets_more_than_one_turn_more_than_another(group: set[str], rounds: int) -> None:
    """Over any number of jobs the shares differ by one at most."""
    chosen = choices(RoundRobin(), *["".join(group)] * rounds)
    shares = [chosen.count(letter) for letter in group]

    assert max(shares) - min(shares) <= 1


def test_each_backend_has_a_policy_of_its_own() -> None:
    """The name of a policy gives a new one each time: rounds are not shared."""
    routing = Routing(policy=PolicyName.ROUND_ROBIN)
    first, second = (new_policy(routing, clock=float, chance=float) for _ in range(2))
    first.choose(a_job(), someones("ab"))

    assert second.choose(a_job(), someones("ab")).id == "a"
