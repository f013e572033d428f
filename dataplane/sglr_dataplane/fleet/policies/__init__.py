"""Policies: which worker takes a job. Pure: no network, no worker's insides, time as an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.job import Job


class Candidate(Protocol):
    """What a policy may know of a worker."""

    @property
    def id(self) -> str:
        """Its endpoint's identity: stable while the endpoint lives."""
        ...

    @property
    def in_flight(self) -> int:
        """The jobs of this process that it is busy with."""
        ...

    @property
    def load(self) -> int:
        """The jobs that it is busy with, those that others sent included as far as it tells."""
        ...

    @property
    def weight(self) -> float:
        """How much of the work it is to have, against the others; above 0."""
        ...


C = TypeVar("C", bound=Candidate)


class Policy(Protocol):
    """Chooses a worker for a job; one instance serves one backend."""

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:
        """Return one of *candidates*, of which there is at least one.

        Args:
            job: What is to be generated.
            candidates: Who may take it.
            key: What the backend's policy goes by, such as a session's name; ``""`` when the
                request has none.
        """
        ...
