"""``sglr batch``: the requests of a file in OpenAI's batch format, answered into another.

Run again after an interruption, it goes on: what was answered stays, what failed is asked again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from sglr_client import (
    AsyncClient,
    ClientError,
    ConnectFailedError,
    Limits,
    RefusedError,
    RetryPolicy,
)

_PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})
_EXPECTED: Final = '{"custom_id": "1", "url": "/v1/chat/completions", "body": {…}}'
_MOST_TOLD: Final = 5
"""Kinds of failure that the summary names."""
_WIDTH: Final = 30
_OK: Final = 200
_INVALID: Final = 2
_INTERRUPTED: Final = 130


class Line(msgspec.Struct):
    """One request of the input."""

    custom_id: str
    url: str
    body: dict[str, Any]
    method: str = "POST"


class InvalidInputError(ValueError):
    """A line of the input is not a request; says which and why."""


class NobodyThereError(Exception):
    """Nothing was answered yet, and the server cannot be connected to."""


@dataclass
class Progress:
    """How far it is, drawn on a terminal as a bar, else told at each tenth."""

    total: int
    out: TextIO
    done: int = 0
    failed: int = 0
    problems: Counter[str] = field(default_factory=Counter[str])
    """How often each kind of failure came, with what the first of its kind said."""
    began: float = field(default_factory=time.monotonic)

    def step(self, problem: str | None = None) -> None:
        """Count one more, failed with *problem* unless that is None, and show it."""
        self.done += 1
        if problem is not None:
            self.failed += 1
            self.problems[problem] += 1
        if self.out.isatty():
            self.out.write(f"\r{self.line()}\x1b[K")
            self.out.flush()
        elif self.done < self.total and self.done % max(1, self.total // 10) == 0:
            print(self.line(), file=self.out, flush=True)

    def finish(self) -> None:
        """Show the end."""
        begin = "\r" if self.out.isatty() else ""
        print(f"{begin}{self.line()}", file=self.out, flush=True)
        for problem, count in self.problems.most_common(_MOST_TOLD):
            print(f"  {count} x {problem}", file=self.out)
        if self.failed:
            print("The same command asks again for those that failed.", file=self.out)

    def line(self) -> str:
        """Return the bar and the counts."""
        filled = _WIDTH * self.done // max(1, self.total)
        seconds = max(1e-9, time.monotonic() - self.began)
        bar = "#" * filled + "-" * (_WIDTH - filled)
        rate = self.done / seconds
        return f"[{bar}] {self.done}/{self.total}, {self.failed} failed, {rate:.1f}/s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("input", type=Path, help="requests, one JSON object a line")
    parser.add_argument("output", type=Path, help="answers; kept and completed if it exists")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080", help="default: %(default)s")
    parser.add_argument(
        "--concurrency", type=_count, default=10, help="at once; default: %(default)s"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=600.0,
        help="seconds for a request; default: %(default)s",
    )
    parser.add_argument(
        "--attempts", type=_count, default=3, help="for 5xx, 429, network; default: %(default)s"
    )
    parser.add_argument(
        "--api-key-file", type=Path, help="holds the key; default: $SGLR_API_KEY, or no key"
    )


def run(arguments: argparse.Namespace) -> int:
    """Answer the batch; return 0, 1 when requests failed, 2 for a bad input, 130 interrupted."""
    try:
        lines = read(arguments.input.read_bytes())
        answered = keep_answered(arguments.output)
    except (OSError, InvalidInputError) as error:
        print(f"sglr batch: {error}", file=sys.stderr)
        return _INVALID
    todo = [line for line in lines if line.custom_id not in answered]
    if len(todo) < len(lines):
        print(f"{len(lines) - len(todo)} of {len(lines)} were answered before.", file=sys.stderr)
    progress = Progress(len(todo), sys.stderr)
    try:
        client = _client(arguments)
        with arguments.output.open("ab", buffering=0) as output:
            asyncio.run(_answer_all(todo, client, arguments.concurrency, progress, output.write))
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return _INTERRUPTED
    except NobodyThereError as error:
        print(f"\nsglr batch: {arguments.base_url}: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"\nsglr batch: {error}", file=sys.stderr)
        return _INVALID
    progress.finish()
    return int(progress.failed > 0)


def read(text: bytes) -> list[Line]:
    """Return the requests in *text*.

    Raises:
        InvalidInputError: A line is not a request, or two have one custom_id.
    """
    lines: dict[str, Line] = {}
    for number, written in enumerate(text.split(b"\n"), 1):
        if not written.strip():
            continue
        try:
            line = msgspec.json.decode(written, type=Line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"Line {number}: {error}; expected {_EXPECTED}.") from error
        if line.url not in _PATHS:
            raise InvalidInputError(
                f"Line {number}: url is {line.url!r}; expected one of {sorted(_PATHS)}."
            )
        if line.custom_id in lines:
            raise InvalidInputError(
                f"Line {number}: custom_id {line.custom_id!r} was there before."
            )
        lines[line.custom_id] = line
    return list(lines.values())


def keep_answered(output: Path) -> set[str]:
    """Return the custom_ids that *output* answers well, and take everything else out of it.

    What else there may be: requests that failed, and a line cut by a crash.
    """
    if not output.is_file():  # nothing yet, or a pipe or device that cannot be taken up
        return set()
    kept = {id: line for line in output.read_bytes().split(b"\n") if (id := _answered_id(line))}
    fresh = output.with_name(f"{output.name}.tmp")
    fresh.write_bytes(b"".join(line + b"\n" for line in kept.values()))
    fresh.replace(output)
    return set(kept)


def _answered_id(line: bytes) -> str | None:
    """Return the custom_id of a good answer; None for any other line."""
    try:
        answer: Any = msgspec.json.decode(line)
        good = answer["response"]["status_code"] == _OK
        return str(answer["custom_id"]) if good else None
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None


def _client(arguments: argparse.Namespace) -> AsyncClient:
    """Return the client of the batch.

    Raises:
        OSError: The key's file cannot be read.
        ValueError: The base URL is none.
    """
    key_file: Path | None = arguments.api_key_file
    return AsyncClient(
        arguments.base_url,
        api_key=_key(key_file),
        timeout=arguments.timeout,
        limits=Limits(connections=arguments.concurrency),
        # A batch has time: it waits out a crowd instead of failing at it.
        retry=RetryPolicy(attempts=arguments.attempts, budget=1.0, cap=30.0),
        breaker=None,
    )


async def _answer_all(
    todo: list[Line],
    client: AsyncClient,
    concurrency: int,
    progress: Progress,
    write: Callable[[bytes], object],
) -> None:
    """Answer *todo* into *write*.

    Raises:
        NobodyThereError: There is no server.
        OSError: An answer cannot be written.
    """
    remaining = iter(todo)
    stopped: Exception | None = None
    try:
        async with client, asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(todo))):
                group.create_task(_work_off(client, remaining, progress, write))
    except* (OSError, NobodyThereError) as errors:
        # Raised below: Python 3.11.2, which is Debian's, would wrap it in a group here.
        stopped = _first(errors)
    if stopped is not None:
        raise stopped


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    """Return one of *errors*: the disk is full, or the server away, for all workers alike."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, not {text!r}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if 0 < seconds < float("inf"):
        return seconds
    raise argparse.ArgumentTypeError(f"expected seconds above 0, not {text!r}")


def _key(file: Path | None) -> str | None:
    return os.environ.get("SGLR_API_KEY") if file is None else file.read_text().strip()


async def _work_off(
    client: AsyncClient,
    remaining: Iterator[Line],
    progress: Progress,
    write: Callable[[bytes], object],
) -> None:
    for line in remaining:
        answer, problem = await _answer(client, line, is_first=progress.done == progress.failed)
        # One write for a line: a crash cuts at most the last one.
        write(msgspec.json.encode(answer) + b"\n")
        progress.step(problem)


async def _answer(
    client: AsyncClient, line: Line, *, is_first: bool
) -> tuple[dict[str, Any], str | None]:
    """Return the output's line, with what went wrong in a sentence, if something did.

    The line has OpenAI's fields: a refusal is a response, no answer is an error.

    Raises:
        NobodyThereError: There is no server, as far as is known: *is_first* says that none answered.
    """
    problem: str | None = None
    answer: dict[str, Any] = {
        "id": f"batch_req_{line.custom_id}",
        "custom_id": line.custom_id,
        "response": None,
        "error": None,
    }
    try:
        body = await client.post(line.url, {**line.body, "stream": False})
    except ConnectFailedError as error:
        if is_first:
            raise NobodyThereError(str(error)) from error
        problem = str(error)
        answer["error"] = {"code": error.kind, "message": problem}
    except RefusedError as error:
        problem = f"{error.status}: {error}"
        answer["response"] = _response(error.status, error.request_id, _json_or_text(error.body))
    except ClientError as error:
        problem = str(error)
        answer["error"] = {"code": error.kind, "message": problem}
    else:
        answer["response"] = _response(_OK, str(body.get("id", "")), body)
    return answer, problem


def _response(status: int, request_id: str | None, body: Any) -> dict[str, Any]:
    return {"status_code": status, "request_id": request_id or "", "body": body}


def _json_or_text(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")
