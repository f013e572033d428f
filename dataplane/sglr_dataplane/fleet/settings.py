"""What a backend's spec asks of the fleet, as values in seconds; pure."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.engine.channel_options import ChannelOptions
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.h2.link import Keepalive
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.fleet.breaker import BreakerSettings
from sglr_dataplane.fleet.gate import GateSettings
from sglr_dataplane.fleet.rates import Rates
from sglr_dataplane.fleet.retry import RetrySettings
from sglr_dataplane.fleet.schedule import Schedule
from sglr_proto.duration import seconds
from sglr_proto.spec import Spec
from sglr_proto.spec_grpc import GrpcWorkers
from sglr_proto.spec_resilience import DrainEnd


@dataclass(frozen=True, slots=True)
class Settings:
    """One backend's settings."""

    breaker: BreakerSettings
    channel: ChannelOptions
    deadlines: Deadlines
    drain: float | None
    """Seconds that requests may go on at a worker that leaves; None: as long as it lets them."""
    gate: GateSettings
    rates: Rates
    retry: RetrySettings
    schedule: Schedule
    warm_up: float
    """Seconds over which a new worker gets its full share."""


def settings_of(spec: Spec) -> Settings:
    """Return the settings that *spec* asks for."""
    return Settings(
        breaker=_breaker(spec),
        channel=_channel(spec),
        deadlines=_deadlines(spec),
        drain=seconds(spec.drain.timeout) if spec.drain.on_timeout is DrainEnd.ABORT else None,
        gate=_gate(spec),
        rates=_rates(spec),
        retry=_retry(spec),
        schedule=_schedule(spec),
        warm_up=seconds(spec.routing.warm_up),
    )


def _breaker(spec: Spec) -> BreakerSettings:
    wanted = spec.outlier_detection
    return BreakerSettings(
        consecutive=wanted.consecutive_failures,
        percent=wanted.failure_percent,
        minimum=wanted.minimum_requests,
        window=seconds(wanted.window),
        ejection=seconds(wanted.base_ejection),
        longest=seconds(wanted.max_ejection),
    )


def _channel(spec: Spec) -> ChannelOptions:
    wanted = spec.workers.grpc or GrpcWorkers()
    return ChannelOptions(
        max_connections=wanted.max_connections,
        idle_timeout=seconds(wanted.idle_timeout),
        largest_message=wanted.max_message_bytes,
        limits=Limits(stream_window=wanted.stream_buffer_bytes),
        keepalive=Keepalive(seconds(wanted.keepalive), seconds(wanted.keepalive_timeout)),
    )


def _deadlines(spec: Spec) -> Deadlines:
    wanted = spec.timeouts
    return Deadlines(
        connect=seconds(wanted.connect),
        first_token=seconds(wanted.first_token),
        idle=seconds(wanted.stream_idle),
        total=seconds(wanted.request),
        probe=seconds(spec.health_check.timeout),
    )


def _gate(spec: Spec) -> GateSettings:
    wanted = spec.admission
    return GateSettings(
        most_jobs=wanted.max_inflight,
        depth=wanted.max_queue_depth,
        wait=seconds(wanted.max_queue_wait),
        wait_for_workers=seconds(wanted.no_endpoint_wait),
    )


def _rates(spec: Spec) -> Rates:
    wanted = spec.rate_limit
    return Rates(
        requests=wanted.requests_per_minute,
        input_tokens=wanted.input_tokens_per_minute,
        output_tokens=wanted.output_tokens_per_minute,
    )


def _retry(spec: Spec) -> RetrySettings:
    wanted = spec.retry
    return RetrySettings(
        attempts=wanted.attempts,
        first_backoff=seconds(wanted.initial_backoff),
        longest_backoff=seconds(wanted.max_backoff),
        longest_pause=seconds(wanted.max_retry_after),
        budget_percent=wanted.budget_percent,
        budget_minimum=wanted.budget_minimum,
        budget_window=seconds(wanted.budget_window),
        hedge_after=seconds(wanted.hedge.after) if wanted.hedge is not None else None,
    )


def _schedule(spec: Spec) -> Schedule:
    wanted = spec.health_check
    every = wanted.generate_interval
    closing = (spec.workers.grpc or GrpcWorkers()).close_timeout
    return Schedule(
        closing=seconds(closing),
        generation=seconds(every) if every is not None else None,
        interval=seconds(wanted.interval),
        failures=wanted.unhealthy_threshold,
        successes=wanted.healthy_threshold,
    )
