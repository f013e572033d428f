"""What workers tell of their caches: put in order, found by tokens, bounded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sglr_dataplane.engine.telling import CacheBatch, Cleared, Removed, Stored, cache_batch
from sglr_dataplane.fleet.policies.cache_aware import CacheAware
from sglr_dataplane.fleet.policies.exact_index import ExactIndex
from sglr_dataplane.fleet.policies.feed import CacheFeed
from sglr_dataplane.fleet.policies.prefix_index import block_hashes, seed_of
from sglr_dataplane.job import Job, new_job_id
from sglr_dataplane.sim.kv_events import KvEvents
from sglr_proto.sglang import common_pb2
from support.engines import FakeClock


@dataclass
class A:
    """A candidate."""

    id: str
    in_flight: int = 0
    load: int = 0
    weight: float = 1.0


def an_index(size: int = 4, most: int = 10_000) -> ExactIndex:
    """Return an index of blocks of *size* tokens that knows worker w."""
    index = ExactIndex(block_tokens=size, most=most)
    index.begin("w")
    return index


def depth(index: ExactIndex, ids: Iterable[int], size: int = 4, seed: int = 0) -> int:
    """Return how many blocks of *ids* are at worker w."""
    return index.depth(block_hashes(tuple(ids), size, 99, seed), "w")


def stored(
    *blocks: tuple[int, tuple[int, ...]],
    parent: int | None = None,
    tier: int = 1,
    adapter: str = "",
) -> CacheBatch:
    """Return the news that *blocks* came in."""
    return CacheBatch(1, (Stored(blocks, parent, tier, adapter),))


def removed(*hashes: int, tier: int | None = None) -> CacheBatch:
    """Return the news that blocks went out."""
    return CacheBatch(1, (Removed(hashes, tier),))


@pytest.mark.parametrize("size", [1, 3, 4, 6, 16])
def test_blocks_of_any_size_are_found_by_their_tokens(size: int) -> None:
    """Twelve tokens in the engine's pieces are three blocks of ours as far as pieces are whole."""
    index, ids = an_index(), tuple(range(100, 116))
    pieces = [ids[at : at + size] for at in range(0, len(ids) - size + 1, size)]
    parent = None
    for number, piece in enumerate(pieces):
        index.apply("w", stored((number, piece), parent=parent))
        parent = number

    assert depth(index, ids) == len(pieces) * size // 4
    assert depth(index, (1, *ids)) == 0


def test_a_block_that_goes_out_takes_what_it_made_whole() -> None:
    """The beginning stays."""
    index = an_index()
    index.apply("w", stored((7, (1, 2, 3, 4)), (8, (5, 6)), (9, (7, 8))))
    before = depth(index, range(1, 9))
    index.apply("w", removed(9))

    assert (before, depth(index, range(1, 9))) == (2, 1)


def test_a_block_in_two_tiers_stays_until_it_is_out_of_both() -> None:
    """What is in host memory is loaded faster than it is computed."""
    index = an_index()
    index.apply("w", stored((7, (1, 2, 3, 4)), tier=1))
    index.apply("w", stored((7, (1, 2, 3, 4)), tier=2))
    index.apply("w", removed(7, tier=1))
    on_host = depth(index, (1, 2, 3, 4))
    index.apply("w", removed(7, tier=2))

    assert (on_host, depth(index, (1, 2, 3, 4)), len(index)) == (1, 0, 0)


def test_an_adapters_blocks_are_found_under_it_only() -> None:
    """Equal tokens give other cached values."""
    index = an_index()
    index.apply("w", stored((7, (1, 2, 3, 4)), adapter="sql"))

    assert depth(index, (1, 2, 3, 4)) == 0
    assert depth(index, (1, 2, 3, 4), seed=seed_of("sql")) == 1


def test_ranks_of_one_worker_have_caches_of_their_own() -> None:
    """Clearing one rank's leaves the other's, though the engine's hashes are the same."""
    index = an_index()
    block = Stored(((7, (1, 2, 3, 4)),))
    for rank in (0, 1):
        index.apply("w", CacheBatch(1, (block,), rank=rank))
    index.apply("w", CacheBatch(2, (Cleared(),), rank=0))
    at_one = depth(index, (1, 2, 3, 4))
    index.apply("w", CacheBatch(3, (Cleared(),), rank=1))

    assert (at_one, depth(index, (1, 2, 3, 4))) == (1, 0)


def test_blocks_that_tokens_alone_do_not_find_are_left_out() -> None:
    """With an image or a salt; so is what comes after them."""
    index = an_index()
    salted = Stored(((7, (1, 2, 3, 4)),), is_plain=False)
    index.apply("w", CacheBatch(1, (salted, Stored(((8, (5, 6, 7, 8)),), parent=7))))

    assert len(index) == 0


def test_a_worker_that_tells_too_much_is_known_no_more() -> None:
    """Memory is bounded; the others stay."""
    index = an_index(most=10)
    index.begin("v")
    index.apply("v", stored((1, (1, 2, 3, 4))))
    index.apply("w", stored(*((n, (n, n, n, n)) for n in range(20))))

    assert index.has_overflowed("w")
    assert not index.knows("w")
    assert index.knows("v")
    assert len(index) == 1


def test_the_wires_messages_become_values() -> None:
    """Tiers, levels from before there were tiers, adapters, salts, pieces and loads."""
    message = common_pb2.KvEventBatch(sequence_number=5, dp_rank=2)
    message.snapshot.index, message.snapshot.count = 1, 3
    message.load.running_requests, message.load.waiting_requests = 4, 2
    old = message.events.add().stored
    old.blocks.add(block_hash=-7, token_ids=[1, 2], cache_level=1)
    old.parent_block_hash = -6
    salted = message.events.add().stored
    salted.blocks.add(block_hash=8, token_ids=[3])
    salted.tier = common_pb2.KV_CACHE_TIER_DEVICE
    salted.cache_salt, salted.lora_name = "s", "sql"
    message.events.add().stored.group_idx = 1
    message.events.add().removed.block_hashes.extend([1, 2])
    message.events.add().removed.tier = common_pb2.KV_CACHE_TIER_HOST
    message.events.add().cleared.SetInParent()

    batch = cache_batch(message)

    assert (batch.sequence, batch.rank, batch.piece) == (5, 2, (1, 3))
    assert batch.load is not None
    assert batch.load.jobs == 6
    assert batch.changes == (
        Stored(((-7, (1, 2)),), parent=-6, tier=2),
        Stored(((8, (3,)),), tier=1, adapter="sql", is_plain=False),
        Removed((1, 2)),
        Removed((), tier=2),
        Cleared(),
    )


# --- the order of news --------------------------------------------------------------------------


def test_news_go_on_where_they_broke_off_and_are_taken_once() -> None:
    """Batches that come again change nothing."""
    index = ExactIndex(block_tokens=4, most=99)
    feed = CacheFeed(index, "w")
    block = (Stored(((7, (1, 2, 3, 4)),)),)
    assert feed.take(CacheBatch(3, piece=(0, 1)))
    assert feed.take(CacheBatch(4, block))
    assert feed.take(CacheBatch(5, (Removed((7,)),)))
    assert feed.take(CacheBatch(4, block))

    assert feed.next == 6
    assert len(index) == 0


def test_a_gap_has_everything_told_anew() -> None:
    """What was known stays until then."""
    index = ExactIndex(block_tokens=4, most=99)
    feed = CacheFeed(index, "w")
    feed.take(CacheBatch(3, (Stored(((7, (1, 2, 3, 4)),)),), piece=(0, 1)))
    goes_on = feed.take(CacheBatch(5))
    between = len(index)
    feed.take(CacheBatch(9, (Stored(((8, (5, 6, 7, 8)),)),), piece=(0, 1)))

    assert not goes_on
    assert between == 1
    assert depth(index, (1, 2, 3, 4)) == 0
    assert depth(index, (5, 6, 7, 8)) == 1
    assert feed.next == 10


def test_a_snapshot_with_a_piece_missing_is_asked_for_again() -> None:
    """Half a snapshot is none."""
    feed = CacheFeed(ExactIndex(block_tokens=4, most=99), "w")

    assert feed.take(CacheBatch(3, piece=(0, 3)))
    assert not feed.take(CacheBatch(3, piece=(2, 3)))
    assert feed.next == 0


def test_news_within_a_snapshot_are_a_gap() -> None:
    """They would change what is not known yet."""
    feed = CacheFeed(ExactIndex(block_tokens=4, most=99), "w")
    feed.take(CacheBatch(3, piece=(0, 2)))

    assert not feed.take(CacheBatch(4))


def test_loads_alone_have_no_place_in_the_order() -> None:
    """They come in between, whatever their number."""
    feed = CacheFeed(ExactIndex(block_tokens=4, most=99), "w")
    feed.take(CacheBatch(3, piece=(0, 1)))

    assert feed.take(CacheBatch(0, is_load_only=True))
    assert feed.next == 4


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)


@given(
    steps=st.lists(
        st.tuples(PROMPTS, st.sampled_from(["add", "drop", "cut", "lose"])), max_size=30
    ),
    page=st.integers(1, 5),
    asked=PROMPTS,
)
def test_what_is_known_is_what_is_there(
    steps: list[tuple[tuple[int, ...], str]], page: int, asked: tuple[int, ...]
) -> None:
    """However news are cut off and lost: after the last gap is mended it is the engine's cache."""
    events = KvEvents(page, common_pb2.EngineLoad)
    index = ExactIndex(block_tokens=2, most=10_000)
    feed, held = CacheFeed(index, "w"), list[tuple[int, ...]]()

    def hear() -> None:
        for _ in range(2):
            with events.listening(feed.next) as news:
                while not news.empty() and feed.take(cache_batch(news.get_nowait())):
                    pass

    for ids, what in steps:
        if what == "add":
            events.added(ids)
            held.append(ids)
        elif what == "drop" and held:
            events.removed(held.pop(0))
        elif what == "lose":
            events.lose()
        else:
            hear()
    events.added((9,) * page)
    hear()

    def pages(ids: tuple[int, ...]) -> int:
        return len(ids) // page * page

    longest = max(
        (
            size
            for ids in held
            for size in range(pages(ids) + 1)
            if size <= len(asked) and ids[:size] == asked[:size]
        ),
        default=0,
    )
    assert depth(index, asked, 2) == longest // 2


# --- the policy ---------------------------------------------------------------------------------


def test_a_worker_that_tells_is_believed_and_not_what_was_sent_there() -> None:
    """Its cache lost the prompt: somebody else, who has it, is cheaper."""
    clock = FakeClock()
    policy = CacheAware(
        block_tokens=4, load_tokens=1, slack=1, most_blocks=99, ttl=1e9, clock=clock
    )
    workers = [A("v"), A("w")]
    job = Job(id=new_job_id(), model="m", input_ids=tuple(range(40)))
    first = policy.choose(job, workers)
    other = next(worker for worker in workers if worker is not first)
    policy.told.begin(first.id)
    policy.told.begin(other.id)
    policy.told.apply(other.id, stored((1, tuple(range(40)))))

    assert policy.choose(job, workers) is other


def test_a_prompt_is_looked_for_under_its_adapter() -> None:
    """Where the model itself has it nothing is gained."""
    policy = CacheAware(
        block_tokens=4, load_tokens=1, slack=1, most_blocks=99, ttl=1e9, clock=FakeClock()
    )
    workers = [A("v"), A("w")]
    for worker in workers:
        policy.told.begin(worker.id)
    policy.told.apply("v", stored((1, tuple(range(40)))))
    policy.told.apply("w", stored((1, tuple(range(40))), adapter="sql"))
    job = Job(id=new_job_id(), model="m", input_ids=tuple(range(40)))

    assert policy.choose(job, workers).id == "v"
    assert policy.choose(replace(job, adapter="sql"), workers).id == "w"


def test_a_prompt_that_is_under_way_counts_although_it_is_not_told_yet() -> None:
    """A burst of one new prompt does not go everywhere while the first is computed; later it may."""
    clock = FakeClock()
    policy = CacheAware(
        block_tokens=4, load_tokens=1, slack=99, most_blocks=99, ttl=1e9, clock=clock
    )
    workers = [A(f"w{n}") for n in range(8)]
    for worker in workers:
        policy.told.begin(worker.id)

    def choose(ids: tuple[int, ...]) -> str:
        return policy.choose(Job(id=new_job_id(), model="m", input_ids=ids), workers).id

    burst = {choose((*range(40), *range(n, n + 8))) for n in range(100, 120)}
    clock.pass_by(60)
    late = {choose((*range(40), *range(n, n + 8))) for n in range(200, 220)}

    assert len(burst) == 1
    assert len(late) == 1  # told by nobody: the first own block decides, and then it is under way
