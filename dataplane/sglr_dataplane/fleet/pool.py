"""Pools: one backend as the data plane lives with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sglr_dataplane.fleet.gate import Gate
from sglr_dataplane.fleet.policies import Policy
from sglr_dataplane.fleet.retry import RetryBudget
from sglr_dataplane.fleet.selection import Rules
from sglr_dataplane.fleet.settings import Settings
from sglr_dataplane.fleet.worker import Worker
from sglr_proto.backend import SGLangBackend


@dataclass(frozen=True, slots=True)
class Pool:
    """A backend at its newest version; what it has learned moves on to the next version."""

    key: str
    """The backend's ``namespace/name``."""
    backend: SGLangBackend
    settings: Settings
    rules: Rules
    policy: Policy
    budget: RetryBudget
    gate: Gate
    workers: Mapping[str, Worker] = field(default_factory=dict[str, Worker])
    """By endpoint id."""
