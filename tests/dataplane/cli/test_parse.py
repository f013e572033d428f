"""The command that reads a model's text, and checks vectors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.cli import main

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def a_vector(**changes: Any) -> dict[str, Any]:
    """A vector that passes."""
    calls = [{"name": "f", "arguments": {"a": 1}}]
    vector = {"id": "v-1", "kind": "tool", "parser": "qwen", "text": CALL, "tools": []}
    return vector | {"specials": [], "expect": {"content": None, "tool_calls": calls}} | changes


def written(path: Path, *vectors: dict[str, Any]) -> str:
    """*vectors* as a file; its name."""
    path.write_text("".join(json.dumps(vector) + "\n" for vector in vectors))
    return str(path)


def test_the_text_on_standard_input_becomes_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One JSON line: the message as a client gets it, and how it finished."""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"<think>hm</think>ok{CALL}"))

    status = main(["parse", "--parser", "hermes", "--reasoning-parser", "qwen3"])

    said = json.loads(capsys.readouterr().out)
    function = said["message"]["tool_calls"][0]["function"]
    assert status == 0
    assert (said["message"]["content"], said["message"]["reasoning_content"]) == ("ok", "hm")
    assert function == {"name": "f", "arguments": '{"a": 1}'}
    assert said["finish_reason"] == "tool_calls"


def test_the_tools_file_types_the_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With a schema a number that is a string stays one."""
    schema = {"properties": {"a": {"type": "string"}}}
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"function": {"name": "f", "parameters": schema}}]))
    text = "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))

    main(["parse", "--parser", "glm47", "--tools", str(tools)])

    said = json.loads(capsys.readouterr().out)
    assert said["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": "1"}'


@pytest.mark.parametrize("chunking", [[], ["--chunking", "random:3"], ["--chunking", "char"]])
def test_vectors_that_pass_are_counted(
    chunking: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The last line counts; the status is 0."""
    path = written(
        tmp_path / "v.jsonl", a_vector(), a_vector(id="v-2", chunks=[CALL[:9], CALL[9:]])
    )

    assert main(["parse", "--vectors", path, *chunking]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed\n"


def test_a_failing_vector_is_named_with_what_was_expected_and_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One line a failing id; the status is 1."""
    wrong = a_vector(expect={"content": "x", "tool_calls": []}, expect_id="abc")

    status = main(["parse", "--vectors", written(tmp_path / "v.jsonl", wrong, a_vector(id="v-2"))])

    first, last = capsys.readouterr().out.splitlines()
    assert status == 1
    assert first.startswith("v-1 (whole): content: expected 'x', got None; calls: expected []")
    assert "id: expected 'abc'" in first
    assert last == "1 passed, 1 failed"


def test_an_unknown_parser_of_a_vector_is_a_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The other vectors are still checked."""
    path = written(tmp_path / "v.jsonl", a_vector(parser="nobody"), a_vector(id="v-2"))

    assert main(["parse", "--vectors", path]) == 1
    out = capsys.readouterr().out
    assert out.startswith("v-1: Tool parser 'nobody' is unknown; known are ")
    assert out.endswith("1 passed, 1 failed\n")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--parser", "nobody"], ["--vectors", "/nowhere/v.jsonl"]],
)
def test_what_cannot_be_done_is_said_on_standard_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence, and the status 2."""
    assert main(["parse", *arguments]) == 2
    assert capsys.readouterr().err.startswith("sglr parse: ")


def test_an_unknown_chunking_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The message lists those that are known."""
    with pytest.raises(SystemExit) as stopped:
        main(["parse", "--vectors", "v", "--chunking", "none"])

    assert stopped.value.code == 2
    assert "whole, token, char, one or random:N" in capsys.readouterr().err


def test_the_names_of_all_formats_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """SGLang's names and the aliases."""
    assert main(["parse", "--list"]) == 0
    out = capsys.readouterr().out
    assert " qwen3_coder " in out
    assert " deepseek-r1 " in out
