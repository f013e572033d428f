"""The policies by the names a SGLangBackend gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sglr_dataplane.fleet.policies.round_robin import RoundRobin
from sglr_proto.backend import PolicyName

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.fleet.policies import Policy

_POLICIES: Final[dict[PolicyName, Callable[[], Policy]]] = {PolicyName.ROUND_ROBIN: RoundRobin}


def new_policy(name: PolicyName) -> Policy:
    """Return a policy of its own for one backend."""
    return _POLICIES[name]()
