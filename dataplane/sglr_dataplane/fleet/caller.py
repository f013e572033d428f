"""Who sends a job, as far as choosing its worker and its place in the queue goes; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sglr_proto.backend import PolicyName, Routing


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of one request."""

    name: str = ""
    """Whose key it came with; ``""`` when nobody knows. Callers of one name share what is fair."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The request's headers, by their names in lower case."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """The body's fields that a policy may go by, by name; only those that are there."""


NOBODY: Final = Caller()
"""A sender of whom nothing is known."""


def routing_key(routing: Routing, caller: Caller) -> str:
    """Return what *routing*'s policy goes by for a request of *caller*; ``""`` when there is none."""
    if routing.policy is PolicyName.SESSION_STICKY:
        return caller.headers.get(routing.session_sticky.header.lower(), "")
    wanted = routing.consistent_hash
    if routing.policy is not PolicyName.CONSISTENT_HASH or wanted is None:
        return ""
    if wanted.header is not None and (key := caller.headers.get(wanted.header.lower())):
        return key
    return caller.fields.get(wanted.body_field, "") if wanted.body_field is not None else ""
