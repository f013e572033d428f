"""Calls from browsers: which pages may make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXPOSED: Final = (
    "retry-after",
    "x-request-id",
    "x-sglr-warning",
    *(
        f"x-ratelimit-{word}-{of}"
        for word in ("limit", "remaining", "reset")
        for of in ("requests", "tokens", "output-tokens")
    ),
)
_HOUR: Final = 3600


def cors(origins: Sequence[str]) -> list[Middleware]:
    """Return the middleware that lets pages of *origins* call; nothing without any.

    It is the outermost: preflights come without a key, and errors and streams must be readable
    too. Keys travel in a header, so that cookies, and with them ``*``'s danger, are never needed.
    """
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST", "OPTIONS"),
            # What a preflight asks for: SDKs send a dozen headers of their own.
            allow_headers=("*",),
            allow_credentials=False,
            expose_headers=_EXPOSED,
            max_age=_HOUR,
        )
    ]
