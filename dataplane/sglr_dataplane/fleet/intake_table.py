"""What a router holds of what the operator said, and which messages may change it; pure.

Order is (epoch, version). Nothing of an earlier epoch is ever applied, and within an epoch no
version that is not newer. A refused update leaves that backend as it was, and no other is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from sglr_proto.snapshot import (
    NO_EPOCH,
    BackendSnapshot,
    Epoch,
    Snapshot,
    canonical,
    content_hash,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message is not applied: a word for the operator, and a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Held:
    """One backend as it is in force."""

    epoch: Epoch
    version: int
    hash: str
    snapshot: BackendSnapshot


class Table:
    """The backends in force, by ``namespace/name``.

    State: the greatest epoch seen, and per backend the newest accepted update or removal.
    """

    def __init__(self) -> None:
        """Hold nothing; every epoch is welcome."""
        self.epoch: Epoch = NO_EPOCH
        self._held: dict[str, Held] = {}
        self._removed: dict[str, tuple[Epoch, int]] = {}
        self._changes = 0

    def __repr__(self) -> str:
        return f"<Table epoch={self.epoch} backends={len(self._held)} changes={self._changes}>"

    def load(self, snapshot: Snapshot) -> None:
        """Start from a last-known-good *snapshot*.

        Its backends are superseded by any update of its epoch or a later one.
        """
        self.epoch = snapshot.epoch
        self._held = {
            each.backend.key: Held(NO_EPOCH, each.version, content_hash(each), each)
            for each in snapshot.backends
        }
        self._changes += 1

    def meet(self, epoch: Epoch) -> Refusal | None:
        """Note the epoch of an operator that welcomes us; refuse one that was replaced."""
        if epoch < self.epoch:
            return Refusal(
                "EarlierEpoch",
                f"The operator's epoch {epoch} is before {self.epoch}, seen already.",
            )
        self.epoch = epoch
        return None

    def update(
        self, key: str, epoch: Epoch, version: int, digest: str, data: bytes
    ) -> Refusal | None:
        """Put an update in force, or say why not; one that is in force already is no refusal."""
        refusal = self._refuse_order(key, epoch, version, digest)
        if refusal is not None:
            return refusal
        held = self._held.get(key)
        if held is not None and held.hash == digest:
            # The same content under a new order, as after a change of leaders: nothing to apply.
            self._held[key] = Held(epoch, version, digest, held.snapshot)
            return None
        try:
            snapshot = msgspec.json.decode(data, type=BackendSnapshot)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Refusal("Undecodable", f"The update of {key!r} cannot be read: {error}.")
        if snapshot.backend.key != key:
            return Refusal(
                "WrongBackend", f"The update of {key!r} holds backend {snapshot.backend.key!r}."
            )
        (snapshot,) = canonical(Snapshot(backends=(snapshot,))).backends
        self._removed.pop(key, None)
        self._held[key] = Held(epoch, version, digest, snapshot)
        self._changes += 1
        return None

    def remove(self, key: str, epoch: Epoch, version: int) -> Refusal | None:
        """Drop a backend, or say why not."""
        refusal = self._refuse_order(key, epoch, version, "")
        if refusal is not None:
            return refusal
        self._removed[key] = (epoch, version)
        if self._held.pop(key, None) is not None:
            self._changes += 1
        return None

    def complete(self, epoch: Epoch, existing: Iterable[tuple[str, int, str]]) -> None:
        """Keep only the *existing* backends: key, version and content hash of each.

        A backend that is held with the same content takes over epoch and version. An empty hash
        means that the operator has no usable spec of it: what is held stays.
        """
        kept: dict[str, Held] = {}
        for key, version, digest in existing:
            held = self._held.get(key)
            if held is not None and digest and held.hash == digest:
                held = Held(epoch, version, digest, held.snapshot)
            if held is not None:
                kept[key] = held
        if kept.keys() != self._held.keys():
            self._changes += 1
        self._held = kept
        self._removed.clear()

    def snapshot(self) -> Snapshot:
        """Return everything in force; its version rises with each change of this table."""
        backends = tuple(self._held[key].snapshot for key in sorted(self._held))
        return Snapshot(epoch=self.epoch, version=self._changes, backends=backends)

    def held(self) -> Iterator[tuple[str, int, str]]:
        """Yield key, version and content hash of what is in force."""
        for key in sorted(self._held):
            yield key, self._held[key].version, self._held[key].hash

    def version(self, key: str) -> int:
        """Return the version in force of *key*; 0 when there is none."""
        return self._held[key].version if key in self._held else 0

    @property
    def changes(self) -> int:
        """How often something changed."""
        return self._changes

    def _refuse_order(self, key: str, epoch: Epoch, version: int, digest: str) -> Refusal | None:
        if epoch < self.epoch:
            return Refusal(
                "EarlierEpoch", f"{key!r} comes from epoch {epoch}, before {self.epoch}."
            )
        held = self._held.get(key)
        last = (held.epoch, held.version) if held is not None else self._removed.get(key)
        if last is None or (epoch, version) > last:
            return None
        if held is not None and (epoch, version) == last and digest == held.hash:
            return None
        return Refusal("EarlierVersion", f"{key!r} has version {last[1]} already, not {version}.")
