"""Load on an OpenAI endpoint: streamed chats, sent on time, each timed piece by piece."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx2
import orjson

from sglr_dataplane.cli.bench_figures import Record
from sglr_dataplane.prompt.json_values import is_object

_WORDS: Final = tuple(
    re.findall(
        r"\w+",
        "time year people way day man thing woman life child world school state family student "
        "group country problem hand part place case week company system program question work "
        "government number night point home water room mother area money story fact month lot "
        "right study book eye job word business issue side kind head house service friend father",
    )
)
"""Words that are one token, with the space before them, to every common tokenizer."""
_ANSWER_CHARS: Final = 200
"""How much of a refusal is told."""


class EndpointError(Exception):
    """The endpoint cannot be measured; its sentence says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent."""

    url: str
    """The endpoint's, ``/v1`` included."""
    model: str
    key: str | None = None
    requests: int = 100
    rate: float | None = None
    """Requests a second, with random (Poisson) gaps; None: as fast as answers come."""
    concurrency: int = 20
    """Requests in flight at most."""
    output_tokens: int = 259
    ignore_eos: bool = False
    """Whether the server is asked to go on to the last token; not every server knows how."""
    warm_up: int = 5
    """Requests sent before, one after the other, and not counted."""
    timeout: float = 600.0
    """Seconds for the whole of one answer."""


def prompts(count: int, tokens: int, tokens_of: Callable[[str], int] | None) -> list[str]:
    """Return *count* different prompts of about *tokens* tokens; exactly, with *tokens_of*.

    The chat template's own tokens come on top.
    """
    draw = random.Random(1)  # noqa: S311  # the same prompts in every run
    return [_prompt(draw, tokens, tokens_of) for _ in range(count)]


def _prompt(draw: random.Random, tokens: int, tokens_of: Callable[[str], int] | None) -> str:
    words = draw.choices(_WORDS, k=tokens)
    if tokens_of is not None:
        while len(words) > 1 and tokens_of(" ".join(words)) > tokens:
            words.pop()
    return " ".join(words)


def arrivals(count: int, rate: float | None) -> list[float]:
    """Return when each request is due, in seconds from the start."""
    if rate is None:
        return [0.0] * count
    draw = random.Random(2)  # noqa: S311  # the same gaps in every run
    due, times = 0.0, list[float]()
    for _ in range(count):
        times.append(due)
        due += draw.expovariate(rate)
    return times


async def only_model(url: str, key: str | None) -> str:
    """Return the model that *url* serves.

    Raises:
        EndpointError: It does not answer as an OpenAI endpoint does, or serves several models.
    """
    async with httpx2.AsyncClient(headers=_headers(key), timeout=10.0) as http:
        try:
            answer = await http.get(f"{url}/models")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EndpointError(f"{url} cannot be reached: {_reason(error)}.") from error
    if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise EndpointError(f"{url} wants a key: set OPENAI_API_KEY, or name a --key-file.")
    try:
        names = [str(model["id"]) for model in orjson.loads(answer.content)["data"]]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise EndpointError(
            f"{url}/models answered {answer.status_code}, and not as an OpenAI endpoint does; "
            "name a --model to go on without."
        ) from error
    if len(names) != 1:
        listed = ", ".join(names) if names else "none"
        raise EndpointError(f"{url} serves {len(names)} models ({listed}); choose a --model.")
    return names[0]


async def run(load: Load, texts: Sequence[str], on_end: Callable[[Record], None]) -> list[Record]:
    """Return a record of each of *load*'s requests, in the order in which they were due.

    Args:
        load: What is sent.
        texts: Prompts, taken in turn.
        on_end: Called with each record as soon as it is there.

    Raises:
        EndpointError: The first request of all is refused or fails: so would every other.
    """
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=load.concurrency)
    timeout = httpx2.Timeout(load.timeout, connect=10.0)
    async with httpx2.AsyncClient(
        headers=_headers(load.key), timeout=timeout, limits=limits
    ) as http:
        start = time.monotonic()
        for i in range(load.warm_up):
            first = await _timed(http, load, texts[i % len(texts)], start)
            if first.error is not None:
                raise EndpointError(f"{load.url} does not answer: {first.error}")
        free = asyncio.Semaphore(load.concurrency)
        start = time.monotonic()

        async def one(due: float, text: str) -> Record:
            await asyncio.sleep(max(start + due - time.monotonic(), 0.0))
            async with free:
                record = await _timed(http, load, text, start)
            on_end(record)
            return record

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one(due, texts[i % len(texts)]))
                for i, due in enumerate(arrivals(load.requests, load.rate))
            ]
    return [task.result() for task in tasks]


async def _timed(http: httpx2.AsyncClient, load: Load, text: str, start: float) -> Record:
    begin = time.monotonic()
    times: list[float] = []
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    error = None
    try:
        async with (
            asyncio.timeout(load.timeout),
            http.stream(
                "POST",
                f"{load.url}/chat/completions",
                content=orjson.dumps(_body(load, text)),
                headers={"content-type": "application/json"},
            ) as answer,
        ):
            if answer.status_code != HTTPStatus.OK:
                error = _refusal(answer.status_code, await answer.aread())
            else:
                error = await _read(answer.aiter_bytes(), times, pieces, usage)
    except (httpx2.HTTPError, TimeoutError) as failure:
        error = _reason(failure)
    end = time.monotonic()
    return Record(
        begin=begin - start,
        first=times[0] - begin if times else None,
        gaps=tuple(b - a for a, b in itertools.pairwise(times)),
        end=end - begin,
        input_tokens=int(usage.get("prompt_tokens", 0)),
        output_tokens=int(usage.get("completion_tokens", len(times))),
        text="".join(pieces),
        error=error,
    )


async def _read(
    chunks: AsyncIterator[bytes], times: list[float], pieces: list[str], usage: dict[str, Any]
) -> str | None:
    """Read a stream of events to its end; return why it failed, None when it did not."""
    rest = b""
    async for chunk in chunks:
        now = time.monotonic()
        *lines, rest = (rest + chunk).split(b"\n")
        for event in _events(lines):
            if event == b"[DONE]":
                return None
            frame = orjson.loads(event)
            if "error" in frame:
                return f"the stream ended with {_message(frame)!r}"
            usage.update(frame.get("usage") or {})
            for choice in frame.get("choices", ()):
                delta = choice["delta"]
                text = delta.get("content") or delta.get("reasoning_content")
                if text:
                    times.append(now)
                    pieces.append(text)
    return "the stream ended without [DONE]"


def _events(lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _body(load: Load, text: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": load.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": load.output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return body | {"ignore_eos": True} if load.ignore_eos else body


def _headers(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _refusal(status: int, content: bytes) -> str:
    try:
        said = _message(orjson.loads(content))
    except orjson.JSONDecodeError:
        said = content[:_ANSWER_CHARS].decode(errors="replace")
    return f"it answers {status}: {said}"


def _message(frame: Any) -> str:
    error: Any = frame.get("error") if is_object(frame) else None
    message: Any = error.get("message") if is_object(error) else error
    return str(message if message is not None else frame)[:_ANSWER_CHARS]


def _reason(error: Exception) -> str:
    if isinstance(error, (TimeoutError, httpx2.TimeoutException)):
        return "it takes too long"
    return str(error).rstrip(".") or type(error).__name__
