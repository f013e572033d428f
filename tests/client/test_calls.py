"""What is sent for what is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglr_client import calls
from sglr_client.limits import Timeouts
from support.client_doors import HI


def body(call: calls.Call) -> dict[str, Any]:
    """Return the call's body."""
    assert call.body is not None
    document: dict[str, Any] = json.loads(call.body)
    return document


def test_parameters_stand_in_the_body() -> None:
    """Those that were given, and no others."""
    call = calls.chat("m", HI, temperature=0.0, max_tokens=5, stop=["x"])

    assert call.path == "/v1/chat/completions"
    assert body(call) == {
        "model": "m",
        "messages": HI,
        "temperature": 0.0,
        "max_tokens": 5,
        "stop": ["x"],
    }


def test_none_is_not_sent() -> None:
    """None means "not set", and some servers read a null as a value."""
    assert body(calls.chat("m", HI, tools=None, temperature=None)).keys() == {"model", "messages"}


def test_extra_body_wins_and_keeps_its_nulls() -> None:
    """An engine's extensions are sent as they are."""
    call = calls.chat("m", HI, top_p=0.5, extra_body={"top_p": 1.0, "top_k": 3, "regex": None})

    assert body(call) == {"model": "m", "messages": HI, "top_p": 1.0, "top_k": 3, "regex": None}


def test_options_are_not_sent() -> None:
    """They are for the client."""
    call = calls.chat("m", HI, timeout=3.0, headers={"X-A": "b"}, stream=True)

    assert body(call) == {"model": "m", "messages": HI, "stream": True}
    assert call.timeout == Timeouts(total=3.0, headers=3.0, idle=3.0)
    assert call.headers == {"X-A": "b"}


@pytest.mark.parametrize(
    ("prompt", "n", "expected"),
    [("a", None, 1), ("a", 2, 2), (["a", "b"], 3, 6), ([1, 2, 3], None, 1), ([[1], [2]], None, 2)],
)
def test_a_streams_answers_are_counted(prompt: Any, n: int | None, expected: int) -> None:
    """Each prompt has n; a list of ids is one prompt."""
    assert calls.completions("m", prompt, n=n, stream=True).choices == expected


def test_a_batchs_entry_is_never_a_stream() -> None:
    """Its further keys are sent as they are, but not ``stream``."""
    call = calls.batch_entry({"model": "m", "messages": HI, "stream": True, "top_k": 2})

    assert (call.stream, body(call)) == (
        False,
        {"model": "m", "messages": HI, "stream": False, "top_k": 2},
    )


def test_a_batchs_entry_needs_its_messages() -> None:
    """What is missing is named."""
    with pytest.raises(ValueError, match="messages"):
        calls.batch_entry({"model": "m"})
