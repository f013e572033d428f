"""The examples of docs/client.md run, each as its reader would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sglr_client.testing import MockServer, Say

EXAMPLES = Path(__file__).parents[2] / "examples" / "client"
DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"
PRINTED = {
    "chat.py": "Answer: one two three four five six",
    "stream.py": "Ran to its end: False",
    "many_streams.py": "50 streams, 50 with text",
    "batch.py": "What is 5 times 5? → one two three four five six",
    "resilience.py": 'requests_ended_total{operation="chat",outcome="ok"} 1.0',
    "events.py": "message b'one\\ntwo'\nnote b'x'",
    "test_with_mock_server.py": "1 passed",
}
ELSEWHERE = {"direct.py": "tests/dataplane/direct", "over_grpc.py": "tests/client/grpc"}
"""Examples that need another server than the mock one, and where they are run."""


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_examples_run(mock_server: MockServer, name: str) -> None:
    """And print what they promise."""
    mock_server.default = Say("one two three four five six")
    is_test = name.startswith("test_")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []
    arguments = [] if is_test else [mock_server.url, "mock-model"]

    ran = subprocess.run(
        [sys.executable, *command, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error"} if not is_test else None,
        timeout=18,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert PRINTED[name] in ran.stdout


def test_every_example_is_run_and_shown() -> None:
    """None is forgotten here or in the document."""
    names = {path.name for path in EXAMPLES.glob("*.py")}

    assert names == set(PRINTED) | set(ELSEWHERE)
    root = Path(__file__).parents[2]
    for name, folder in ELSEWHERE.items():
        tests = [path.read_text(encoding="utf-8") for path in (root / folder).glob("test_*.py")]
        assert any(f'"{name}"' in text for text in tests), name
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in names if f"examples/client/{name}" not in text] == []
