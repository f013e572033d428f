"""Rates: how much each caller may use in a minute; pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from sglr_dataplane.errors import TooManyRequestsError

_MINUTE: Final = 60.0
_MOST_OWNERS: Final = 100_000
"""Callers whose use is remembered; who was there longest ago starts anew."""


class Rates(msgspec.Struct, frozen=True):
    """What may be used in a minute; None is unlimited."""

    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


UNLIMITED: Final = Rates()


class Bucket:
    """A token bucket: *limit* a minute, all of it at once after a quiet minute.

    It may be overdrawn: the size of an answer is known at its end only. Then nothing is left until
    the debt is worked off.
    """

    def __init__(self, limit: int, now: float) -> None:
        """Start full."""
        self.limit = limit
        self._level = float(limit)
        self._at = now

    def __repr__(self) -> str:
        return f"<Bucket {self._level:.1f} of {self.limit}>"

    def left(self, now: float) -> float:
        """Return how much is left; below zero after overdrawing."""
        self._level = min(self._level + (now - self._at) * self.limit / _MINUTE, float(self.limit))
        self._at = now
        return self._level

    def take(self, amount: float, now: float) -> None:
        """Use *amount*, whether or not it is left."""
        self._level = self.left(now) - amount

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until *amount* is left, or everything when it is more than that."""
        missing = min(amount, self.limit) - self.left(now)
        return max(missing * _MINUTE / self.limit, 0.0)


@dataclass(slots=True)
class Use:
    """The buckets of one owner of rates."""

    rates: Rates
    buckets: dict[str, Bucket]


class Meter:
    """What every owner of rates has used in the last minute; per router process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Count by *clock*, seconds that only go up."""
        self._clock = clock
        self._uses: OrderedDict[str, Use] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Meter {len(self._uses)} owners>"

    def admit(self, owner: str, rates: Rates, input_tokens: int) -> None:
        """Count a request of *owner* with a prompt of *input_tokens*, if its rates allow it.

        Raises:
            TooManyRequestsError: They do not; nothing is counted.
        """
        now = self._clock()
        buckets = self._of(owner, rates, now)
        wanted = {"requests": 1, "input_tokens": input_tokens, "output_tokens": 1}
        for name, bucket in buckets.items():
            wait = bucket.wait(wanted[name], now)
            if wait > 0:
                raise TooManyRequestsError(
                    f"The rate limit of {bucket.limit} {name.replace('_', ' ')} per minute is "
                    f"reached; try again in {wait:.1f} s.",
                    retry_after=max(math.ceil(wait), 1),
                )
        for name in ("requests", "input_tokens"):
            if name in buckets:
                buckets[name].take(wanted[name], now)

    def answered(self, owner: str, rates: Rates, output_tokens: int) -> None:
        """Count the tokens of an answer."""
        now = self._clock()
        bucket = self._of(owner, rates, now).get("output_tokens")
        if bucket is not None:
            bucket.take(output_tokens, now)

    def headers(self, owner: str, rates: Rates) -> list[tuple[str, str]]:
        """Return the ``x-ratelimit-*`` headers: limit, what is left, and when all of it is back.

        OpenAI's names; *tokens* are those of prompts.
        """
        now = self._clock()
        found: list[tuple[str, str]] = []
        for name, bucket in self._of(owner, rates, now).items():
            word = {"input_tokens": "tokens", "output_tokens": "output-tokens"}.get(name, name)
            left = max(int(bucket.left(now)), 0)
            found += [
                (f"x-ratelimit-limit-{word}", str(bucket.limit)),
                (f"x-ratelimit-remaining-{word}", str(left)),
                (f"x-ratelimit-reset-{word}", f"{bucket.wait(bucket.limit, now):.3f}s"),
            ]
        return found

    def _of(self, owner: str, rates: Rates, now: float) -> dict[str, Bucket]:
        """Return the buckets of *owner*, new ones when its rates are new."""
        use = self._uses.get(owner)
        if use is None or use.rates != rates:
            wanted = {
                "requests": rates.requests,
                "input_tokens": rates.input_tokens,
                "output_tokens": rates.output_tokens,
            }
            buckets = {
                name: Bucket(limit, now) for name, limit in wanted.items() if limit is not None
            }
            use = self._uses[owner] = Use(rates, buckets)
            if len(self._uses) > _MOST_OWNERS:
                self._uses.popitem(last=False)
        self._uses.move_to_end(owner)
        return use.buckets
