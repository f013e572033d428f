"""The client library against a real SGLang's own HTTP server, blocking and asyncio, with its errors.

Run with ``--server``: the base URL. Prints a line per claim; ends with 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

from interop.cases import MODEL

from sglr_client import AsyncClient, Client, ClientError, DeadlineError, InvalidRequestError

_HELLO: Final = [{"role": "user", "content": "Hello"}]
_GREEDY: Final[dict[str, Any]] = {"temperature": 0, "max_tokens": 12}
_USAGE: Final = {"include_usage": True}


def failure(ask: Callable[[], object]) -> ClientError | None:
    """Return what *ask* raises; None when nothing."""
    try:
        ask()
    except ClientError as error:
        return error
    return None


def blocking(url: str) -> dict[str, bool]:
    """Return each claim about the blocking client, and whether it holds."""
    with Client(url, timeout=120) as client:
        client.wait_for_model(MODEL, timeout=60)
        whole = client.chat(MODEL, _HELLO, **_GREEDY)
        with client.chat_stream(MODEL, _HELLO, stream_options=_USAGE, **_GREEDY) as stream:
            told = "".join(chunk.text for chunk in stream)
        with client.chat_stream(MODEL, _HELLO, max_tokens=500) as left:
            next(iter(left))
        wrong = failure(lambda: client.chat(MODEL, _HELLO, temperature=-1))
        late = failure(lambda: client.chat(MODEL, _HELLO, max_tokens=4000, timeout=0.2))
        after = client.chat(MODEL, _HELLO, **_GREEDY)
        return {
            "lists its model and is healthy": client.is_model_ready(MODEL)
            and client.health().is_up,
            "a stream is the whole answer": told == whole.text and bool(told),
            "usage is told at the end": stream.usage == whole.usage,
            "a wrong parameter is refused": isinstance(wrong, InvalidRequestError),
            "a deadline ends a call": isinstance(late, DeadlineError),
            "it answers as before": after.text == whole.text,
        }


async def at_once(url: str) -> dict[str, bool]:
    """Return each claim about the asyncio client, and whether it holds."""
    requests = [{"model": MODEL, "messages": _HELLO, **_GREEDY}] * 20
    requests[7] = {"model": MODEL, "messages": _HELLO, "max_tokens": -1}
    async with AsyncClient(url, timeout=120) as client:
        answers = await client.batch_chat(requests, concurrency=8)
        completion = await client.completions(MODEL, "Hello", **_GREEDY)
    texts = {answer.text for answer in answers if not isinstance(answer, ClientError)}
    return {
        "a batch keeps its order and its errors": [
            isinstance(answer, InvalidRequestError) for answer in answers
        ]
        == [number == 7 for number in range(20)],  # noqa: PLR2004  # the wrong one
        "equal requests have one greedy answer": len(texts) == 1,
        "completions are answered": bool(completion.choices[0].text),
    }


def main() -> int:
    """Ask, and print what holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--server", required=True, metavar="URL")
    url: str = parser.parse_args().server
    claims = blocking(url) | asyncio.run(at_once(url))
    for claim, holds in claims.items():
        print("ok  " if holds else "FAIL", claim)
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
