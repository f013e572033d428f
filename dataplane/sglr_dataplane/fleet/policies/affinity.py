"""Policies that bring equal keys to equal workers: by prompt, by key, by session."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from sglr_dataplane.fleet.policies.hashing import best_with_room, key_of
from sglr_dataplane.fleet.policies.prefix_index import block_hash, seed_of
from sglr_dataplane.job import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglr_dataplane.fleet.policies import C, Policy
    from sglr_dataplane.job import Job


class PrefixHash:
    """Takes the worker that the beginning of the prompt belongs to, unless it is overloaded.

    Every router chooses alike with no shared state. Prompts that differ only after the beginning
    go to one worker, as far as its load allows.
    """

    def __init__(self, *, prefix_tokens: int, factor_percent: int) -> None:
        """Go by the first *prefix_tokens*; no worker has more than *factor_percent* of the mean."""
        self._prefix_tokens = prefix_tokens
        self._factor_percent = factor_percent

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # the prompt is the key
        """Return the prompt's worker."""
        words = words_of(job.input_ids[: self._prefix_tokens])
        prefix = block_hash(seed_of(job.adapter), words)
        return best_with_room(prefix, candidates, self._factor_percent)


class ConsistentHash:
    """Takes the worker that the request's key belongs to, unless it is overloaded."""

    def __init__(self, fallback: Policy, *, factor_percent: int) -> None:
        """Ask *fallback* for requests without a key; bound the load as in PrefixHash."""
        self._fallback = fallback
        self._factor_percent = factor_percent

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:
        """Return the key's worker."""
        if not key:
            return self._fallback.choose(job, candidates)
        return best_with_room(key_of(key), candidates, self._factor_percent)


class SessionSticky:
    """Takes the worker of the session's last job, however busy it is; new sessions by *fallback*.

    State: at most *most* sessions, each until nobody has asked for *idle* seconds. Per process: a
    session that another process began is a new one here.
    """

    def __init__(
        self, fallback: Policy, *, idle: float, most: int, clock: Callable[[], float]
    ) -> None:
        """Remember nothing yet."""
        self._fallback = fallback
        self._idle = idle
        self._most = most
        self._clock = clock
        self._sessions: OrderedDict[int, tuple[str, float]] = OrderedDict()
        """Worker and time of the last job by session, the one used longest ago first."""

    def __repr__(self) -> str:
        return f"<SessionSticky {len(self._sessions)} sessions>"

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:
        """Return the session's worker, or the one that is its worker from now on."""
        if not key:
            return self._fallback.choose(job, candidates)
        session, now = key_of(key), self._clock()
        self._forget(now)
        worker, _ = self._sessions.pop(session, ("", 0.0))
        known = (candidate for candidate in candidates if candidate.id == worker)
        chosen = next(known, None) or self._fallback.choose(job, candidates)
        self._sessions[session] = (chosen.id, now)
        return chosen

    def _forget(self, now: float) -> None:
        """Drop the sessions that are idle, and the oldest when there are too many."""
        while self._sessions:
            session, (_, used) = next(iter(self._sessions.items()))
            if now - used < self._idle and len(self._sessions) < self._most:
                return
            del self._sessions[session]
