"""How much one rendering may cost: steps, time, and the size of every value it makes.

A template comes from a model's repository and may be broken or hostile, and a request may hold a
hundred thousand messages. :mod:`sglr_dataplane.prompt.sandbox` reports here at each loop turn,
call, operator and output; the size rules keep any single step in between short.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, ValuesView
from dataclasses import dataclass
from typing import Any

from jinja2.runtime import Context

from sglr_dataplane.errors import TemplateRefusalError
from sglr_dataplane.prompt.json_values import is_object


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """What one rendering may cost at most."""

    steps: int = 5_000_000
    """Loop turns, calls and operators; a sum of texts is one. A 60-message agent history with 8
    tools takes 5,000."""
    characters: int = 8_000_000
    """Length of the prompt, and of any value on the way: some 2 million tokens, more than the
    contexts that are served."""
    seconds: float = 5.0
    """Wall time. Long histories take 3 ms; the rest is room for a busy machine."""


BUDGET = "(budget)"
"""The context key of the rendering's budget: no template can write this name."""


_ATOMS = (int, float, type(None))
_CONTAINERS: tuple[type[Any], ...] = (list, tuple, dict, ItemsView, ValuesView)


class RenderBudgetError(TemplateRefusalError):
    """The rendering was ended because it became too long, too large or too slow."""

    code = "render_budget_exceeded"


class Budget:
    """What is left for one rendering; used by one thread."""

    def __init__(self, limits: RenderLimits, clock: Callable[[], float]) -> None:
        """Start the time now, by *clock* (seconds, rising)."""
        self.limits = limits
        self._clock = clock
        self._ends = clock() + limits.seconds
        self._steps = limits.steps
        # Text is written to macros and blocks first, then again into what encloses them.
        self.characters = 4 * limits.characters
        """How many may still be written, anywhere; below 0 is for :meth:`refuse`."""
        self._weights: dict[int, tuple[int, Any]] = {}

    def __repr__(self) -> str:
        return f"<Budget steps={self._steps} characters={self.characters}>"

    def step(self, characters: int = 0) -> None:
        """Count one step that writes *characters* of fixed text."""
        self._steps -= 1
        self.characters -= characters
        if self._steps < 0 or self.characters < 0 or self._clock() > self._ends:
            self.refuse()

    def turns(self, iterable: Iterable[Any], written: int) -> Iterator[Any]:
        """Yield from *iterable*, each item a step that writes *written* characters.

        As :meth:`step` says it, without a call for each.
        """
        for item in iterable:
            self._steps -= 1
            self.characters -= written
            if self._steps < 0 or self.characters < 0 or self._clock() > self._ends:
                self.refuse()
            yield item

    def fits(self, size: int) -> None:
        """Refuse to make a value of *size* characters or items."""
        if size > self.limits.characters:
            raise RenderBudgetError(
                "The chat template of this model makes a value of more than"
                f" {self.limits.characters} characters from these messages.",
                param="messages",
            )

    def make(self, size: int) -> None:
        """Count a text of *size* characters that is about to be made."""
        self.fits(size)
        self.step(size)

    def weigh(self, value: Any) -> int:
        """Return the size of *value* written out; shared parts count each time they appear.

        Keeps ``[x, x]`` in a loop from becoming a value that needs an age to print or compare.
        """
        if isinstance(value, str):
            return len(value) + 1
        if isinstance(value, _ATOMS) or not isinstance(value, _CONTAINERS):
            return 1
        known = self._weights.get(id(value))
        if known is not None:
            return known[0]
        weight = 1 + self._sum(value.values() if is_object(value) else value)
        if is_object(value):
            weight += self._sum(value)
        self.fits(weight)
        # The value is kept too: a freed one's id would be used again.
        self._weights[id(value)] = (weight, value)
        return weight

    def _sum(self, parts: Iterable[Any]) -> int:
        weight = 0
        for part in parts:
            if type(part) is str:
                weight += len(part) + 1
            else:
                weight += self.weigh(part)
        return weight

    def refuse(self) -> None:
        """End the rendering."""
        raise RenderBudgetError(
            "Rendering these messages with the chat template of this model takes more than the"
            f" {self.limits.seconds:g} seconds, {self.limits.steps} steps or"
            f" {self.limits.characters} characters it may take.",
            param="messages",
        )


def budget_of(context: Context) -> Budget:
    """Return the budget of the rendering that *context* belongs to."""
    budget: Budget = context.parent[BUDGET]
    return budget
