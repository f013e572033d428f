"""Both clients against a mock server of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sglr_client.testing import MockServer
from sglr_client.testing.plugin import mock_server
from support.client_doors import QUICK, AsyncDoor, BlockingDoor, Door

__all__ = ["mock_server"]

OpenDoor = Callable[..., Door]


@pytest.fixture(params=[BlockingDoor, AsyncDoor], ids=["blocking", "asyncio"])
async def open_door(
    request: pytest.FixtureRequest, mock_server: MockServer
) -> AsyncIterator[OpenDoor]:
    """Opens a client to the mock server, or to another *url*; closed at the end."""
    doors: list[Door] = []

    def opened(url: str = mock_server.url, **settings: Any) -> Door:
        doors.append(request.param(url, **{"retry": QUICK, **settings}))
        return doors[-1]

    yield opened
    for door in doors:
        await door.aclose()


@pytest.fixture
def door(open_door: OpenDoor) -> Door:
    """A client to the mock server, quick to retry."""
    return open_door()
