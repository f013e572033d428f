"""What a worker tells of its load and its cache while it works: the wire's messages as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sglr_proto.sglang import common_pb2

if TYPE_CHECKING:
    from sglr_proto.sglang import scheduler_pb2


class EngineLoad(msgspec.Struct, frozen=True):
    """How busy a worker is by its own word, whoever sent it the work."""

    running: int
    waiting: int

    @property
    def jobs(self) -> int:
        """How many requests it has."""
        return self.running + self.waiting


class Stored(msgspec.Struct, frozen=True):
    """Blocks that came into a cache, each the child of the one before it."""

    blocks: tuple[tuple[int, tuple[int, ...]], ...]
    """The engine's own hash of each, and its token ids."""
    parent: int | None = None
    """The engine's hash of the block before the first; None at the beginning of a prompt."""
    tier: int = 0
    """The memory they are in."""
    adapter: str = ""
    """The LoRA adapter they were computed under."""
    is_plain: bool = True
    """False: more than tokens and adapter went into them (an image, a salt), so that tokens alone
    do not find them."""


class Removed(msgspec.Struct, frozen=True):
    """Blocks that went out of one tier, or out of all."""

    hashes: tuple[int, ...]
    tier: int | None = None
    """None: out of all."""


class Cleared(msgspec.Struct, frozen=True):
    """Everything went out."""


CacheChange = Stored | Removed | Cleared


class CacheBatch(msgspec.Struct, frozen=True):
    """What happened in a cache in one step, or a piece of all that is in it."""

    sequence: int
    changes: tuple[CacheChange, ...] = ()
    rank: int = 0
    """The data-parallel rank whose cache it is."""
    piece: tuple[int, int] | None = None
    """Of a snapshot: which piece, from 0, of how many; None when it is news."""
    load: EngineLoad | None = None
    is_load_only: bool = False
    """True: says nothing of the cache, and has no place in the sequence."""


def cache_request(start: int) -> common_pb2.SubscribeKvEventsRequest:
    """Return the message that asks a worker for news of its cache from batch *start* on."""
    return common_pb2.SubscribeKvEventsRequest(start_sequence_number=start)


def life_of(answer: scheduler_pb2.GetServerInfoResponse) -> str:
    """Return what changes when another process answers; ``""`` when *answer* does not say."""
    began = answer.start_time
    return f"{began.seconds}.{began.nanos}" if answer.HasField("start_time") else ""


def load_of(answer: scheduler_pb2.GetLoadsResponse) -> EngineLoad:
    """Return what *answer* says of all ranks together."""
    return EngineLoad(
        running=sum(max(each.num_running_reqs, 0) for each in answer.loads),
        waiting=sum(max(each.num_waiting_reqs, 0) for each in answer.loads),
    )


def cache_batch(message: common_pb2.KvEventBatch) -> CacheBatch:
    """Return *message* as a value."""
    load = None
    if message.HasField("load"):
        load = EngineLoad(message.load.running_requests, message.load.waiting_requests)
    piece = None
    if message.HasField("snapshot"):
        piece = message.snapshot.index, message.snapshot.count
    changes = (_change(event) for event in message.events)
    return CacheBatch(
        sequence=message.sequence_number,
        changes=tuple(change for change in changes if change is not None),
        rank=message.dp_rank,
        piece=piece,
        load=load,
        is_load_only=load is not None and message.load.load_only,
    )


def _change(event: common_pb2.KvCacheEvent) -> CacheChange | None:
    match event.WhichOneof("data"):
        case "stored":
            return _stored(event.stored)
        case "removed":
            removed = event.removed
            if removed.group_idx:
                return None
            tier = removed.tier or removed.cache_level + 1
            is_of_one = removed.HasField("tier") or removed.HasField("cache_level")
            return Removed(tuple(removed.block_hashes), tier if is_of_one else None)
        case "cleared":
            return Cleared()
        case None:
            return None  # of a newer contract


def _stored(stored: common_pb2.KvBlocksStored) -> Stored | None:
    """Return *stored*; None for the second group of a hybrid model: the first tells the prefix."""
    if stored.group_idx or not stored.blocks:
        return None
    is_named = bool(stored.lora_name) or not any(block.lora_id for block in stored.blocks)
    has_more = bool(stored.cache_salt) or any(block.extra_keys for block in stored.blocks)
    return Stored(
        blocks=tuple((block.block_hash, tuple(block.token_ids)) for block in stored.blocks),
        parent=stored.parent_block_hash if stored.HasField("parent_block_hash") else None,
        # Before tiers there were levels, which began with 0 where tiers do with 1.
        tier=stored.tier or stored.blocks[0].cache_level + 1,
        adapter=stored.lora_name,
        is_plain=is_named and not has_more,
    )
