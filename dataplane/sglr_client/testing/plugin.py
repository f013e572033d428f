"""A pytest plugin: ``pytest_plugins = ["sglr_client.testing.plugin"]``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sglr_client.testing.server import MockServer


@pytest.fixture
def mock_server() -> Iterator[MockServer]:
    """A mock inference server of this test's own, running."""
    with MockServer() as server:
        yield server
