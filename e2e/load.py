"""Continuous streams through the openai SDK, each checked word by word."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import httpx2
import openai
from steps import Release

QUESTION: Final = "Tell me what I said, number {}."
_END: Final = "What else?"
"""How the demo's assistant ends each answer: a text without it was cut."""


@dataclass
class Tally:
    """What came of the streams so far."""

    whole: int = 0
    refused: int = 0
    """Clients whose key was not good any more, before an answer began; such a client ends."""
    failures: list[str] = field(default_factory=list)


@contextmanager
def flowing(release: Release, *, key: str = "none") -> Iterator[Load]:
    """Keep streams of the demo's model flowing; every one must come whole, to the end."""
    load = Load(release.url(), "demo", key=key)
    with load:
        load.keep_going()
        yield load
        load.keep_going()
    assert load.tally.failures == []
    assert load.tally.refused == 0


class Load:
    """*streams* at a time, one after the other, until the block ends; no retries.

    The clients keep their connections, as real ones do: a router that goes away must tell them.
    """

    def __init__(self, url: str, model: str, *, key: str = "none", streams: int = 4) -> None:
        """Prepare; the block starts it."""
        self._url = url
        self._key = key
        self._model = model
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self.tally = Tally()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(number,)) for number in range(streams)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "a stream hangs"

    def keep_going(self, streams: int = 8, seconds: float = 60) -> None:
        """Wait until *streams* more have come whole: the load is no silence."""
        wanted = self.tally.whole + streams
        deadline = time.monotonic() + seconds
        while self.tally.whole < wanted:
            assert time.monotonic() < deadline, f"only {self.tally} within {seconds} s"
            assert not self.tally.failures, self.tally.failures[:3]
            time.sleep(0.1)

    def _ask_on(self, number: int) -> None:
        client = openai.OpenAI(
            base_url=f"{self._url}/v1", api_key=self._key, max_retries=0, timeout=30
        )
        turn = 0
        with client:
            while not self._ending.is_set():
                turn += 1
                try:
                    problem = self._ask(client, QUESTION.format(number * 100_000 + turn))
                except openai.AuthenticationError:
                    with self._lock:
                        self.tally.refused += 1
                    return
                with self._lock:
                    if problem is None:
                        self.tally.whole += 1
                    else:
                        self.tally.failures.append(f"{time.strftime('%H:%M:%S')} {problem}")

    def _ask(self, client: openai.OpenAI, question: str) -> str | None:
        """Stream one answer; return what is wrong with it.

        Raises:
            openai.AuthenticationError: The key is not good: an HTTP status, so before any answer.
        """
        text, finish = "", None
        try:
            stream = client.chat.completions.create(
                model=self._model,
                stream=True,
                messages=[{"role": "user", "content": question}],
                extra_body={"chat_template_kwargs": {"enable_thinking": False}},
            )
            for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    finish = choice.finish_reason or finish
        except openai.AuthenticationError:
            raise
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            return f"{type(error).__name__}: {error} after {text!r}"
        if finish != "stop" or question not in text or not text.endswith(_END):
            return f"cut: {text!r} finish {finish!r}"
        return None
