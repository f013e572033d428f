"""What a backend's spec asks of the fleet, as values in seconds; pure."""

from __future__ import annotations

from sglr_dataplane.fleet.breaker import BreakerSettings
from sglr_proto.duration import seconds
from sglr_proto.spec import Spec


def breaker_settings(spec: Spec) -> BreakerSettings:
    """Return how the breakers of a backend's workers behave."""
    wanted = spec.outlier_detection
    return BreakerSettings(
        consecutive=wanted.consecutive_failures,
        percent=wanted.failure_percent,
        minimum=wanted.minimum_requests,
        window=seconds(wanted.window),
        ejection=seconds(wanted.base_ejection),
        longest=seconds(wanted.max_ejection),
    )
