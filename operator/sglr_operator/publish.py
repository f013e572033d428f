"""What routers are told, and what they answer.

Each backend's newest message is kept as bytes and goes to every router. A router's mailbox has one
slot per backend, and only the newest fits in: a slow router costs no memory and never sees what is
old.

State: the newest message per backend; per router process, what was sent, answered and reported.
It changes in plain methods of one event loop; :mod:`sglr_operator.push` moves the bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sglr_operator import messages
from sglr_operator.compose import Composed, Removed
from sglr_operator.conditions import Rejection, RouterView
from sglr_operator.config import PushConfig
from sglr_operator.messages import Key
from sglr_operator.metrics import Metrics
from sglr_proto.discovery import push_pb2 as pb
from sglr_proto.snapshot import Epoch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Message:
    """The newest message about one backend."""

    version: int
    hash: str
    """Empty for a removal."""
    body: bytes = field(repr=False)
    """May hold secrets."""
    since: float
    """When the first event of this change was seen."""


@dataclass(slots=True, eq=False)
class Subscription:
    """One router process that listens."""

    router: str
    pod: str
    process: int
    dirty: set[Key] = field(default_factory=set[Key])
    """Backends whose newest message was not sent yet: one slot each."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    nonce: int = 0
    sent: dict[int, tuple[Key, int]] = field(default_factory=dict[int, tuple[Key, int]])
    """Sent and not answered, by nonce: backend and version."""
    awaited: dict[Key, tuple[float, int]] = field(default_factory=dict[Key, tuple[float, int]])
    """By backend: since when an answer is awaited, and the nonce of the last message."""
    acked: dict[Key, int] = field(default_factory=dict[Key, int])
    rejected: dict[Key, tuple[int, Rejection]] = field(
        default_factory=dict[Key, tuple[int, Rejection]]
    )
    health: dict[Key, pb.HealthReport] = field(default_factory=dict[Key, pb.HealthReport])
    owes_complete: bool = False
    """A SyncComplete is due as soon as every backend was sent."""
    ending: str = ""
    """Why the stream is about to end; empty while it is not."""

    def __repr__(self) -> str:
        return f"<Subscription {self.router}#{self.process} awaits {len(self.awaited)}>"


class Publisher:
    """The newest word about every backend, and the routers that hear it."""

    def __init__(
        self,
        *,
        config: PushConfig,
        metrics: Metrics,
        clock: Callable[[], float],
        answered: Callable[[Key], None],
    ) -> None:
        """Start with nothing to say; nothing is said before :meth:`complete`.

        Args:
            config: The grace and the deadline of answers.
            metrics: Where pushes and answers are counted.
            clock: Monotonic seconds.
            answered: Called when a router's answer or report changed what :meth:`view` returns.
        """
        self.epoch: Epoch = (0, 0)
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._answered = answered
        self._is_complete = False
        self._messages: dict[Key, _Message] = {}
        self._existing: frozenset[Key] = frozenset()
        self._routers: set[Subscription] = set()

    def __repr__(self) -> str:
        return (
            f"<Publisher epoch={self.epoch} backends={len(self._messages)}"
            f" routers={len(self._routers)} complete={self._is_complete}>"
        )

    @property
    def max_update(self) -> int:
        """The most bytes that are said about one backend."""
        return self._config.max_update

    # What the operator says.

    def begin(self, epoch: Epoch) -> None:
        """Forget everything and speak under *epoch* from now on; routers are sent away."""
        self.epoch = epoch
        self._is_complete = False
        self._messages.clear()
        self.end("a new epoch began")

    def publish(self, composed: Composed, *, since: float) -> int:
        """Make *composed* the newest word about its backend; *since* is when it was needed.

        Returns:
            How many bytes it has. With more than ``max_update`` it is not said, and routers keep
            what they have.
        """
        body = messages.update(composed, self.epoch)
        if len(body) <= self._config.max_update:
            self._say(composed.key, _Message(composed.version, composed.hash, body, since))
        return len(body)

    def remove(self, removed: Removed, *, since: float) -> None:
        """Tell routers that a backend is gone."""
        body = messages.removal(removed, self.epoch)
        self._say(removed.key, _Message(removed.version, "", body, since))

    def complete(self, existing: frozenset[Key]) -> None:
        """Say that everything is known: these backends exist, and no others.

        Pushing starts with the first call.
        """
        self._existing = existing
        if not self._is_complete:
            self._is_complete = True
            for router in self._routers:
                self._greet(router)

    def end(self, reason: str) -> None:
        """Send every router away; they keep what they have and dial again."""
        for router in self._routers:
            router.ending = reason
            router.wake.set()

    # What a router's stream does.

    def join(self, hello: pb.Hello) -> Subscription:
        """Return the subscription of a router that said *hello*."""
        router = Subscription(hello.router, hello.pod_uid, hello.process)
        if (hello.last_epoch.created, hello.last_epoch.transitions) == self.epoch:
            # What it holds of this epoch is not sent again.
            for held in hello.held:
                message = self._messages.get(messages.key_of(held.backend))
                if message is not None and message.hash and held.content_hash == message.hash:
                    router.acked[messages.key_of(held.backend)] = held.version
        self._routers.add(router)
        self._metrics.routers.set(len(self._routers))
        if self._is_complete:
            self._greet(router)
        self._tell_all()
        return router

    def leave(self, router: Subscription) -> None:
        """Forget a router whose stream ended."""
        self._routers.discard(router)
        self._metrics.routers.set(len(self._routers))
        self._tell_all()

    def due(self, router: Subscription) -> bytes | None:
        """Return the next message for *router*, noted as sent; None when there is none."""
        if router.dirty:
            key = router.dirty.pop()
            message = self._messages[key]
            router.nonce += 1
            router.sent[router.nonce] = (key, message.version)
            since, _ = router.awaited.get(key, (self._clock(), 0))
            router.awaited[key] = (since, router.nonce)
            self._metrics.pushes.labels("update" if message.hash else "removal").inc()
            return messages.with_nonce(router.nonce, message.body)
        if router.owes_complete and self._is_complete:
            router.owes_complete = False
            self._metrics.pushes.labels("complete").inc()
            return messages.sync_complete(self.epoch, map(self._held, sorted(self._existing)))
        return None

    def hear(self, router: Subscription, request: pb.SubscribeRequest) -> None:
        """Note what a router says."""
        match request.WhichOneof("message"):
            case "ack":
                self._hear_answer(router, request.ack.nonce, None)
            case "nack":
                nack = request.nack
                rejection = Rejection(router.router, nack.code or "Unknown", nack.message)
                self._hear_answer(router, nack.nonce, rejection)
            case "health":
                key = messages.key_of(request.health.backend)
                router.health[key] = request.health
                self._answered(key)
            case _:
                # A newer router's message: the protocol version says what must be understood.
                self._metrics.answers.labels("unknown").inc()

    def cut_if_silent(self, router: Subscription) -> None:
        """End the stream of a router that owes an answer for too long."""
        oldest = min((since for since, _ in router.awaited.values()), default=self._clock())
        if self._clock() - oldest > self._config.ack_deadline:
            self._metrics.refusals.labels("no answer").inc()
            router.ending = "no answer within the deadline"

    # What is known of routers.

    def view(self, key: Key) -> RouterView:
        """Return what routers say about the newest version of *key*, counted by pod."""
        message = self._messages.get(key)
        version = message.version if message is not None and message.hash else 0
        late = self._clock() - self._config.syncing_grace
        behind: set[str] = set()
        rejections: dict[str, Rejection] = {}
        lagging: set[str] = set()
        for router in self._routers:
            if router.acked.get(key) != version:
                behind.add(router.pod)
            if key in router.rejected and router.rejected[key][0] == version:
                rejections[router.router] = router.rejected[key][1]
            if key in router.awaited and router.awaited[key][0] < late:
                lagging.add(router.router)
        pods = {router.pod for router in self._routers}
        healthy, unusable = self._health(key)
        unprepared = {
            f"{router.router}: {router.health[key].problem}"
            for router in self._routers
            if key in router.health and router.health[key].problem
        }
        return RouterView(
            connected=len(pods),
            synced=len(pods - behind),
            rejections=tuple(rejections[name] for name in sorted(rejections)),
            lagging=tuple(sorted(lagging)),
            unprepared=tuple(sorted(unprepared)),
            healthy=healthy,
            unusable=unusable,
        )

    def is_awaited(self, key: Key) -> bool:
        """Return whether a router owes an answer about *key*: time alone changes the view."""
        return any(key in router.awaited for router in self._routers)

    def snapshot(self) -> Mapping[str, Any]:
        """Return what is published and who listens, for the debug page."""
        return {
            "epoch": list(self.epoch),
            "complete": self._is_complete,
            "backends": {
                key: {"version": message.version, "hash": message.hash}
                for key, message in sorted(self._messages.items())
            },
            "routers": [
                {
                    "router": router.router,
                    "process": router.process,
                    "acked": dict(sorted(router.acked.items())),
                    "awaited": sorted(router.awaited),
                }
                for router in sorted(self._routers, key=lambda each: (each.router, each.process))
            ],
        }

    def _greet(self, router: Subscription) -> None:
        """Make everything due that *router* does not hold in its newest version."""
        router.dirty.update(
            key
            for key, message in self._messages.items()
            if message.hash and router.acked.get(key) != message.version
        )
        router.owes_complete = True
        router.wake.set()

    def _say(self, key: Key, message: _Message) -> None:
        self._messages[key] = message
        if self._is_complete:
            for router in self._routers:
                router.dirty.add(key)
                router.wake.set()

    def _hear_answer(self, router: Subscription, nonce: int, rejection: Rejection | None) -> None:
        answered = router.sent.pop(nonce, None)
        if answered is None:
            self._metrics.answers.labels("unknown").inc()
            return
        key, version = answered
        if router.awaited[key][1] == nonce:
            del router.awaited[key]
        if rejection is None:
            self._metrics.answers.labels("ack").inc()
            router.acked[key] = version
            router.rejected.pop(key, None)
            self._observe(key, version)
        else:
            self._metrics.answers.labels("nack").inc()
            router.rejected[key] = (version, rejection)
            logger.warning(
                "router rejected an update",
                extra={"router": router.router, "backend": key, "code": rejection.code},
            )
        self._answered(key)

    def _observe(self, key: Key, version: int) -> None:
        """Measure a change when its last router has acknowledged it."""
        message = self._messages[key]
        newest = message.version == version
        if newest and all(router.acked.get(key) == version for router in self._routers):
            self._metrics.convergence.observe(self._clock() - message.since)

    def _health(self, key: Key) -> tuple[int, dict[str, str]]:
        """Return how many endpoints every router can use, and why some cannot use the others."""
        known: set[str] = set()
        unusable: dict[str, str] = {}
        for router in self._routers:
            report = router.health.get(key)
            for each in report.workers if report is not None else ():
                known.add(each.endpoint_id)
                if not each.healthy:
                    # The words of any router will do; those of one that says none, least.
                    said = unusable.get(each.endpoint_id, "")
                    unusable[each.endpoint_id] = max(said, each.problem)
        return len(known) - len(unusable), unusable

    def _held(self, key: Key) -> tuple[Key, int, str]:
        message = self._messages.get(key)
        if message is None or not message.hash:
            return key, 0, ""
        return key, message.version, message.hash

    def _tell_all(self) -> None:
        for key in self._existing:
            self._answered(key)
