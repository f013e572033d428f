"""The router's end of the push stream.

Dials the operator and hears what it pushes, for as long as it takes: nothing an operator does,
dying included, takes away what is in force. Backends come one by one and are refused one by one.

State: a :class:`~sglr_dataplane.fleet.intake_table.Table`, and where it came from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import grpc
import grpc.aio

from sglr_dataplane.fleet import ailments, intake_file
from sglr_dataplane.fleet.intake_channel import authorization, operator_channel
from sglr_dataplane.fleet.intake_config import IntakeConfig
from sglr_dataplane.fleet.intake_secrets import SecretFiles
from sglr_dataplane.fleet.intake_table import Refusal, Table
from sglr_proto.discovery import push_pb2 as pb
from sglr_proto.discovery.push_pb2_grpc import EndpointPushStub
from sglr_proto.errors import SnapshotError

if TYPE_CHECKING:
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_proto.snapshot import Epoch, Snapshot

logger = logging.getLogger(__name__)

PROTOCOL: Final = 1

Startup = Literal["none", "file", "mounted", "operator"]
Health = Mapping[str, ailments.BackendHealth]
"""By backend key."""


class OperatorLostError(Exception):
    """The stream ended or went silent; the router dials again."""


class Intake:
    """Feeds a registry from the operator."""

    def __init__(
        self,
        config: IntakeConfig,
        *,
        apply: Callable[[Snapshot], object],
        health: Callable[[], Health],
        metrics: RouterMetrics,
        clock: Callable[[], float],
        chance: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare; nothing is dialled or read before :meth:`run`.

        Args:
            config: Whom to dial, and what to keep.
            apply: Makes a snapshot the registry's truth.
            health: Returns the workers' health now.
            metrics: Where updates and their refusals are counted.
            clock: Monotonic seconds.
            chance: A number in [0, 1).
            sleep: Waits between two dials.
        """
        self._config = config
        self._apply = apply
        self._health = health
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._sleep = sleep
        self._table = Table()
        self._secrets = SecretFiles(_folder(config))
        self._applied = 0
        self._written: tuple[Epoch, int] | None = None
        self._heard: float | None = None
        self._failures = 0
        self._complained = False
        self.startup: Startup = "none"
        """Where the first snapshot in force came from."""
        self.connected = False
        """Whether an operator has completed its list on the present stream."""

    def __repr__(self) -> str:
        return f"<Intake {self._table!r} startup={self.startup} connected={self.connected}>"

    @property
    def is_synced(self) -> bool:
        """Whether a complete list is in force, from an operator or from a file."""
        return self.startup != "none"

    def is_outdated(self) -> bool:
        """Return whether the operator may know more than is in force here: it is not heard."""
        return not self.connected

    @property
    def epoch(self) -> Epoch:
        """The greatest epoch seen."""
        return self._table.epoch

    @property
    def stale_seconds(self) -> float | None:
        """Seconds since the operator last said anything; None when it never did."""
        return None if self._heard is None else self._clock() - self._heard

    async def run(self) -> None:
        """Start from the file, then follow the operator until cancelled."""
        try:
            await self._load()
            async with asyncio.TaskGroup() as tasks:
                if self._config.file is not None and self._config.writes_file:
                    tasks.create_task(self._keep_file(self._config.file))
                await self._follow()
        finally:
            self._secrets.close()

    async def _follow(self) -> None:
        while True:
            problem = "the stream ended"
            try:
                await self._subscribe()
            except grpc.aio.AioRpcError as error:
                problem = f"{error.code().name}: {error.details()}"
            except (OperatorLostError, OSError) as error:
                problem = str(error)
            except Exception:
                # The top of this task: whatever went wrong, the last good list stays in force and
                # the operator is dialled again.
                logger.exception("intake failed")
                problem = "a bug; the log holds the traceback"
            self.connected = False
            self._complain(problem)
            await self._sleep(self._backoff())

    def _complain(self, problem: str) -> None:
        """Log the loss of an operator once, not at every dial."""
        self._metrics.intake_failures.inc()
        if not self._complained:
            self._complained = True
            logger.warning(
                "operator lost, the last good list stays in force", extra={"problem": problem}
            )

    def _backoff(self) -> float:
        limit = self._config.first_backoff * 2.0 ** min(self._failures, 16)
        self._failures += 1
        return min(limit, self._config.most_backoff) * self._chance()

    async def _load(self) -> None:
        """Put the last-known-good list in force, from the file or else from the mounted copy."""
        places: tuple[tuple[Startup, Path | None], ...] = (
            ("file", self._config.file),
            ("mounted", self._config.mounted),
        )
        for source, path in places:
            if path is None:
                continue
            try:
                snapshot = await asyncio.to_thread(intake_file.read, path)
                if snapshot is not None:
                    self._table.load(snapshot)
                    self._put_in_force()
            except (SnapshotError, OSError) as error:
                logger.warning(
                    "last-known-good list not usable",
                    extra={"path": str(path), "problem": str(error)},
                )
                continue
            if snapshot is not None:
                self.startup = source
                self._written = (self._table.epoch, self._table.changes)
                logger.info("last-known-good list in force", extra={"path": str(path)})
                return

    async def _keep_file(self, path: Path) -> None:
        """Write what is in force, when it changed, for ever."""
        while True:
            await asyncio.sleep(self._config.write_interval)
            state = (self._table.epoch, self._table.changes)
            if not self.is_synced or self._written == state:
                continue
            snapshot = self._table.snapshot()
            try:
                await asyncio.to_thread(intake_file.write, path, snapshot)
            except OSError as error:
                logger.warning(
                    "last-known-good list not written",
                    extra={"path": str(path), "problem": str(error)},
                )
                continue
            self._written = state

    # One stream.

    async def _subscribe(self) -> None:
        """Follow one operator until its stream ends.

        Raises:
            OperatorLostError: It cannot be reached, went silent, was replaced, or sent us away.
        """
        async with operator_channel(self._config) as channel:
            await self._connect(channel)
            outgoing: asyncio.Queue[pb.RequestBatch] = asyncio.Queue()
            outgoing.put_nowait(_batch([pb.SubscribeRequest(hello=self._hello())]))
            call = EndpointPushStub(channel).Subscribe(
                _drain(outgoing), metadata=await asyncio.to_thread(authorization, self._config)
            )
            reporting = asyncio.ensure_future(self._report(outgoing))
            try:
                async with aclosing(self._batches(call.read)) as batches:
                    async for batch in batches:
                        answers = self._take(batch)
                        if answers:
                            outgoing.put_nowait(_batch(answers))
            finally:
                reporting.cancel()
                call.cancel()

    async def _connect(self, channel: grpc.aio.Channel) -> None:
        limit = self._config.dial_deadline
        try:
            async with asyncio.timeout(limit):
                await channel.channel_ready()
        except TimeoutError as error:
            raise OperatorLostError(f"no connection to the operator within {limit:g} s") from error

    async def _batches(self, read: Callable[[], Awaitable[object]]) -> AsyncGenerator[pb.PushBatch]:
        """Yield what the operator says; three silent heartbeats end the stream."""
        limit = self._config.welcome_deadline
        while True:
            try:
                async with asyncio.timeout(limit):
                    batch = await read()
            except TimeoutError as error:
                raise OperatorLostError(f"the operator was silent for {limit} s") from error
            if not isinstance(batch, pb.PushBatch):
                return
            self._heard = self._clock()
            for response in batch.responses:
                if response.HasField("welcome"):
                    self._meet(response.welcome)
                    limit = 3.0 * response.welcome.heartbeat_interval_ms / 1000.0
            yield batch

    def _meet(self, welcome: pb.Welcome) -> None:
        refusal = self._table.meet(_epoch(welcome.epoch))
        if refusal is not None:
            self._metrics.intake_refusals.labels(refusal.code).inc()
            raise OperatorLostError(refusal.message)
        logger.info("operator found", extra={"server": welcome.server, "epoch": self.epoch})

    def _take(self, batch: pb.PushBatch) -> list[pb.SubscribeRequest]:
        """Apply one batch and return its answers: what is acknowledged is in force."""
        answers: list[pb.SubscribeRequest] = []
        for response in batch.responses:
            kind = response.WhichOneof("message")
            if kind == "update":
                update = response.update
                refusal = self._table.update(
                    _key(update.backend),
                    _epoch(update.epoch),
                    update.version,
                    update.content_hash,
                    update.snapshot,
                )
                answers.append(
                    self._answer(response.nonce, update.backend, update.version, refusal)
                )
            elif kind == "removed":
                gone = response.removed
                refusal = self._table.remove(_key(gone.backend), _epoch(gone.epoch), gone.version)
                answers.append(self._answer(response.nonce, gone.backend, gone.version, refusal))
            elif kind == "sync_complete":
                self._complete(response.sync_complete)
            elif kind == "go_away":
                raise OperatorLostError(f"the operator sent us away: {response.go_away.reason}")
        # Until the list is complete the registry keeps its state: one step at its end instead of
        # a thousand half lists.
        if self.connected:
            self._put_in_force()
        return answers

    def _complete(self, message: pb.SyncComplete) -> None:
        self._table.complete(
            _epoch(message.epoch),
            [(_key(each.backend), each.version, each.content_hash) for each in message.backends],
        )
        self.connected = True
        self._complained = False
        self._failures = 0
        if self.startup == "none":
            self.startup = "operator"
        logger.info("list complete", extra={"backends": len(message.backends)})

    def _put_in_force(self) -> None:
        if self._applied != self._table.changes:
            self._apply(self._secrets.localised(self._table.snapshot()))
            # Last: what could not be put in force is tried again with the next stream.
            self._applied = self._table.changes

    def _answer(
        self, nonce: int, backend: pb.BackendRef, version: int, refusal: Refusal | None
    ) -> pb.SubscribeRequest:
        """Return what the operator is told about one message, and count it."""
        if refusal is None:
            self._metrics.intake_updates.inc()
            return pb.SubscribeRequest(ack=pb.Ack(nonce=nonce, backend=backend, version=version))
        self._metrics.intake_refusals.labels(refusal.code).inc()
        logger.warning("update refused", extra={"backend": _key(backend), "code": refusal.code})
        return pb.SubscribeRequest(
            nack=pb.Nack(
                nonce=nonce,
                backend=backend,
                code=refusal.code,
                message=refusal.message,
                using_version=self._table.version(_key(backend)),
            )
        )

    def _hello(self) -> pb.Hello:
        hello = pb.Hello(
            router=self._config.router,
            pod_uid=self._config.pod_uid,
            process=self._config.process,
            protocol_versions=[PROTOCOL],
            held=[
                pb.HeldBackend(backend=_ref(key), version=version, content_hash=digest)
                for key, version, digest in self._table.held()
            ],
        )
        if self._table.epoch > (0, 0):
            created, transitions = self._table.epoch
            hello.last_epoch.CopyFrom(pb.Epoch(created=created, transitions=transitions))
        return hello

    async def _report(self, outgoing: asyncio.Queue[pb.RequestBatch]) -> None:
        """Queue the worker health of every backend where it changed."""
        told: dict[str, ailments.BackendHealth] = {}
        while True:
            await asyncio.sleep(self._config.health_interval)
            if not self.connected:
                continue
            changed = {
                key: health for key, health in self._health().items() if told.get(key) != health
            }
            told.update(changed)
            if changed:
                outgoing.put_nowait(
                    _batch(
                        pb.SubscribeRequest(health=ailments.report(_ref(key), health))
                        for key, health in changed.items()
                    )
                )


async def _drain(outgoing: asyncio.Queue[pb.RequestBatch]) -> AsyncGenerator[pb.RequestBatch]:
    """Yield what is queued, for as long as the call lives."""
    while True:
        yield await outgoing.get()


def _folder(config: IntakeConfig) -> Path | None:
    """Return where this process keeps secrets: beside its file, where it may write."""
    if config.file is None:
        return None
    return config.file.with_name(f".{config.file.name}.secrets-{config.process}")


def _batch(requests: Iterable[pb.SubscribeRequest]) -> pb.RequestBatch:
    return pb.RequestBatch(requests=requests)


def _ref(key: str) -> pb.BackendRef:
    namespace, _, name = key.partition("/")
    return pb.BackendRef(namespace=namespace, name=name)


def _key(ref: pb.BackendRef) -> str:
    return f"{ref.namespace}/{ref.name}"


def _epoch(epoch: pb.Epoch) -> Epoch:
    return (epoch.created, epoch.transitions)
