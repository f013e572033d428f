"""Who is next: a bounded queue that no heavy caller can take for itself; pure.

Of the waiting callers the one with the fewest jobs admitted is next, and of equals the one that was
served longest ago. A higher priority goes first, but every eighth turn belongs to whoever has
waited longest, so that nobody waits for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_OLDEST_EVERY: Final = 8
"""Turns of which one is the oldest ticket's: an eighth of the places keeps the lowest moving."""


class Priority(IntEnum):
    """What goes first; the names are those of the header and of the keys' file."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


@dataclass(slots=True, eq=False)
class Ticket:
    """One job's place in the queue."""

    caller: str
    priority: Priority
    number: int
    """Rises with each ticket."""


class FairQueue:
    """Waiting tickets, and how many jobs of each caller are admitted."""

    def __init__(self) -> None:
        """Start empty."""
        self._waiting: dict[Priority, dict[str, deque[Ticket]]] = {each: {} for each in Priority}
        self._admitted: dict[str, int] = {}
        self._served: dict[str, int] = {}
        self._turn = 0
        self._taken = 0
        self.length = 0
        """How many tickets wait."""

    def __repr__(self) -> str:
        return f"<FairQueue waiting={self.length} admitted={self._admitted}>"

    def ticket(self, caller: str, priority: Priority) -> Ticket:
        """Return a ticket that is not in the queue."""
        self._turn += 1
        return Ticket(caller, priority, self._turn)

    def put(self, ticket: Ticket) -> None:
        """Let *ticket* wait."""
        callers = self._waiting[ticket.priority]
        callers.setdefault(ticket.caller, deque()).append(ticket)
        self.length += 1

    def drop(self, ticket: Ticket) -> None:
        """Take *ticket* out, wherever it stands; KeyError or ValueError when it does not wait."""
        callers = self._waiting[ticket.priority]
        tickets = callers[ticket.caller]
        tickets.remove(ticket)
        self.length -= 1
        if not tickets:
            del callers[ticket.caller]

    def goes_first(self, priority: Priority) -> bool:
        """Return whether nobody of *priority* or above waits."""
        if not self.length:
            return True
        return not any(self._waiting[each] for each in Priority if each >= priority)

    def heaviest(self, newcomer: Ticket) -> Ticket | None:
        """Return the ticket that should make room for *newcomer*; None when that is itself.

        It is the youngest of a caller that has at least two tickets more than the newcomer's, or
        one of a lower priority, the lowest first.
        """
        mine = sum(len(callers.get(newcomer.caller, ())) for callers in self._waiting.values())
        for priority in Priority:
            callers = self._waiting[priority]
            if priority > newcomer.priority or not callers:
                continue
            most = max(callers.values(), key=len)
            if priority < newcomer.priority or len(most) > mine + 1:
                return most[-1]
        return None

    def take(self) -> Ticket:
        """Return the next ticket, which waits no longer; ValueError when nobody waits."""
        chosen = self._next()
        self.drop(chosen)
        return chosen

    def admit(self, caller: str) -> None:
        """Count a job of *caller* as admitted."""
        self._turn += 1
        self._admitted[caller] = self._admitted.get(caller, 0) + 1
        self._served[caller] = self._turn

    def leave(self, caller: str) -> None:
        """Count a job of *caller* no more."""
        left = self._admitted.pop(caller) - 1
        if left:
            self._admitted[caller] = left
        else:
            # Who has nothing here is remembered no longer: names come from callers.
            self._served.pop(caller, None)

    def _next(self) -> Ticket:
        firsts = [tickets[0] for callers in self._waiting.values() for tickets in callers.values()]
        self._taken += 1
        if self._taken % _OLDEST_EVERY == 0:
            return min(firsts, key=lambda ticket: ticket.number)
        return min(
            firsts,
            key=lambda ticket: (
                -ticket.priority,
                self._admitted.get(ticket.caller, 0),
                self._served.get(ticket.caller, 0),
                ticket.number,
            ),
        )
