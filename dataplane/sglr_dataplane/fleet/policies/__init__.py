"""Policies: which worker takes a job. Pure: no time, no network, no worker's insides."""

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


C = TypeVar("C", bound=Candidate)


class Policy(Protocol):
    """Chooses a worker for a job; one instance serves one backend."""

    def choose(self, job: Job, candidates: Sequence[C]) -> C:
        """Return one of *candidates*, of which there is at least one."""
        ...
