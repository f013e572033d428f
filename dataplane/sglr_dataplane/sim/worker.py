"""A simulated worker: everything put together, listening on one port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import grpc
from grpc_health.v1 import (
    health_pb2,
    health_pb2_grpc,
)
from grpc_reflection.v1alpha import reflection

from sglr_dataplane.sim.connections import port_of, reset_connections
from sglr_dataplane.sim.faults import Faults
from sglr_dataplane.sim.frontend import Frontend
from sglr_dataplane.sim.health import Health, HealthServicer
from sglr_dataplane.sim.info import model_info
from sglr_dataplane.sim.recorder import Recorder
from sglr_dataplane.sim.scheduler import Scheduler
from sglr_dataplane.sim.script import Incident, Script, seconds
from sglr_dataplane.sim.servicer import SchedulerServicer
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.text import DirectoryText, IdsOnly, Text
from sglr_proto.sglang import scheduler_pb2, scheduler_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from sglr_dataplane.sim.recorder import Received
    from sglr_proto.sglang import scheduler_pb2 as pb

GRACE = 5.0
"""Seconds running streams get after SIGTERM; smg-grpc-servicer's."""
STALL = 30.0
"""Seconds of silence with requests pending after which the engine's name stops serving."""

_OPTIONS = (
    # Two servers would share a port in silence.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", 256 * 1024 * 1024),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    # A client that pings more often is told to go away, with all its calls.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class SimWorker:
    """A worker that listens while its context is entered."""

    def __init__(
        self,
        settings: WorkerSettings | None = None,
        script: Script | None = None,
        *,
        recorder: Recorder | None = None,
        die: Callable[[str], None] | None = None,
        stall: float = STALL,
    ) -> None:
        """Prepare; nothing listens yet.

        Args:
            settings: The worker; None: one that knows ids only.
            script: What it plays; None: a healthy worker with a small assistant.
            recorder: Takes down what it sees; None: a new one.
            die: Called with the reason when the process would end; None: this worker alone ends
                as a process would, its connections reset and its port closed.
            stall: Seconds of silence with requests pending until the engine's name stops serving.

        Raises:
            OSError: The tokenizer cannot be read.
            TokenizerLoadError: It is not one.
            ScriptError: The script overrides a field of GetModelInfo that is not there.
        """
        self.settings = settings or WorkerSettings()
        self.script = script or Script()
        self.recorder = recorder or Recorder()
        self._die = die or self._die_alone
        self._stall = stall
        self._port = self.settings.port
        self._health_task: asyncio.Task[None] | None = None
        self._crash_task: asyncio.Task[None] | None = None
        self.text = _text_of(self.settings)
        model_info(self.settings, self.script)  # a wrong override is told before anything listens

    def __repr__(self) -> str:
        return f"SimWorker({self.settings.model_name!r} at {self.address}, {self.recorder!r})"

    @property
    def address(self) -> str:
        """``host:port``; the port is 0 until it listens."""
        return f"{self.settings.host}:{self._port}"

    @property
    def received(self) -> list[Received]:
        """The Generate calls, in order."""
        return self.recorder.received

    @property
    def requests(self) -> list[pb.GenerateRequest]:
        """The Generate calls' requests, in order."""
        return [received.request for received in self.recorder.received]

    @property
    def cancelled(self) -> list[str]:
        """The ids whose calls were ended by their clients."""
        return self.recorder.cancelled

    @property
    def aborted(self) -> list[str]:
        """The ids given to Abort."""
        return self.recorder.aborted

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: The port is taken.
        """
        loop = asyncio.get_running_loop()
        self.scheduler = Scheduler(
            slots=self.settings.max_running_requests,
            queue_limit=self.settings.max_queued_requests,
            queue_full=self.script.queue_full,
            clock=loop.time,
        )
        self.health = Health(is_stuck=lambda: self.scheduler.is_stuck(self._stall))
        self._faults = Faults(self.script, self.recorder)
        self.frontend = Frontend(
            self.settings, self.script, self.text, self.scheduler, self.recorder
        )
        self._servicer = SchedulerServicer(
            self.settings,
            self._faults,
            self.frontend,
            self.scheduler,
            self.recorder,
            strike=self._strike,
        )
        await self._listen()
        self._start_health()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop at once; running streams end with UNAVAILABLE."""
        await self.stop(0)

    def use(self, script: Script) -> None:
        """Play *script* from the next call on; its health times count from now."""
        model_info(self.settings, script)
        self.script = self._faults.script = script
        self.scheduler.queue_full = script.queue_full
        self.frontend.use(script)
        self._start_health()

    def set_serving(self, serving: bool, service: str | None = None) -> None:  # noqa: FBT001  # the one fact it is about
        """Set the health of *service*; None: of both names."""
        self.health.set_serving(serving, service)

    async def wait_for_cancel(self, rid: str | None = None, timeout: float = 5.0) -> None:  # noqa: ASYNC109  # the recorder's own deadline, with a message
        """Return when the call of *rid* (None: any) was ended by its client.

        Raises:
            TimeoutError: It was not within *timeout* seconds.
        """
        seen = self.recorder
        await seen.wait_until(
            lambda: bool(seen.cancelled) if rid is None else rid in seen.cancelled, timeout
        )

    async def wait_for_requests(self, count: int, timeout: float = 5.0) -> None:  # noqa: ASYNC109  # same
        """Return when *count* Generate calls have come; raises as wait_for_cancel does."""
        await self.recorder.wait_until(lambda: len(self.recorder.received) >= count, timeout)

    async def stop(self, grace: float = GRACE) -> None:
        """Stop as SIGTERM does: health first, then no new calls, *grace* seconds for the running.

        Safe to call twice.
        """
        self._stop_health()
        self.health.set_serving(False)
        self._servicer.is_stopping = True
        if self._crash_task is not None:
            await self._crash_task
        await self._server.stop(grace)
        await self.scheduler.aclose()

    async def crash(self) -> None:
        """End as a killed process does: connections reset, port closed."""
        self._servicer.is_stopping = True
        reset_connections(self._port)
        await self._server.stop(None)
        await self.scheduler.aclose()

    async def _listen(self) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        scheduler_pb2_grpc.add_SglangSchedulerServicer_to_server(self._servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(  # pyright: ignore[reportUnknownMemberType]  # untyped
            HealthServicer(self.health, self._faults), self._server
        )
        services = (scheduler_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR)
        names = [
            d.services_by_name[name].full_name for d in services for name in d.services_by_name
        ]
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)
        try:
            self._port = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise OSError(f"Cannot listen on {self.address}: {error}") from error
        await self._server.start()

    def _start_health(self) -> None:
        """Serve after the warm-up, and change as the script says."""
        self._stop_health()
        warmup = seconds(self.script.warmup)
        self.health.set_serving(warmup == 0)
        changes: list[tuple[float, bool, str | None]] = [
            (seconds(c.after), c.serving, c.service) for c in self.script.health
        ]
        if warmup:
            changes.append((warmup, True, None))
        changes.sort(key=lambda change: change[0])
        self._health_task = asyncio.get_running_loop().create_task(self._change_health(changes))

    def _stop_health(self) -> None:
        if self._health_task is not None:
            self._health_task.cancel()

    async def _change_health(self, changes: list[tuple[float, bool, str | None]]) -> None:
        passed = 0.0
        for after, serving, service in changes:
            await asyncio.sleep(after - passed)
            passed = after
            self.health.set_serving(serving, service)

    def _strike(self, incident: Incident, reason: str, peer: str) -> None:
        """Let a death, a reset or a change of health happen to the call of *peer*."""
        if incident.serving is not None:
            self.health.set_serving(incident.serving)
        elif incident.die == "reset":
            reset_connections(self._port, port_of(peer))
        elif incident.die == "exit":
            self.recorder.die(reason)
            self._die(reason)

    def _die_alone(self, _reason: str) -> None:
        if self._crash_task is None:
            self._crash_task = asyncio.get_running_loop().create_task(self.crash())


def _text_of(settings: WorkerSettings) -> Text:
    if settings.tokenizer is None:
        return IdsOnly() if settings.vocab_size is None else IdsOnly(settings.vocab_size)
    return DirectoryText(settings.tokenizer, settings.vocab_size)
