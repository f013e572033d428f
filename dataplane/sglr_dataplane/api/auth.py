"""Who asks: keys, and what a request's headers say of its sender."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, overload

from sglr_dataplane.errors import InvalidKeyError
from sglr_dataplane.fleet.caller import Caller
from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.in_flight import InFlight
from sglr_dataplane.fleet.rates import UNLIMITED

if TYPE_CHECKING:
    from sglr_dataplane.api.exchange import Exchange, Headers
    from sglr_dataplane.fleet.backend_keys import BackendKeys
    from sglr_dataplane.fleet.keys import Key, Keys
    from sglr_dataplane.fleet.rates import Meter

T = TypeVar("T")

PRIORITY_HEADER: Final = b"x-sglr-priority"
"""``low``, ``normal`` or ``high``; a key says how high it may go."""
_PRIORITIES: Final = {name.encode(): each for name, each in Priority.__members__.items()}
_SECRET: Final = frozenset({b"authorization", b"x-api-key", b"api-key", b"cookie"})


class Guard:
    """Lets requests with a known key through, and takes the key off them; tells what is left.

    Nothing behind it sees a key: it can be neither logged nor sent to a worker.
    """

    def __init__(self, *, keys: Keys, backend_keys: BackendKeys, meter: Meter) -> None:
        """Know keys: one of *keys* is good for all backends, one of *backend_keys* for its own."""
        self._in_flight = InFlight()
        self._backend_keys = backend_keys
        self._keys = keys
        self._meter = meter

    def disarm(self, exchange: Exchange) -> str:
        """Take the key off *exchange*, and return it; ``""`` when it came without one."""
        presented = _presented(exchange.headers)
        exchange.rid_of_keys([(k, v) for k, v in exchange.headers if k not in _SECRET])
        return presented

    def admit(self, exchange: Exchange) -> None:
        """Find the caller of *exchange* by the key that it came with, and take that off it.

        Raises:
            InvalidKeyError: A key is needed, and there is none, or one that nobody has.
            TooManyRequestsError: The caller has as many requests under way as it may have.
        """
        presented = "" if _SECRET.isdisjoint(exchange.fields) else self.disarm(exchange)
        are_needed = self._keys.are_needed
        owner = self._backend_keys.find(presented) if presented else None
        if owner is not None:
            exchange.opens = owner
            # Where the router asks everybody for a key, a backend's own is good for it alone.
            exchange.is_confined = are_needed
        if not are_needed:
            return
        key = self._keys.find(presented) if presented else None
        if key is not None:
            exchange.rates = partial(self._meter.headers, key.name, key.rates)
            self._in_flight.enter(key.name, key.max_inflight)
            exchange.key = key
        elif owner is None:
            raise _refusal(presented)

    def leave(self, key: Key) -> None:
        """Count a request that was admitted with *key* no more."""
        self._in_flight.leave(key.name)


class HeaderTexts(Mapping[str, str]):
    """A request's headers as texts; what nobody asks for is not decoded."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        """Read *fields*, whose names are in lower case."""
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.encode()].decode("latin-1")

    @overload
    def get(self, name: str, /) -> str | None: ...

    @overload
    def get(self, name: str, /, default: str | T) -> str | T: ...

    def get(self, name: str, /, default: str | T | None = None) -> str | T | None:
        """Return the header *name*, in lower case; *default* when there is none."""
        found = self._fields.get(name.encode())
        return default if found is None else found.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def caller_of(exchange: Exchange) -> Caller:
    """Return who sent the request of *exchange*; call after its body was read."""
    key, owner = exchange.key, exchange.opens
    # Without a key nobody vouches for a request: it may step back, but not ahead.
    priority = key.priority if key is not None else Priority.NORMAL
    wanted = _PRIORITIES.get(exchange.fields.get(PRIORITY_HEADER, b"").upper(), Priority.NORMAL)
    return Caller(
        name=key.name if key is not None else owner[0] if owner is not None else "",
        priority=min(wanted, priority),
        headers=HeaderTexts(exchange.fields),
        body=exchange.text or b"",
        models=key.models if key is not None else None,
        rates=key.rates if key is not None else UNLIMITED,
        is_confined=key is None and exchange.is_confined,
        opens=None if key is not None else owner[1] if owner is not None else frozenset(),
    )


def _refusal(presented: str) -> InvalidKeyError:
    return InvalidKeyError(
        "The API key is not valid here."
        if presented
        else "An API key is needed: send it as Authorization: Bearer KEY."
    )


def _presented(headers: Headers) -> str:
    """Return the key that came with the request; ``""`` when none did."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            return key.strip() if scheme.lower() == "bearer" else ""
        if name in {b"x-api-key", b"api-key"}:
            return value.decode("latin-1").strip()
    return ""
