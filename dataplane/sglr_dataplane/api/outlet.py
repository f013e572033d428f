"""The way out past ASGI: what is written here is on the connection when the call returns.

A ``send`` of ASGI takes a task that is awake, and waking one for each token costs more than all else
that is done for it. The server offers an outlet in the scope of a request, where its insides are
those that were verified; headers and the end of an answer go through ASGI in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

EXTENSION: Final = "sglr.outlet"
"""Its name among ASGI's extensions."""


class Outlet(Protocol):
    """Writes parts of the body of one answer whose headers were sent and whose end was not."""

    on_room: Callable[[], None] | None
    """Called when the client has read and the outlet is no longer full."""
    on_gone: Callable[[], None] | None
    """Called when the client leaves before its answer is complete."""

    @property
    def has_body(self) -> bool:
        """Whether all of the request's body has come, so that ``receive`` need not wait for it."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether the client does not read: write nothing more before :attr:`on_room`."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the client has left."""
        ...

    def write(self, part: bytes) -> None:
        """Write *part*, not empty; nothing once the client is gone."""
        ...


def outlet_of(scope: Scope) -> Outlet | None:
    """Return the outlet that the server offers for the request; None: only ASGI leads out."""
    # The extension's value is what this name stands for.
    return cast("Outlet | None", scope.get("extensions", {}).get(EXTENSION))
