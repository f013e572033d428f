"""What an engine makes of the tokens a model wishes to write: limits, EOS, stops. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, cycle
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sglr_dataplane.sim.text import Text

FinishName = Literal["stop", "length", "abort", ""]


@dataclass(frozen=True, slots=True)
class Finish:
    """How a generation ended, as the wire names it."""

    reason: FinishName
    matched: int | str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a generation besides the model's own wish."""

    max_new_tokens: int
    """Already clipped to what fits the window."""
    min_new_tokens: int = 0
    ignore_eos: bool = False
    """As in sglang: stop_token_ids are not looked at either."""
    eos_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()

    @property
    def banned(self) -> frozenset[int]:
        """The ids that cannot come before min_new_tokens."""
        return self.eos_ids | self.stop_token_ids


@dataclass(frozen=True, slots=True)
class Generated:
    """The tokens of one choice, the stopping ones included, and how they ended."""

    ids: tuple[int, ...]
    finish: Finish


def generate(wish: Sequence[int], limits: Limits, text: Text) -> Generated:
    """Return what is left of *wish* under *limits*.

    The order is sglang's: the length first, then tokens, then strings. The matched token, and the
    tokens of the matched string, stay in the ids.
    """
    ids: list[int] = []
    for token in _wanted(wish, limits):
        if len(ids) >= limits.max_new_tokens:
            break
        if len(ids) < limits.min_new_tokens and token in limits.banned:
            continue
        ids.append(token)
        finish = _finish_after(ids, limits, text)
        if finish is not None:
            return Generated(tuple(ids), finish)
    reason: FinishName = "length" if len(ids) >= limits.max_new_tokens else "stop"
    return Generated(tuple(ids), Finish(reason))


def exactly(ids: Sequence[int], eos_ids: Iterable[int]) -> Generated:
    """Return *ids* as they are: finished by the last when that is an EOS, else by ``stop``."""
    last = ids[-1] if ids else None
    return Generated(tuple(ids), Finish("stop", last if last in frozenset(eos_ids) else None))


def _wanted(wish: Sequence[int], limits: Limits) -> Iterator[int]:
    """Return the tokens of *wish*; once more and again where the model may not end."""
    body = [token for token in wish if token not in limits.banned]
    if not body:
        return iter(wish)
    if limits.ignore_eos:
        return chain(wish, cycle(body))
    if limits.min_new_tokens > len(body):
        rounds = limits.min_new_tokens // len(body) + 1
        return chain(body * rounds, wish[len(body) :])
    return iter(wish)


def _finish_after(ids: list[int], limits: Limits, text: Text) -> Finish | None:
    """Return how the newest of *ids* ends the generation; None when it goes on."""
    if len(ids) >= limits.max_new_tokens:
        return Finish("length")
    last = ids[-1]
    if not limits.ignore_eos and last in limits.banned:
        return Finish("stop", last)
    return _stop_string(ids, limits.stop, text) if limits.stop else None


def _stop_string(ids: list[int], stops: tuple[str, ...], text: Text) -> Finish | None:
    """Return the finish by the first stop string in the newest text; None without one.

    A stop of k characters has at most 4 k tokens (one per UTF-8 byte), so a tail is enough.
    """
    tail = 4 * max(len(stop) for stop in stops) + 1
    recent = text.decode(ids[-tail:])
    return next((Finish("stop", stop) for stop in stops if stop and stop in recent), None)
