"""The mock server as users have it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import openai
import pytest

from sglr_client.testing import Fail, MockServer, Say

TEST = """
from sglr_client import Client
from sglr_client.testing import Say


def test_it(mock_server):
    mock_server.play(Say("scripted"))
    with Client(mock_server.url) as client:
        assert client.chat("m", [{"role": "user", "content": "hi"}]).text == "scripted"
"""


def test_the_pytest_plugin_gives_a_server(tmp_path: Path) -> None:
    """In a test of somebody else's project."""
    (tmp_path / "test_theirs.py").write_text(TEST)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "sglr_client.testing.plugin", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )

    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_other_clients_understand_it(mock_server: MockServer) -> None:
    """The openai SDK reads its answers, streams and errors."""
    sdk = openai.OpenAI(base_url=f"{mock_server.url}/v1", api_key="any", max_retries=0, timeout=10)
    mock_server.play(Say("whole", reasoning="hm"), Say("in pieces", calls=[("f", "{}")]), Fail(429))
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "user", "content": "hi"}
    ]

    whole = sdk.chat.completions.create(model="m", messages=messages)
    chunks = list(sdk.chat.completions.create(model="m", messages=messages, stream=True))
    with pytest.raises(openai.RateLimitError):
        sdk.chat.completions.create(model="m", messages=messages)
    models = [model.id for model in sdk.models.list()]
    sdk.close()

    assert whole.choices[0].message.content == "whole"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "in pieces"
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert models == ["mock-model"]


def test_it_tells_what_it_saw(mock_server: MockServer) -> None:
    """Requests in order, and how many at once."""
    sdk = openai.OpenAI(base_url=f"{mock_server.url}/v1", api_key="any", max_retries=0, timeout=10)
    sdk.embeddings.create(model="m", input="x", encoding_format="float")
    sdk.models.list()
    sdk.close()

    assert [(seen.method, seen.path) for seen in mock_server.requests] == [
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/models"),
    ]
    assert len(mock_server.generations) == 1
    assert mock_server.peak == 1
