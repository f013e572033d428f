"""``sglr batch``."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from sglr_client.testing import Drop, Fail, Hang, MockServer, Raw, Say
from sglr_dataplane.cli import batch
from support.client_doors import HI, eventually


def request(id: str, url: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    """Return a line of an input."""
    return {
        "custom_id": id,
        "method": "POST",
        "url": url,
        "body": {"model": "m", "messages": HI, **body},
    }


def written(path: Path, *lines: dict[str, Any]) -> Path:
    """Write *lines* to *path*."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(server: MockServer, given: Path, output: Path, *arguments: str) -> int:
    """Run the command, one request at a time so that a script's order holds."""
    parser = argparse.ArgumentParser()
    batch.add_arguments(parser)
    options = ["--base-url", server.url, "--concurrency", "1", "--attempts", "1", *arguments]
    return batch.run(parser.parse_args([str(given), str(output), *options]))


def answers(output: Path) -> dict[str, Any]:
    """Return the output's lines by custom_id; each is there once."""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    by_id = {line["custom_id"]: line for line in lines}
    assert len(by_id) == len(lines)
    return by_id


def test_a_batch_is_answered_in_openais_format(
    tmp_path: Path, mock_server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers as responses, refusals too, what had no answer as errors; progress on stderr."""
    given = written(
        tmp_path / "in.jsonl", request("a"), request("b"), request("c"), request("d", stream=True)
    )
    mock_server.play(Say("one"), Fail(404, "gone"), Drop(), Say("four"))

    status = run(mock_server, given, tmp_path / "out.jsonl")

    lines = answers(tmp_path / "out.jsonl")
    assert status == 1
    assert lines["a"]["error"] is None
    assert lines["a"]["response"]["status_code"] == 200
    assert lines["a"]["response"]["body"]["choices"][0]["message"]["content"] == "one"
    assert lines["b"]["response"]["status_code"] == 404
    assert lines["b"]["response"]["body"]["error"]["message"] == "gone"
    assert lines["c"]["response"] is None
    assert lines["c"]["error"]["code"] == "connection_lost"
    assert lines["d"]["response"]["body"]["choices"][0]["message"]["content"] == "four"
    told = capsys.readouterr().err
    assert "4/4, 2 failed" in told
    assert "1 x 404: gone" in told
    assert "asks again for those that failed" in told


def test_it_goes_on_where_it_was_interrupted(
    tmp_path: Path, mock_server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was answered stays as it is; what failed or was cut is asked again."""
    given = written(tmp_path / "in.jsonl", *(request(id) for id in "abcd"))
    output = tmp_path / "out.jsonl"
    mock_server.play(Say("first a"), Fail(500))
    run(mock_server, written(tmp_path / "half.jsonl", request("a"), request("b")), output)
    with output.open("a") as file:
        file.write('{"custom_id":"c","response":{"status_co')  # the crash
    mock_server.default = Say("second")

    status = run(mock_server, given, output)

    contents = {
        id: line["response"]["body"]["choices"][0]["message"]["content"]
        for id, line in answers(output).items()
    }
    assert status == 0
    assert contents == {"a": "first a", "b": "second", "c": "second", "d": "second"}
    assert len(mock_server.requests) == 2 + 3
    assert "1 of 4 were answered before" in capsys.readouterr().err


def test_completions_and_embeddings_can_be_in_it(tmp_path: Path, mock_server: MockServer) -> None:
    """Each line says where it goes."""
    given = written(
        tmp_path / "in.jsonl",
        request("a", "/v1/completions", prompt="x"),
        request("b", "/v1/embeddings", input=["x", "y"]),
    )

    assert run(mock_server, given, tmp_path / "out.jsonl") == 0
    lines = answers(tmp_path / "out.jsonl")
    assert lines["a"]["response"]["body"]["object"] == "text_completion"
    assert len(lines["b"]["response"]["body"]["data"]) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "Line 1"),
        ('{"custom_id":"a","body":{}}', "url"),
        ('{"url":"/v1/completions","body":{}}', '"custom_id": "1"'),
        ('{"custom_id":"a","url":"/v1/files","body":{}}', "/v1/files"),
        ('{"custom_id":"a","url":"/v1/completions","body":{}}\n' * 2, "Line 2"),
    ],
)
def test_a_bad_input_is_told_before_anything_is_sent(
    tmp_path: Path,
    mock_server: MockServer,
    capsys: pytest.CaptureFixture[str],
    text: str,
    told: str,
) -> None:
    """With the line's number; the output is not touched."""
    given = tmp_path / "in.jsonl"
    given.write_text(text)

    assert run(mock_server, given, tmp_path / "out.jsonl") == 2
    assert told in capsys.readouterr().err
    assert mock_server.requests == []
    assert not (tmp_path / "out.jsonl").exists()


def test_an_output_that_cannot_be_written_is_told(
    tmp_path: Path, mock_server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, before anything is sent."""
    given = written(tmp_path / "in.jsonl", request("a"))

    assert run(mock_server, given, tmp_path / "no" / "such" / "folder") == 2
    assert "No such file" in capsys.readouterr().err
    assert mock_server.requests == []


def test_an_interruption_is_told_and_loses_nothing(tmp_path: Path, mock_server: MockServer) -> None:
    """The process ends with the shell's status for it; what was answered is in the file."""
    given = written(tmp_path / "in.jsonl", request("a"), request("b"))
    mock_server.play(Say("one"), Hang())
    program = (
        "import argparse, sys\n"
        "from sglr_dataplane.cli.batch import add_arguments, run\n"
        "parser = argparse.ArgumentParser()\n"
        "add_arguments(parser)\n"
        "sys.exit(run(parser.parse_args()))\n"
    )
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", program, str(given), str(output), "--concurrency", "1"]
    with subprocess.Popen(
        [*command, "--base-url", mock_server.url], stderr=subprocess.PIPE, text=True
    ) as process:
        asyncio.run(eventually(lambda: len(mock_server.requests) == 2, 15.0))
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=10)

    assert process.returncode == 130
    assert "goes on from here" in told
    assert list(answers(output)) == ["a"]


def test_a_proxys_page_is_kept_as_text(tmp_path: Path, mock_server: MockServer) -> None:
    """An error's body that is no JSON."""
    given = written(tmp_path / "in.jsonl", request("a"))
    mock_server.play(Raw([b"<html>"], status=413, content_type="text/html"))

    run(mock_server, given, tmp_path / "out.jsonl")

    response = answers(tmp_path / "out.jsonl")["a"]["response"]
    assert (response["status_code"], response["body"]) == (413, "<html>")


def test_a_full_disk_is_told(
    tmp_path: Path, mock_server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was answered before stays."""
    given = written(tmp_path / "in.jsonl", request("a"), request("b"))

    assert run(mock_server, given, Path("/dev/full")) == 2
    assert "No space left" in capsys.readouterr().err


def test_the_key_comes_from_its_file_or_the_environment(
    tmp_path: Path, mock_server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file goes first."""
    given = written(tmp_path / "in.jsonl", request("a"))
    key = tmp_path / "key"
    key.write_text("from-file\n")
    monkeypatch.setenv("SGLR_API_KEY", "from-environment")

    run(mock_server, given, tmp_path / "1.jsonl")
    run(mock_server, given, tmp_path / "2.jsonl", "--api-key-file", str(key))

    keys = [request.headers["authorization"] for request in mock_server.requests]
    assert keys == ["Bearer from-environment", "Bearer from-file"]


def test_a_terminal_sees_a_bar() -> None:
    """Drawn over itself at each answer."""
    screen = StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]  # a terminal, as far as asked
    progress = batch.Progress(4, screen)
    progress.step()
    progress.step("gone")

    last = screen.getvalue().split("\r")[-1]
    assert last.startswith("[###############---------------] 2/4, 1 failed")


def test_a_server_that_is_not_there_ends_the_batch_at_once(
    tmp_path: Path, mock_server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its address, and without failing a thousand requests one by one."""
    given = written(tmp_path / "in.jsonl", *(request(str(number)) for number in range(1000)))
    mock_server.stop()

    assert run(mock_server, given, tmp_path / "out.jsonl") == 1
    assert mock_server.url in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--concurrency", "0", "from 1 on"),
        ("--attempts", "many", "from 1 on"),
        ("--timeout", "-1", "above 0"),
        ("--timeout", "inf", "above 0"),
    ],
)
def test_an_option_out_of_range_is_told(
    tmp_path: Path,
    mock_server: MockServer,
    capsys: pytest.CaptureFixture[str],
    option: str,
    value: str,
    told: str,
) -> None:
    """By the command line, before anything is read."""
    with pytest.raises(SystemExit) as ended:
        run(mock_server, tmp_path / "in.jsonl", tmp_path / "out.jsonl", option, value)

    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_base_url_that_is_none_is_told(
    tmp_path: Path, mock_server: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an example of one."""
    given = written(tmp_path / "in.jsonl", request("a"))

    assert run(mock_server, given, tmp_path / "out.jsonl", "--base-url", "localhost") == 2
    assert "http://localhost:8080" in capsys.readouterr().err
