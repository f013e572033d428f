"""Who asks: keys, and what a request's headers say of its sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.faults import fault_reply
from sglr_dataplane.errors import InvalidKeyError, TooManyRequestsError
from sglr_dataplane.fleet.caller import Caller
from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.in_flight import InFlight
from sglr_dataplane.fleet.rates import UNLIMITED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sglr_dataplane.fleet.backend_keys import BackendKeys
    from sglr_dataplane.fleet.keys import Key, Keys
    from sglr_dataplane.fleet.rates import Meter

PRIORITY_HEADER: Final = "x-sglr-priority"
"""``low``, ``normal`` or ``high``; a key says how high it may go."""
_PRIORITIES: Final = dict(Priority.__members__)
_SECRET: Final = frozenset({b"authorization", b"x-api-key", b"api-key", b"cookie"})


class Authentication:
    """Lets requests with a known key through, and takes the key off them; tells what is left.

    Nothing behind it sees a key: it can be neither logged nor sent to a worker.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        backend_keys: BackendKeys,
        meter: Meter,
        exempt: frozenset[str],
    ) -> None:
        """Wrap *app*; the paths in *exempt* need no key.

        A key of *keys* is good for every backend; one of *backend_keys* for those that have it.
        """
        self._app = app
        self._in_flight = InFlight()
        self._backend_keys = backend_keys
        self._keys = keys
        self._meter = meter
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find the caller; answer 401 to one without a key, or with one that nobody has."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        presented = ""
        if not _SECRET.isdisjoint(dict(scope["headers"])):
            presented = _presented(scope)
            scope["headers"] = [(k, v) for k, v in scope["headers"] if k not in _SECRET]
        if scope["path"] in self._exempt:
            await self._app(scope, receive, send)
            return
        owner = self._backend_keys.find(presented) if presented else None
        if owner is not None:
            scope["state"]["opens"] = owner
            # Where the router asks everybody for a key, a backend's own is good for it alone.
            scope["state"]["is_confined"] = self._keys.are_needed
        key = self._keys.find(presented) if presented and self._keys.are_needed else None
        if key is None and (owner is not None or not self._keys.are_needed):
            await self._app(scope, receive, send)
            return
        if key is None:
            scope["state"]["failure"] = InvalidKeyError.code
            await fault_reply(_refusal(presented), scope["path"])(scope, receive, send)
            return
        scope["state"]["key"] = key

        async def metered(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = self._meter.headers(key.name, key.rates)
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name.encode(), value.encode()) for name, value in told),
                ]
            await send(message)

        try:
            self._in_flight.enter(key.name, key.max_inflight)
        except TooManyRequestsError as failure:
            scope["state"]["failure"] = failure.code
            await fault_reply(failure, scope["path"])(scope, receive, metered)
            return
        try:
            await self._app(scope, receive, metered)
        finally:
            self._in_flight.leave(key.name)


def caller_of(scope: Scope, body: bytes) -> Caller:
    """Return who sent the request of *scope* with *body*."""
    key: Key | None = scope["state"].get("key")
    owner: tuple[str, frozenset[str]] | None = scope["state"].get("opens")
    headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
    # Without a key nobody vouches for a request: it may step back, but not ahead.
    highest = key.priority if key is not None else Priority.NORMAL
    wanted = _PRIORITIES.get(headers.get(PRIORITY_HEADER, "").upper(), Priority.NORMAL)
    return Caller(
        name=key.name if key is not None else owner[0] if owner is not None else "",
        priority=min(wanted, highest),
        headers=headers,
        body=body,
        models=key.models if key is not None else None,
        rates=key.rates if key is not None else UNLIMITED,
        is_confined=key is None and scope["state"].get("is_confined", False),
        opens=None if key is not None else owner[1] if owner is not None else frozenset(),
    )


def _refusal(presented: str) -> InvalidKeyError:
    return InvalidKeyError(
        "The API key is not valid here."
        if presented
        else "An API key is needed: send it as Authorization: Bearer KEY."
    )


def _presented(scope: Scope) -> str:
    """Return the key that came with the request; ``""`` when none did."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            return key.strip() if scheme.lower() == "bearer" else ""
        if name in {b"x-api-key", b"api-key"}:
            return str(value.decode("latin-1")).strip()
    return ""
