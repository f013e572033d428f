"""What a call asks of the network, as values: a flow yields them, a wire performs them; pure.

A flow is a generator. It decides everything: when to send, to wait, to try again, to give up. What
it decides is the same for the blocking and for the asyncio client; only the wires differ.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from sglr_client.calls import Call
from sglr_client.limits import Timeouts


@dataclass(frozen=True, slots=True)
class Send:
    """Send the call's request and wait for the answer's head: gives a `Head`.

    Attributes:
        seconds: All the time it may take; None: no limit but those of *timeouts*.
    """

    call: Call
    timeouts: Timeouts
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Read:
    """Read on in the answer's body: gives bytes, ``b""`` at its end; *seconds* as in `Send`."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Give the connection back and wait: gives None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand this to the caller: gives None when the caller wants more."""

    item: Any


@dataclass(frozen=True, slots=True)
class Head:
    """An answer's beginning; the headers' names are in lower case."""

    status: int
    headers: Mapping[str, str]


Step = Send | Read | Sleep | Emit

# What a step gives depends on its class, which Generator's one send type cannot say.
Flow = Generator[Step, Any, None]
"""Yields steps, is sent what they give, and is thrown the ClientErrors they end in."""
