"""How many requests each caller has under way at once; per router process."""

from __future__ import annotations

from collections import Counter

from sglr_dataplane.errors import TooManyRequestsError


class InFlight:
    """Counts the requests of each caller, from their coming to the end of their answers."""

    def __init__(self) -> None:
        """Have none under way."""
        self._counts = Counter[str]()

    def __repr__(self) -> str:
        return f"<InFlight {dict(self._counts)}>"

    def enter(self, name: str, most: int | None) -> None:
        """Count a request of the caller *name*, until :meth:`leave`.

        Args:
            name: Whose it is; several keys of one name are one caller.
            most: How many it may have; None: any number.

        Raises:
            TooManyRequestsError: It has as many already; this one is not counted.
        """
        if most is not None and self._counts[name] >= most:
            raise TooManyRequestsError(
                f"This key may have {most} requests under way at once, and has them; send this one "
                "again when one of them has ended."
            )
        self._counts[name] += 1

    def leave(self, name: str) -> None:
        """Count a request of the caller *name* no more."""
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]
