"""What keeps a backend's workers from being used, in words: for the operator and for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglr_proto.discovery import push_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglr_dataplane.fleet.worker import Worker


@dataclass(frozen=True, slots=True)
class BackendHealth:
    """One backend as this router sees it."""

    workers: Mapping[str, str | None]
    """By endpoint id: why the worker cannot be used; None when it can."""
    problem: str | None = None
    """What is missing whatever the workers do, such as the tokenizer; None when nothing is."""


def ailment(worker: Worker) -> str:
    """Return why *worker* is not ready, without a full stop."""
    if worker.problem is not None:
        return worker.problem.removesuffix(".")
    return "its connection was lost" if worker.is_lost else "it has not answered a probe yet"


def report(backend: pb.BackendRef, health: BackendHealth) -> pb.HealthReport:
    """Return *health* as the operator is told."""
    return pb.HealthReport(
        backend=backend,
        workers=[
            pb.WorkerHealth(endpoint_id=name, healthy=problem is None, problem=problem or "")
            for name, problem in health.workers.items()
        ],
        problem=health.problem or "",
    )
