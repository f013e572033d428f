"""The bytes of the push stream; pure.

A message is serialised once for all routers; the nonce, which differs, comes in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from sglr_operator.compose import Composed, Removed
from sglr_proto.discovery import push_pb2 as pb
from sglr_proto.snapshot import Epoch

PROTOCOL: Final = 1
"""The version of the protocol that is spoken here."""

Key = str
"""``namespace/name`` of a backend."""

_ITEM_FIELD: Final = b"\x0a"
"""Field 1 with a length: what each item of a PushBatch starts with."""
_NONCE_FIELD: Final = b"\x08"
"""Field 1 as a varint: what a serialised PushResponse with a nonce starts with."""


def update(composed: Composed, epoch: Epoch) -> bytes:
    """Return the body that tells routers about a backend."""
    message = pb.BackendUpdate(
        backend=ref(composed.key),
        epoch=_epoch(epoch),
        version=composed.version,
        content_hash=composed.hash,
        snapshot=msgspec.json.encode(composed.snapshot, order="deterministic"),
    )
    return pb.PushResponse(update=message).SerializeToString()


def removal(removed: Removed, epoch: Epoch) -> bytes:
    """Return the body that tells routers to forget a backend."""
    message = pb.BackendRemoved(
        backend=ref(removed.key), epoch=_epoch(epoch), version=removed.version
    )
    return pb.PushResponse(removed=message).SerializeToString()


def welcome(epoch: Epoch, server: str, heartbeat: float) -> bytes:
    """Return the first message of a stream; *heartbeat* is in seconds."""
    message = pb.Welcome(
        epoch=_epoch(epoch),
        server=server,
        heartbeat_interval_ms=round(heartbeat * 1000),
        protocol_version=PROTOCOL,
    )
    return pb.PushResponse(welcome=message).SerializeToString()


def sync_complete(epoch: Epoch, held: Iterable[tuple[Key, int, str]]) -> bytes:
    """Return the list of every backend there is: key, version and content hash."""
    backends = [
        pb.HeldBackend(backend=ref(key), version=version, content_hash=digest)
        for key, version, digest in held
    ]
    message = pb.SyncComplete(epoch=_epoch(epoch), backends=backends)
    return pb.PushResponse(sync_complete=message).SerializeToString()


def heartbeat(epoch: Epoch) -> bytes:
    """Return the message that says nothing is new."""
    return pb.PushResponse(heartbeat=pb.Heartbeat(epoch=_epoch(epoch))).SerializeToString()


def go_away(reason: str) -> bytes:
    """Return the last message of a stream."""
    return pb.PushResponse(go_away=pb.GoAway(reason=reason)).SerializeToString()


def with_nonce(nonce: int, body: bytes) -> bytes:
    """Return *body* behind *nonce*; protobuf lets serialised fields be joined."""
    return _NONCE_FIELD + _varint(nonce) + body


def batch(responses: Iterable[bytes]) -> bytes:
    """Return a PushBatch of serialised *responses*."""
    return b"".join(_ITEM_FIELD + _varint(len(each)) + each for each in responses)


def _varint(number: int) -> bytes:
    pieces = bytearray()
    while number > 0x7F:  # noqa: PLR2004  # a varint has seven bits a byte
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)


def ref(key: Key) -> pb.BackendRef:
    """Return a backend's name as the stream has it."""
    namespace, _, name = key.partition("/")
    return pb.BackendRef(namespace=namespace, name=name)


def key_of(reference: pb.BackendRef) -> Key:
    """Return the key of a backend that a router names."""
    return f"{reference.namespace}/{reference.name}"


def _epoch(epoch: Epoch) -> pb.Epoch:
    return pb.Epoch(created=epoch[0], transitions=epoch[1])
