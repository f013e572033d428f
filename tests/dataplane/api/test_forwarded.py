"""What is read of a request that is forwarded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.api.forwarded import headers_for_worker, read, stand_in
from sglr_dataplane.errors import InvalidRequestError


def ids(**fields: Any) -> tuple[int, ...]:
    """Return what stands for the prompt of a body with *fields*."""
    return tuple(stand_in(read(json.dumps(fields).encode())))


def a_turn(role: str, text: str) -> dict[str, str]:
    """Return a message."""
    return {"role": role, "content": text}


TURNS = st.lists(st.builds(a_turn, st.sampled_from(["user", "assistant"]), st.text(max_size=40)))


@given(TURNS, TURNS)
def test_a_conversation_begins_as_it_did_before(before: list[Any], after: list[Any]) -> None:
    """The next turn's ids begin with this one's, but for the last, which a list's end is in."""
    earlier, later = ids(messages=before), ids(messages=[*before, *after])

    assert later[: len(earlier) - 1] == earlier[:-1]


def test_neither_blanks_nor_the_order_of_fields_count() -> None:
    """Two clients' ways of writing one conversation are one prompt."""
    one = b'{"messages":[{"role":"user","content":"caf\\u00e9"}],"tools":[{"a":1,"b":2}]}'
    other = '{"tools" : [{"b": 2, "a": 1}], "messages": [ {"content":"café", "role":"user"} ]}'

    assert stand_in(read(one)) == stand_in(read(other.encode()))


@pytest.mark.parametrize(
    "field", ["tools", "system", "instructions", "messages", "prompt", "input", "text", "input_ids"]
)
def test_what_a_prompt_is_made_of_counts(field: str) -> None:
    """Another prompt has other ids, whichever the API."""
    assert ids(**{field: ["one thing, long enough"]}) != ids(**{field: ["another, long enough"]})


def test_what_is_no_part_of_the_prompt_does_not_count() -> None:
    """Sampling does not change what is in a worker's cache."""
    messages = [a_turn("user", "hello")]

    assert ids(messages=messages, temperature=0.1) == ids(messages=messages, n=3)


@pytest.mark.parametrize(
    ("fields", "choices"),
    [
        ({}, 1), ({"n": 3}, 3), ({"n": None}, 1), ({"n": "x"}, 1), ({"prompt": "a"}, 1),
        ({"prompt": ["a", "b"]}, 2), ({"prompt": ["a", "b"], "n": 2}, 4),
        ({"prompt": [1, 2, 3]}, 1), ({"prompt": [[1, 2], [3]]}, 2), ({"prompt": []}, 1),
    ],
)  # fmt: skip
def test_choices_are_counted_as_servers_do(fields: dict[str, Any], choices: int) -> None:
    """N for each prompt; a list of ids is one prompt."""
    assert read(json.dumps(fields).encode()).choices == choices


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"model":1}', b'{"stream":"yes"}', b"[" * 9999]
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    """No JSON object, or a model or a stream of another type."""
    with pytest.raises(InvalidRequestError):
        read(body)


def test_workers_get_the_headers_of_a_list() -> None:
    """Nothing that is not on it, and the request's id."""
    given_headers = [(b"traceparent", b"t"), (b"x-tenant", b"t"), (b"content-encoding", b"gzip")]

    assert headers_for_worker(given_headers, "id") == (
        (b"traceparent", b"t"),
        (b"x-request-id", b"id"),
    )
