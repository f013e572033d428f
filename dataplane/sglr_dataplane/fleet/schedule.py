"""When workers are asked for their health, and what it takes to change one's mind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often workers are asked, in seconds, and what it takes to change one's mind."""

    interval: float = 5.0
    """Between two probes of a worker: Kubernetes' own probes come every 10 s."""
    jitter: float = 0.1
    """Share of the interval by which it varies, so that routers do not ask in step."""
    starting: float = 1.0
    """Longest between two probes of a worker that was never up: the first one in a fleet is waited
    for, and a refused connection costs nothing."""
    soonest: float = 0.2
    """Between two probes when failing traffic asks for one at once: five a second at most."""
    failures: int = 3
    """Failed probes in a row after which a ready worker is unhealthy: one lost packet is not."""
    successes: int = 1
    """Good probes in a row after which an unhealthy worker is ready: SGLang itself waits for its
    warm-up."""
    facts: float = 15.0
    """Between two looks at what a healthy worker says of itself. It only changes with a restart,
    which most often fails a probe, and then is noticed at once; this is for one between two."""
    closing: float = 5.0
    """For closing one connection, which waits for nothing but the kernel."""
    generation: float | None = None
    """Between two probes that have a worker generate a token, unless it answered a job meanwhile;
    None never: each costs a step of the GPU, and there are as many askers as routers."""
