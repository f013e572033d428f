"""How long a worker may take for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The time limits of one worker's client, in seconds.

    A worker that has lost a request says nothing for ever (a full queue drops its rejections), so
    that every wait has an end.
    """

    connect: float = 2.0
    """For a connection. Inside a cluster it takes a millisecond; two seconds bridge one lost SYN."""
    first_token: float = 120.0
    """From sending a streamed job to its first message: queueing and a long prefill."""
    idle: float = 60.0
    """Between two messages of a streamed job: far above the slowest decode step, preemption too."""
    total: float = 1800.0
    """For a whole job: 32 000 tokens of reasoning at 20 tokens a second."""
    linger: float = 0.5
    """For the call's status after its last message. The answer is complete: only tidiness waits."""
    probe: float = 2.0
    """For a health check; its own limit, so that no request's wait is a probe's."""
    generation: float = 25.0
    """For a health check that generates a token: SGLang itself says no after 20 s."""
    facts: float = 10.0
    """For what a worker says of itself: its full list of arguments, while it is busy warming up."""
    news: float = 86400.0
    """For a worker's news of its cache, which have no end: then they are asked for again."""
    bundle: float = 120.0
    """For a worker's tokenizer: 33 MB are slow over a busy link, and nobody waits for an answer."""
