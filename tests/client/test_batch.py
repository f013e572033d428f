"""Many chats at once."""

from __future__ import annotations

import pytest

from sglr_client import ChatCompletion, NotFoundError
from sglr_client.testing import Fail, MockServer, Say
from support.client_doors import HI, Door

REQUEST = {"model": "m", "messages": HI}


async def test_answers_stand_in_the_requests_order(door: Door, mock_server: MockServer) -> None:
    """Whichever is done first; errors stand among them as values."""
    mock_server.play(Say("slow", wait=0.2), Fail(404, "gone"), Say("quick"))

    # One at a time, so that the script's order is the requests' order.
    slow, gone, quick = await door.batch([REQUEST] * 3, concurrency=1)

    assert isinstance(slow, ChatCompletion)
    assert isinstance(gone, NotFoundError)
    assert (slow.text, str(gone), quick.text) == ("slow", "gone", "quick")


async def test_late_answers_keep_their_place(door: Door, mock_server: MockServer) -> None:
    """The server answers by what it was asked, in any order."""
    requests = [{**REQUEST, "n": n} for n in (3, 1, 2, 4)]

    answers = await door.batch(requests, concurrency=4)

    assert [len(answer.choices) for answer in answers] == [3, 1, 2, 4]


async def test_concurrency_is_bounded(door: Door, mock_server: MockServer) -> None:
    """Three at once, not twelve."""
    mock_server.default = Say("ok", wait=0.03)

    answers = await door.batch([REQUEST] * 12, concurrency=3)

    assert len(answers) == 12
    assert mock_server.peak == 3


async def test_progress_is_told(door: Door) -> None:
    """After each answer: how many of how many."""
    seen: list[tuple[int, int]] = []

    await door.batch([REQUEST] * 4, on_progress=lambda done, total: seen.append((done, total)))

    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_a_bad_request_stops_the_batch_before_it_begins(
    door: Door, mock_server: MockServer
) -> None:
    """Nothing is sent when one of them can not be."""
    with pytest.raises(ValueError, match="model"):
        await door.batch([REQUEST, {"messages": HI}])

    assert mock_server.requests == []


async def test_an_empty_batch_is_empty(door: Door) -> None:
    """No answers to no requests."""
    assert await door.batch([]) == []
