"""Who sends a job, as far as choosing its worker and its place in the queue goes; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.rates import UNLIMITED, Rates
from sglr_proto.backend import BodyField, PolicyName, Routing, SGLangBackend


class Caller(msgspec.Struct, frozen=True, gc=False):
    """The sender of one request."""

    name: str = ""
    """Whose key it came with; ``""`` when nobody knows. Callers of one name share what is fair."""
    priority: Priority = Priority.NORMAL
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """The request's headers, by their names in lower case."""
    body: bytes = b""
    """The request's body, JSON."""
    models: frozenset[str] | None = None
    """The models it may use; None: all."""

    rates: Rates = UNLIMITED
    """What it may use in a minute."""
    opens: frozenset[str] | None = frozenset()
    """The backends whose own keys it came with; None: all, with a key of the router itself."""
    is_confined: bool = False
    """Whether it may use those backends and no others."""

    def __repr__(self) -> str:
        return f"<Caller {self.name!r} {self.priority.name}>"

    def may_use(self, model: str) -> bool:
        """Return whether it may use *model*."""
        return self.models is None or model in self.models

    def may_enter(self, backend: SGLangBackend) -> bool:
        """Return whether it has a key, if *backend* or the router asks for one."""
        if not self.is_confined and not backend.spec.auth.key_secret_refs:
            return True
        return self.opens is None or backend.key in self.opens


_STICKY: Final = PolicyName.SESSION_STICKY
_BY_KEY: Final = PolicyName.CONSISTENT_HASH

NOBODY: Final = Caller()
"""A sender of whom nothing is known."""


def routing_key(routing: Routing, caller: Caller) -> str:
    """Return what *routing*'s policy goes by for a request of *caller*; ``""`` when there is none."""
    if routing.policy is _STICKY:
        return caller.headers.get(routing.session_sticky.header.lower(), "")
    wanted = routing.consistent_hash
    if routing.policy is not _BY_KEY or wanted is None:
        return ""
    if wanted.header is not None and (key := caller.headers.get(wanted.header.lower())):
        return key
    return _field(caller.body, wanted.body_field) if wanted.body_field is not None else ""


class _Fields(msgspec.Struct):
    """The fields of a body that a policy may go by; the others are not decoded."""

    user: str | None = None
    prompt_cache_key: str | None = None


def _field(body: bytes, name: BodyField) -> str:
    try:
        found = msgspec.json.decode(body, type=_Fields)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""  # the walk that reads the whole body says what is wrong with it
    return (found.user if name is BodyField.USER else found.prompt_cache_key) or ""
