"""Leadership by a Lease, with an epoch that fences.

Clocks of different machines are never compared: a candidate measures by its own clock how long a
Lease has not changed. A leader measures by its own clock how long ago it asked for the renewal
that succeeded last, and stops leading before anyone else can start.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from sglr_operator.config import LeaseConfig
from sglr_operator.errors import ConflictError, KubeError, NotFoundError
from sglr_operator.kube import Kube
from sglr_operator.resources import LEASES
from sglr_proto.snapshot import Epoch

logger = logging.getLogger(__name__)


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    creation_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where time comes from."""

    monotonic: Callable[[], float]
    """Seconds that also pass while the process is stopped or the machine sleeps."""
    now: Callable[[], datetime]
    """The wall clock, only ever written into the Lease for people."""
    sleep: Callable[[float], Awaitable[None]]


class Elector:
    """One candidate for one Lease.

    State: the Lease as last seen and since when it looks so; while leading, until when.
    """

    def __init__(self, kube: Kube, config: LeaseConfig, clocks: Clocks) -> None:
        """Prepare; nothing is asked before :meth:`acquire`."""
        self._kube = kube
        self._config = config
        self._clocks = clocks
        self._seen: _Lease | None = None
        self._seen_since = 0.0
        self._valid_until = 0.0
        self.epoch: Epoch = (0, 0)
        """Of the leadership that :meth:`acquire` won."""
        self.problem = ""
        """Why the last attempt failed; empty after one that did not."""

    def __repr__(self) -> str:
        return f"<Elector {self._config.identity} epoch={self.epoch} leads={self.leads}>"

    @property
    def leads(self) -> bool:
        """Whether leadership is certain at this moment; needs no network to become False."""
        return self._clocks.monotonic() < self._valid_until

    async def acquire(self) -> Epoch:
        """Return the epoch of a new leadership, as soon as there is one."""
        while True:
            try:
                if await self._try():
                    self.problem = ""
                    logger.info("became leader", extra={"epoch": self.epoch})
                    return self.epoch
            except ConflictError:
                pass  # another candidate was faster
            except KubeError as error:
                self._complain(error)
            await self._clocks.sleep(self._config.retry)

    async def hold(self) -> None:
        """Renew until leadership is lost, then return."""
        while self._left() > 0.0:
            await self._clocks.sleep(min(self._config.retry, self._left()))
            try:
                if self._left() <= 0.0 or not await self.confirm():
                    break
                self.problem = ""
            except KubeError as error:
                self._complain(error)
        self._valid_until = 0.0
        logger.warning("leadership lost", extra={"epoch": self.epoch, "problem": self.problem})

    async def confirm(self) -> bool:
        """Renew once and return whether this is still the leader.

        Raises:
            KubeError: The API server did not say.
        """
        asked = self._clocks.monotonic()
        lease = await self._read()
        if lease is None or lease.spec.holder_identity != self._config.identity:
            self._valid_until = 0.0
            return False
        try:
            await self._write(lease, self.epoch[1])
        except ConflictError:
            # Somebody wrote in between; the next reading says who leads.
            return self.leads
        self._valid_until = asked + self._config.renew_deadline
        return True

    async def outbid(self, seen: Epoch) -> Epoch | None:
        """Return an epoch above *seen*, which a router reported; None when not leading any more.

        A Lease that was deleted and made again, or restored from a backup, can count from an
        earlier point than routers remember.

        Raises:
            KubeError: The API server did not say who leads.
        """
        if not await self.confirm():
            return None
        if seen >= self.epoch:
            self.epoch = (seen[0], seen[1] + 1)
        return self.epoch

    async def release(self) -> None:
        """Give leadership up at once, so that another candidate need not wait.

        Raises:
            KubeError: The API server did not take it; the Lease runs out by itself.
        """
        if not self.leads:
            return
        self._valid_until = 0.0
        lease = await self._read()
        if lease is not None and lease.spec.holder_identity == self._config.identity:
            await self._write(lease, self._transitions(lease), holder="", duration=1)

    async def _try(self) -> bool:
        asked = self._clocks.monotonic()
        lease = await self._read()
        if lease is None:
            lease = await self._create()
        elif not self._is_free(lease):
            return False
        else:
            lease = await self._write(lease, self._transitions(lease) + 1)
        created = datetime.fromisoformat(lease.metadata.creation_timestamp)
        self.epoch = (int(created.timestamp()), self._transitions(lease))
        self._valid_until = asked + self._config.renew_deadline
        return True

    def _is_free(self, lease: _Lease) -> bool:
        """Return whether *lease* may be taken: released, our own of an earlier life, or run out."""
        if lease != self._seen:
            self._seen, self._seen_since = lease, self._clocks.monotonic()
        holder = lease.spec.holder_identity
        if not holder or holder == self._config.identity:
            return True
        duration = lease.spec.lease_duration_seconds or self._config.duration
        return self._clocks.monotonic() - self._seen_since > duration

    async def _read(self) -> _Lease | None:
        try:
            body = await self._kube.get(LEASES.path(self._config.namespace, self._config.name))
        except NotFoundError:
            return None
        return msgspec.json.decode(body, type=_Lease)

    async def _create(self) -> _Lease:
        body = self._body(None, 0, self._config.identity, self._config.duration)
        answer = await self._kube.create(LEASES.path(self._config.namespace), body)
        return msgspec.json.decode(answer, type=_Lease)

    async def _write(
        self,
        lease: _Lease,
        transitions: int,
        *,
        holder: str | None = None,
        duration: float | None = None,
    ) -> _Lease:
        """Replace *lease*; the API server refuses it when somebody else wrote since."""
        body = self._body(
            lease,
            transitions,
            self._config.identity if holder is None else holder,
            self._config.duration if duration is None else duration,
        )
        path = LEASES.path(self._config.namespace, self._config.name)
        return msgspec.json.decode(await self._kube.replace(path, body), type=_Lease)

    def _body(
        self, lease: _Lease | None, transitions: int, holder: str, duration: float
    ) -> dict[str, Any]:
        now = self._clocks.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        meta = {"name": self._config.name, "namespace": self._config.namespace}
        if lease is not None:
            meta["resourceVersion"] = lease.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": round(duration),
                "leaseTransitions": transitions,
                "acquireTime": now,
                "renewTime": now,
            },
        }

    def _transitions(self, lease: _Lease) -> int:
        return lease.spec.lease_transitions or 0

    def _left(self) -> float:
        return max(0.0, self._valid_until - self._clocks.monotonic())

    def _complain(self, error: KubeError) -> None:
        if str(error) != self.problem:
            self.problem = str(error)
            logger.warning("lease not reached", extra={"problem": self.problem})
