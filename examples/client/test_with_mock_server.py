"""A test of your own program against scripted answers and faults."""

from __future__ import annotations

from sglr_client import Client, RetryPolicy
from sglr_client.testing import Drop, Fail, MockServer, Say

pytest_plugins = ["sglr_client.testing.plugin"]


def ask(client: Client) -> str:
    """Stand for the program under test."""
    return client.chat("m", [{"role": "user", "content": "hi"}]).text


def test_my_program_survives_a_bad_moment(mock_server: MockServer) -> None:
    """Two failures, then an answer."""
    mock_server.play(Fail(503, retry_after=0), Drop(), Say("Hello after all"))
    with Client(mock_server.url, retry=RetryPolicy(initial=0.01)) as client:
        assert ask(client) == "Hello after all"  # noqa: S101  # how tests speak

    assert len(mock_server.requests) == 3  # noqa: S101, PLR2004  # two failures and an answer
