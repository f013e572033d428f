"""The policies by the names a SGLangBackend gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sglr_dataplane.fleet.policies.affinity import ConsistentHash, PrefixHash, SessionSticky
from sglr_dataplane.fleet.policies.cache_aware import CacheAware
from sglr_dataplane.fleet.policies.least_request import LeastRequest, Random
from sglr_dataplane.fleet.policies.round_robin import RoundRobin
from sglr_proto.backend import PolicyName
from sglr_proto.duration import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.fleet.policies import Policy
    from sglr_proto.backend import Routing

    Clock = Callable[[], float]
    Chance = Callable[[], float]


def new_policy(routing: Routing, *, clock: Clock, chance: Chance) -> Policy:
    """Return a policy of its own for one backend.

    Args:
        routing: Which one, and its settings.
        clock: Seconds that only go up.
        chance: A number in ``[0, 1)``.
    """
    return _MAKERS[routing.policy](routing, clock, chance)


def _cache_aware(routing: Routing, clock: Clock, _chance: Chance) -> Policy:
    wanted = routing.cache_aware
    return CacheAware(
        block_tokens=wanted.block_tokens,
        load_tokens=wanted.load_tokens,
        slack=wanted.slack,
        most_blocks=wanted.max_blocks,
        ttl=seconds(wanted.ttl),
        clock=clock,
    )


def _prefix_hash(routing: Routing, _clock: Clock, _chance: Chance) -> Policy:
    wanted = routing.prefix_hash
    return PrefixHash(prefix_tokens=wanted.prefix_tokens, factor_percent=wanted.load_factor_percent)


def _consistent_hash(routing: Routing, _clock: Clock, chance: Chance) -> Policy:
    assert routing.consistent_hash is not None  # noqa: S101  # the spec refuses the policy without
    factor = routing.consistent_hash.load_factor_percent
    return ConsistentHash(LeastRequest(chance), factor_percent=factor)


def _session_sticky(routing: Routing, clock: Clock, chance: Chance) -> Policy:
    wanted = routing.session_sticky
    return SessionSticky(
        LeastRequest(chance), idle=seconds(wanted.idle), most=wanted.max_sessions, clock=clock
    )


_MAKERS: Final[dict[PolicyName, Callable[[Routing, Clock, Chance], Policy]]] = {
    PolicyName.CACHE_AWARE: _cache_aware,
    PolicyName.LEAST_REQUEST: lambda _routing, _clock, chance: LeastRequest(chance),
    PolicyName.ROUND_ROBIN: lambda _routing, _clock, _chance: RoundRobin(),
    PolicyName.RANDOM: lambda _routing, _clock, chance: Random(chance),
    PolicyName.PREFIX_HASH: _prefix_hash,
    PolicyName.CONSISTENT_HASH: _consistent_hash,
    PolicyName.SESSION_STICKY: _session_sticky,
}
