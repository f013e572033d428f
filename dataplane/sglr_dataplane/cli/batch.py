"""``sglr batch``: the requests of a file in OpenAI's batch format, answered into another.

Run again after an interruption, it goes on: what was answered stays, what failed is asked again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from sglr_client import AsyncClient, ClientError, Limits, RefusedError, RetryPolicy

_PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})
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


@dataclass
class Progress:
    """How far it is, drawn on a terminal as a bar, else told at each tenth."""

    total: int
    out: TextIO
    done: int = 0
    failed: int = 0
    began: float = field(default_factory=time.monotonic)

    def step(self, *, ok: bool) -> None:
        """Count one more and show it."""
        self.done += 1
        self.failed += not ok
        if self.out.isatty():
            self.out.write(f"\r{self.line()}\x1b[K")
            self.out.flush()
        elif self.done < self.total and self.done % max(1, self.total // 10) == 0:
            print(self.line(), file=self.out, flush=True)

    def finish(self) -> None:
        """Show the end."""
        begin = "\r" if self.out.isatty() else ""
        print(f"{begin}{self.line()}", file=self.out, flush=True)

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
    parser.add_argument("--concurrency", type=int, default=10, help="at once; default: %(default)s")
    parser.add_argument(
        "--timeout", type=float, default=600.0, help="seconds for a request; default: %(default)s"
    )
    parser.add_argument(
        "--attempts", type=int, default=3, help="for 5xx, 429, network; default: %(default)s"
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
        with arguments.output.open("ab", buffering=0) as output:
            asyncio.run(_answer_all(todo, arguments, progress, output.write))
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
        return _INTERRUPTED
    except OSError as error:
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
            raise InvalidInputError(f"Line {number}: {error}.") from error
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


async def _answer_all(
    todo: list[Line],
    arguments: argparse.Namespace,
    progress: Progress,
    write: Callable[[bytes], object],
) -> None:
    key_file: Path | None = arguments.api_key_file
    async with AsyncClient(
        arguments.base_url,
        api_key=_key(key_file),
        timeout=arguments.timeout,
        limits=Limits(connections=arguments.concurrency),
        # A batch has time: it waits out a crowd instead of failing at it.
        retry=RetryPolicy(attempts=arguments.attempts, budget=1.0, cap=30.0),
        breaker=None,
    ) as client:
        remaining = iter(todo)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(arguments.concurrency, len(todo))):
                    group.create_task(_work_off(client, remaining, progress, write))
        except* OSError as errors:
            raise _first(errors) from None


def _first(errors: BaseExceptionGroup[OSError]) -> OSError:
    """Return one of *errors*: the disk is full for all workers alike."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _key(file: Path | None) -> str | None:
    return os.environ.get("SGLR_API_KEY") if file is None else file.read_text().strip()


async def _work_off(
    client: AsyncClient,
    remaining: Iterator[Line],
    progress: Progress,
    write: Callable[[bytes], object],
) -> None:
    for line in remaining:
        answer = await _answer(client, line)
        # One write for a line: a crash cuts at most the last one.
        write(msgspec.json.encode(answer) + b"\n")
        progress.step(ok=answer["error"] is None and answer["response"]["status_code"] == _OK)


async def _answer(client: AsyncClient, line: Line) -> dict[str, Any]:
    """Return the output's line: OpenAI's fields, a refusal as a response, no answer as an error."""
    answer: dict[str, Any] = {
        "id": f"batch_req_{line.custom_id}",
        "custom_id": line.custom_id,
        "response": None,
        "error": None,
    }
    try:
        body = await client.post(line.url, {**line.body, "stream": False})
    except RefusedError as error:
        answer["response"] = _response(error.status, error.request_id, _json_or_text(error.body))
    except ClientError as error:
        answer["error"] = {"code": error.kind, "message": str(error)}
    else:
        answer["response"] = _response(_OK, str(body.get("id", "")), body)
    return answer


def _response(status: int, request_id: str | None, body: Any) -> dict[str, Any]:
    return {"status_code": status, "request_id": request_id or "", "body": body}


def _json_or_text(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")
