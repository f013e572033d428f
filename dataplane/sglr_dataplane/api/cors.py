"""Calls from browsers: which pages may make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.middleware.cors import CORSMiddleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp

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


def open_to(origins: Sequence[str], app: ASGIApp) -> ASGIApp:
    """Return *app* for pages of *origins* to call; itself without any.

    Preflights come without a key, and errors and streams must be readable too: this is the
    outermost. Keys travel in a header, so that cookies, and with them ``*``'s danger, are never
    needed.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "OPTIONS"),
        # What a preflight asks for: SDKs send a dozen headers of their own.
        allow_headers=("*",),
        allow_credentials=False,
        expose_headers=_EXPOSED,
        max_age=_HOUR,
    )
