"""What the leader does and a standby does not: push, write statuses, run kopf.

State: the reconciler of the present leadership, and whether a router has outranked it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import grpc.aio

from sglr_operator.caches import Caches
from sglr_operator.compose import Permits
from sglr_operator.config import CopyConfig, OperatorConfig, PushConfig
from sglr_operator.elector import Elector
from sglr_operator.errors import KubeError, OperatorError
from sglr_operator.handlers import KopfThread, login_with
from sglr_operator.keeper import Keeper
from sglr_operator.kube import Kube
from sglr_operator.metrics import Metrics
from sglr_operator.publish import Publisher
from sglr_operator.push import Authenticate, PushService, new_server
from sglr_operator.reconcile import Reconciler
from sglr_operator.reflector import Key
from sglr_operator.statuses import StatusWriter
from sglr_operator.tokens import TokenKeys, TokenReviewer
from sglr_proto.snapshot import Epoch

logger = logging.getLogger(__name__)

_GRACE: Final = 1.0
"""Seconds routers get to take leave."""
_LOOK: Final = 0.05
"""Seconds between two looks at what no event announces: a thread, a cache's first list."""


class Leadership:
    """The leader's work, from one election to the loss of it; again for each election."""

    def __init__(
        self,
        config: OperatorConfig,
        caches: Caches,
        *,
        kube: Kube,
        elector: Elector,
        configuration: Any,
        metrics: Metrics,
        clock: Callable[[], float],
        failed: Callable[[], None],
        crd_problem: Callable[[], str],
    ) -> None:
        """Prepare to lead.

        Args:
            config: Everything the operator was told.
            caches: What is known of the cluster; followed by somebody else.
            kube: Where statuses and Events go.
            elector: Who says whether this replica leads.
            configuration: How kopf reaches the API server.
            metrics: Where everything is counted.
            clock: Seconds that also pass while the process is stopped.
            failed: Called when kopf died: the process is to be started anew.
            crd_problem: What is wrong with the served definition, as a sentence; may be empty.
        """
        self._config = config
        self._caches = caches
        self._kube = kube
        self._elector = elector
        self._configuration = configuration
        self._metrics = metrics
        self._clock = clock
        self._failed = failed
        self._crd_problem = crd_problem
        self._reconciler: Reconciler | None = None
        self._outranked: Epoch | None = None
        self.publisher = Publisher(
            config=config.push, metrics=metrics, clock=clock, answered=self.mark_status
        )
        self.port: int | None = None
        """Where routers are served now; None while nobody is."""

    def __repr__(self) -> str:
        return f"<Leadership {self.publisher!r} port={self.port}>"

    def mark(self, keys: Iterable[Key]) -> None:
        """Note that these backends may have changed."""
        if self._reconciler is not None:
            self._reconciler.mark(keys)

    def mark_status(self, key: str) -> None:
        """Note that the status of a backend may have changed; *key* is ``namespace/name``."""
        if self._reconciler is not None:
            self._reconciler.mark_status(key)

    async def reign(self, epoch: Epoch, stopping: asyncio.Event) -> None:
        """Lead until the Lease is lost or *stopping* is set; then give it back if it is ours."""
        self._metrics.leader.set(1)
        self._metrics.leaderships.inc()
        kopf = KopfThread(
            lambda key: self.mark((key,)),
            lambda: login_with(self._configuration),
            self._config.namespaces,
        )
        kopf.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                ends = [
                    tasks.create_task(self._elector.hold()),
                    tasks.create_task(_wait(stopping)),
                    tasks.create_task(self._watch_over(kopf)),
                    tasks.create_task(self._push(epoch)),
                ]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in ends:
                    task.cancel()
        finally:
            self._reconciler = None
            self._metrics.leader.set(0)
            with suppress(KubeError):
                await self._elector.release()
            # A later leadership has a kopf of its own; only the process's end waits for this one.
            kopf.end()
            if stopping.is_set():
                await kopf.stop()

    async def _push(self, epoch: Epoch) -> None:
        """Serve routers from complete caches, again for each epoch, until cancelled."""
        while not self._caches.is_synced:  # noqa: ASYNC110  # eight caches, one wait at a start
            await asyncio.sleep(_LOOK)
        while True:
            self.publisher.begin(epoch)
            self._outranked = None
            reconciler = self._reconciler = self._new_reconciler()
            await reconciler.start()
            server = await self._start_server()
            try:
                epoch = await self._work(reconciler)
            finally:
                self.port = None
                self.publisher.end("this replica stops leading")
                await server.stop(_GRACE)

    async def _work(self, reconciler: Reconciler) -> Epoch:
        """Reconcile until a router knows a later epoch; return one that is above it."""
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(reconciler.run())]
            if self._config.copy is not None:
                working.append(tasks.create_task(self._keeper(self._config.copy, reconciler).run()))
            while True:
                await asyncio.sleep(_LOOK)
                if self._outranked is None:
                    continue
                seen, self._outranked = self._outranked, None
                with suppress(KubeError):
                    epoch = await self._elector.outbid(seen)
                    if epoch is not None:
                        for task in working:
                            task.cancel()
                        return epoch

    def _keeper(self, copy: CopyConfig, reconciler: Reconciler) -> Keeper:
        return Keeper(
            self._kube,
            self._config.lease.namespace,
            copy.name,
            snapshot=reconciler.snapshot,
            may_write=lambda: self._elector.leads,
            interval=copy.interval,
        )

    def _new_reconciler(self) -> Reconciler:
        statuses = StatusWriter(
            self._kube,
            self._config.status,
            metrics=self._metrics,
            clock=self._clock,
            now=lambda: datetime.now(UTC),
            may_write=lambda: self._elector.leads,
            operator=str(self._config.lease),
        )
        return Reconciler(
            self._caches,
            self.publisher,
            statuses,
            config=self._config.debounce,
            operator=str(self._config.lease),
            crd_problem=self._crd_problem,
            permits=Permits(self._config.references, self._config.push.is_private),
            metrics=self._metrics,
            clock=self._clock,
        )

    async def _start_server(self) -> grpc.aio.Server:
        push = self._config.push
        service = PushService(
            self.publisher,
            server=self._config.lease.identity,
            config=push,
            metrics=self._metrics,
            clock=self._clock,
            outranked=self._note_outranked,
            may_speak=lambda: self._elector.leads,
            authenticate=self._authenticate(push),
        )
        try:
            server, port = new_server(service, push, await asyncio.to_thread(_tls, push))
        except OSError as error:
            raise OperatorError(str(error)) from error
        await server.start()
        self.port = port
        logger.info("serving routers", extra={"port": port, "epoch": self.publisher.epoch})
        return server

    def _authenticate(self, push: PushConfig) -> Authenticate | None:
        """Return who judges routers' tokens; None where the transport decides."""
        if push.auth == "token-review":
            return TokenReviewer(self._kube, push.audience, push.router_accounts)
        if push.auth == "token-keys":
            return TokenKeys(
                self._kube,
                push.audience,
                push.router_accounts,
                clock=self._clock,
                now=lambda: datetime.now(UTC).timestamp(),
            )
        return None

    async def _watch_over(self, kopf: KopfThread) -> None:
        """Return when kopf's thread is dead: this replica then ends, and is started anew."""
        while kopf.is_alive:  # noqa: ASYNC110  # a thread sets no event of this loop when it dies
            await asyncio.sleep(_LOOK)
        logger.error("kopf ended by itself")
        self._failed()

    def _note_outranked(self, seen: Epoch) -> None:
        self._outranked = max(seen, self._outranked or seen)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _tls(push: PushConfig) -> grpc.ServerCredentials | None:
    """Return the push server's TLS, which reads its files anew for each connection."""
    if push.certificate is None or push.key is None:
        return None
    certificate, key = Path(push.certificate), Path(push.key)
    ca = Path(push.client_ca) if push.client_ca is not None else None

    def read() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(key.read_bytes(), certificate.read_bytes())],
            root_certificates=ca.read_bytes() if ca is not None else None,
        )

    return grpc.dynamic_ssl_server_credentials(
        read(), read, require_client_authentication=push.auth == "mtls"
    )
