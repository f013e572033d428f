"""The share of one process in what its router may do; pure.

The limits of a backend and of a key hold per router. A router of several processes divides them:
rounded down, so that together they stay below the limit, but 1 at least, so that each can serve.
"""

from __future__ import annotations

from typing import overload

import msgspec

from sglr_dataplane.fleet.rates import Rates
from sglr_proto.backend import SGLangBackend
from sglr_proto.snapshot import BackendSnapshot, Snapshot


@overload
def share(limit: int, processes: int) -> int: ...
@overload
def share(limit: None, processes: int) -> None: ...
@overload
def share(limit: int | None, processes: int) -> int | None: ...
def share(limit: int | None, processes: int) -> int | None:
    """Return what one of *processes* has of *limit*; None is unlimited, and 0 stays 0."""
    if not limit:
        return limit
    return max(limit // processes, 1)


def share_of_rates(rates: Rates, processes: int) -> Rates:
    """Return what one of *processes* has of *rates*."""
    return msgspec.structs.replace(
        rates,
        requests=share(rates.requests, processes),
        input_tokens=share(rates.input_tokens, processes),
        output_tokens=share(rates.output_tokens, processes),
    )


def share_of_snapshot(snapshot: Snapshot, processes: int) -> Snapshot:
    """Return *snapshot* as one of *processes* goes by it; the same one when it is alone."""
    if processes == 1:
        return snapshot
    backends = tuple(_share_of_backend(each, processes) for each in snapshot.backends)
    return msgspec.structs.replace(snapshot, backends=backends)


def _share_of_backend(each: BackendSnapshot, processes: int) -> BackendSnapshot:
    spec = each.backend.spec
    admission, rates, retry = spec.admission, spec.rate_limit, spec.retry
    divided = msgspec.structs.replace(
        spec,
        admission=msgspec.structs.replace(
            admission,
            max_inflight=share(admission.max_inflight, processes),
            max_inflight_per_endpoint=share(admission.max_inflight_per_endpoint, processes),
            max_queue_depth=share(admission.max_queue_depth, processes),
        ),
        rate_limit=msgspec.structs.replace(
            rates,
            requests_per_minute=share(rates.requests_per_minute, processes),
            input_tokens_per_minute=share(rates.input_tokens_per_minute, processes),
            output_tokens_per_minute=share(rates.output_tokens_per_minute, processes),
        ),
        retry=msgspec.structs.replace(retry, budget_minimum=share(retry.budget_minimum, processes)),
    )
    backend: SGLangBackend = msgspec.structs.replace(each.backend, spec=divided)
    return msgspec.structs.replace(each, backend=backend)
