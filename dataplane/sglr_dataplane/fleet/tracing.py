"""Traces as the fleet sees them: what an attempt tells its worker, and who hears how it ended; pure.

Which library makes the spans is not known here; without one, what a client said of its trace is
passed on to the worker as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from sglr_dataplane.fleet.breaker import Outcome
    from sglr_dataplane.fleet.worker import Worker
    from sglr_dataplane.job import Job

Fields = tuple[tuple[str, str], ...]

_PARENT: Final = "traceparent"
_STATE: Final = "tracestate"
_NAMES: Final = frozenset({_PARENT.encode(), _STATE.encode()})
# W3C Trace Context, 3.2 and 3.3: versions above 00 may say more after the flags.
_PARENT_FORM: Final = re.compile(
    r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{1,200})?"
)
_STATE_FORM: Final = re.compile(r"[ -~]{1,512}")


class AttemptSpan(Protocol):
    """One attempt on one worker, in somebody's trace."""

    @property
    def fields(self) -> Fields:
        """What the worker is told, so that its spans belong to this one."""
        ...

    def answered(self) -> None:
        """Note that the first chunk came."""
        ...

    def end(self, outcome: Outcome) -> None:
        """Note how it ended; called once."""
        ...


class Tracer(Protocol):
    """Makes the spans of attempts."""

    def attempt(self, worker: Worker, job: Job) -> AttemptSpan:
        """Begin the span of *job*'s attempt on *worker*, within the request's."""
        ...


def fields_of(headers: Mapping[str, str]) -> Fields:
    """Return what a client's *headers* say of its trace; ``()`` for nothing, or nothing valid."""
    parent = headers.get(_PARENT)
    if parent is None or _PARENT_FORM.fullmatch(parent) is None:
        return ()
    state = headers.get(_STATE)
    if state is None or _STATE_FORM.fullmatch(state) is None:
        return ((_PARENT, parent),)
    return (_PARENT, parent), (_STATE, state)


def carrying(job: Job, fields: Fields) -> Job:
    """Return *job* with *fields* for its worker, in the place of what it had of the kind."""
    forward = job.forward
    if forward is not None:
        kept = (each for each in forward.headers if each[0] not in _NAMES)
        told = ((name.encode(), value.encode()) for name, value in fields)
        forward = replace(forward, headers=(*kept, *told))
    return msgspec.structs.replace(job, trace=fields, forward=forward)
