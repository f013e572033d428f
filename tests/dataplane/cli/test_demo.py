"""``sglr demo``: the main job in one command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sglr_dataplane.cli import judge

SGLR = [sys.executable, "-m", "sglr_dataplane"]


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_once_shows_three_right_answers_and_ends(tmp_path: Path) -> None:
    """Outside the checkout: a stream, a tool call and a thought, each judged right; status 0."""
    done = subprocess.run(
        [*SGLR, "demo", "--once", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"\n{judge.RIGHT}\n") == 3
    assert done.stdout.count("curl -N http://127.0.0.1:") == 3
    assert 'get_weather({"city": "Lyon", "unit": "celsius"})' in done.stdout
    assert "twelve legs" in done.stdout


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_it_stays_up_until_interrupted_and_leaves_nothing(tmp_path: Path) -> None:
    """After the answers it waits; Ctrl-C ends it with status 0 and with it all its processes."""
    demo = subprocess.Popen(
        [*SGLR, "demo", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "stays up until Ctrl-C" in line:
                break
        children = _children(demo.pid)
        assert len(children) == 3
        assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
    finally:
        demo.kill()
        demo.wait(10)
        assert demo.stdout is not None
        demo.stdout.close()

    assert [pid for pid in children if _is_alive(pid)] == []


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Hello.", judge.Answer(content="Hello.", finish_reason="stop")),
        (
            "<think>hm</think>Yes.",
            judge.Answer(content="Yes.", reasoning="hm", finish_reason="stop"),
        ),
        (
            'Look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
            judge.Answer(
                content="Look.",
                calls={0: {"name": "f", "arguments": '{"a": 1}'}},
                finish_reason="tool_calls",
            ),
        ),
    ],
)
def test_the_judge_reads_the_script_by_itself(text: str, right: judge.Answer) -> None:
    """What is right comes from the script's text alone."""
    assert judge.expected(text) == right


def test_the_judge_sees_a_wrong_answer() -> None:
    """A lost character, a finish that differs or a missing call is wrong."""
    right = judge.expected("Hello.")

    assert right != judge.Answer(content="Hello", finish_reason="stop")
    assert right != judge.Answer(content="Hello.", finish_reason="length")
    assert right != judge.Answer(content="Hello.", calls={0: {}}, finish_reason="stop")
