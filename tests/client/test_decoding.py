"""From JSON to results."""

from __future__ import annotations

import base64
import struct

import pytest

from sglr_client.decoding import decoded, embeddings
from sglr_client.results import ChatChunk, ChatCompletion


def test_unknown_fields_are_kept_where_they_stand() -> None:
    """At every depth, under ``extra``."""
    chunk = decoded(
        b'{"id":"1","x_top":1,"choices":[{"delta":{"content":"a","reasoning":"b"},"matched":2}],'
        b'"usage":{"prompt_tokens":3,"prompt_tokens_details":{"audio_tokens":4}}}',
        ChatChunk,
    )

    assert chunk.extra == {"x_top": 1}
    assert chunk.choices[0].extra == {"matched": 2}
    assert chunk.choices[0].delta.extra == {"reasoning": "b"}
    assert chunk.usage is not None
    assert chunk.usage.prompt_tokens_details.extra == {"audio_tokens": 4}


def test_a_field_named_extra_is_kept_too() -> None:
    """A server's own ``extra`` does not pass for ours."""
    assert decoded(b'{"extra":{"a":1}}', ChatChunk).extra == {"extra": {"a": 1}}


def test_nulls_are_defaults() -> None:
    """Servers send null for lists and objects they leave out."""
    answer = decoded(
        b'{"choices":[{"message":{"role":null,"content":null,"tool_calls":null},"logprobs":null}],'
        b'"usage":null,"created":null}',
        ChatCompletion,
    )

    assert answer.choices[0].message.tool_calls == []
    assert answer.choices[0].message.role == "assistant"
    assert (answer.text, answer.usage, answer.created) == ("", None, 0)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[]", "object"),
        (b"{", "truncated"),
        (b'{"choices":[{"index":"a"}]}', r"\$\.choices\[0\]\.index"),
        (b'{"choices":{"a":1}}', r"\$\.choices"),
        (b'{"choices":[null]}', r"\$\.choices\[0\]"),
        (b'"\xff"', None),
    ],
)
def test_wrong_answers_are_told_with_their_place(data: bytes, told: str | None) -> None:
    """A ValueError that names the path."""
    with pytest.raises(ValueError, match=told):
        decoded(data, ChatCompletion)


def test_embeddings_in_base64_are_numbers() -> None:
    """Little-endian 32-bit floats, as OpenAI sends them."""
    packed = base64.b64encode(struct.pack("<3f", 1.0, -0.5, 3.25)).decode()

    result = embeddings(f'{{"data":[{{"index":0,"embedding":"{packed}"}}]}}'.encode())

    assert result.data[0].embedding == [1.0, -0.5, 3.25]


def test_embeddings_in_broken_base64_are_refused() -> None:
    """They are no numbers."""
    with pytest.raises(ValueError, match=r"base64|padding|multiple"):
        embeddings(b'{"data":[{"embedding":"!!"}]}')
