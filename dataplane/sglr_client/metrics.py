"""What a client tells of its calls, to any sink; and a sink that counts into a plain dict."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class CallReport:
    """One call, told when it has ended.

    Attributes:
        operation: ``chat``, ``completions``, ``embeddings``, ``models`` or ``post``.
        model: As the caller named it; ``""`` when the call names none.
        outcome: ``ok``, ``abandoned`` by the caller, or the error's kind.
        retries: Attempts after the first.
        seconds: From the call to its end, waits between attempts included.
        first_content: Seconds to a stream's first content; None: no stream, or none came.
        per_token: Seconds per token after the first; None when that is not known.
        prompt_tokens: By the server's counters, 0 when it told none; as *completion_tokens*.
    """

    operation: str
    model: str
    outcome: str
    retries: int
    seconds: float
    first_content: float | None = None
    per_token: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


class MetricsSink(Protocol):
    """Takes what a client tells; from several threads if the client is used so. Must not block."""

    def begin(self, operation: str, model: str, /) -> None:
        """Take note of a call that begins."""

    def retry(self, operation: str, kind: str, /) -> None:
        """Take note that a call is tried again, after an error of this kind."""

    def end(self, report: CallReport, /) -> None:
        """Take note of a call that has ended."""

    def pool(self, host: str, in_use: int, limit: int, /) -> None:
        """Take note of the connections to *host* in use, and of how many may be."""


class NullSink:
    """Takes no notes."""

    def begin(self, operation: str, model: str, /) -> None:
        """Take no note."""

    def retry(self, operation: str, kind: str, /) -> None:
        """Take no note."""

    def end(self, report: CallReport, /) -> None:
        """Take no note."""

    def pool(self, host: str, in_use: int, limit: int, /) -> None:
        """Take no note."""


class DictSink:
    """Counts into memory; `snapshot` is a plain dict for logs and tests."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._pool: dict[str, dict[str, int]] = {}

    def __repr__(self) -> str:
        return f"<DictSink {self._counts['requests']} requests>"

    def begin(self, _operation: str, _model: str, /) -> None:
        """Count a request."""
        with self._lock:
            self._counts["requests"] += 1

    def retry(self, _operation: str, _kind: str, /) -> None:
        """Count a retry."""
        with self._lock:
            self._counts["retries"] += 1

    def end(self, report: CallReport, /) -> None:
        """Count how it ended, its tokens and its times."""
        with self._lock:
            if report.outcome in {"ok", "abandoned"}:
                self._counts["successes" if report.outcome == "ok" else "abandoned"] += 1
            else:
                self._errors[report.outcome] += 1
            self._counts["prompt_tokens"] += report.prompt_tokens
            self._counts["completion_tokens"] += report.completion_tokens
            self._add("latency", report.seconds)
            self._add("ttft", report.first_content)
            self._add("tpot", report.per_token)

    def pool(self, host: str, in_use: int, limit: int, /) -> None:
        """Keep the newest."""
        self._pool = {**self._pool, host: {"in_use": in_use, "limit": limit}}

    def snapshot(self) -> dict[str, Any]:
        """Return the counts so far, and the means of the times in seconds (None before the first).

        Keys: ``requests``, ``successes``, ``abandoned``, ``retries``, ``prompt_tokens``,
        ``completion_tokens``, ``errors`` (by kind), ``latency``, ``ttft``, ``tpot``,
        ``pool`` (by host: ``in_use`` and ``limit``).
        """
        names = ("requests", "successes", "abandoned", "retries")
        with self._lock:
            return {
                **{name: self._counts[name] for name in names},
                "prompt_tokens": self._counts["prompt_tokens"],
                "completion_tokens": self._counts["completion_tokens"],
                "errors": dict(self._errors),
                **{name: self._mean(name) for name in ("latency", "ttft", "tpot")},
                "pool": self._pool,
            }

    def _add(self, name: str, seconds: float | None) -> None:
        if seconds is not None:
            self._sums[name] += seconds
            self._counts[name] += 1

    def _mean(self, name: str) -> float | None:
        return self._sums[name] / self._counts[name] if self._counts[name] else None
