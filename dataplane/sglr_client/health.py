"""What is known of a host's health: pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Health:
    """What a look at ``/health`` found.

    Attributes:
        is_up: It answered 200.
        status: The answer's status; None: there was no answer.
        reason: One clause for people, ``""`` when up.
    """

    is_up: bool
    status: int | None
    reason: str = ""

    @classmethod
    def answered(cls, status: int) -> Health:
        """Return what an answer with *status* says: 503 while loading, 200 when up."""
        if status == 200:  # noqa: PLR2004  # SGLang and vLLM: exactly this
            return cls(is_up=True, status=status)
        return cls(is_up=False, status=status, reason=f"/health answered {status}")

    @classmethod
    def unreachable(cls, error: Exception) -> Health:
        """Return what a failed look says."""
        return cls(is_up=False, status=None, reason=f"/health failed: {str(error).rstrip('.')}")


class HealthRecord:
    """The newest finding of a background checker, for calls to consult.

    One thread writes, any may read.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._found: tuple[Health, float] | None = None

    def __repr__(self) -> str:
        return f"<HealthRecord {self._found}>"

    @property
    def newest(self) -> Health | None:
        """The newest finding, however old; None before the first."""
        return None if self._found is None else self._found[0]

    def note(self, health: Health, until: float) -> None:
        """Keep *health* as fresh until the clock shows *until*."""
        self._found = (health, until)

    def forget(self) -> None:
        """Know nothing again."""
        self._found = None

    def fresh(self, now: float) -> Health | None:
        """Return the newest finding if it still counts at *now*, else None."""
        found = self._found
        return found[0] if found is not None and now < found[1] else None
