"""The hot messages by hand say what the generated stubs say."""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sglr_dataplane.engine.messages import generate_request
from sglr_dataplane.engine.wire import ChunkReader, pack_ids, pack_varint, write_job
from sglr_dataplane.job import Constraint, Job, LogprobsWish, Sampling, Usage
from sglr_proto.sglang import scheduler_pb2 as pb

NAME = "0123456789abcdef0123456789abcdef"
UINT32 = st.integers(0, 2**32 - 1)
# Without -0.0, which is 0.0 to an engine, and to what is kept of a sampling.
FLOATS = st.floats(width=32, allow_nan=False).map(lambda number: number + 0.0)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

SAMPLINGS = st.builds(
    Sampling,
    temperature=FLOATS,
    top_p=FLOATS,
    top_k=st.integers(-1, 1000),
    min_p=FLOATS,
    frequency_penalty=FLOATS,
    presence_penalty=FLOATS,
    repetition_penalty=FLOATS,
    max_new_tokens=st.none() | UINT32,
    min_new_tokens=UINT32,
    stop=st.lists(TEXTS, max_size=3).map(tuple),
    stop_token_ids=st.lists(UINT32, max_size=3).map(tuple),
    ignore_eos=st.booleans(),
    no_stop_trim=st.booleans(),
    n=st.integers(1, 8),
    logit_bias=st.dictionaries(UINT32, FLOATS, max_size=2).map(lambda d: tuple(d.items())),
    constraint=st.none()
    | st.builds(
        Constraint,
        st.sampled_from(["json_schema", "regex", "ebnf_grammar", "structural_tag"]),
        TEXTS,
    ),
)
JOBS = st.builds(
    Job,
    id=st.text("0123456789abcdef", min_size=32, max_size=32),
    model=st.just("m"),
    input_ids=st.lists(st.one_of(st.integers(0, 200_000), UINT32), max_size=40).map(tuple),
    sampling=SAMPLINGS,
    stream=st.booleans(),
    require_reasoning=st.booleans(),
    lora_id=st.just("") | st.text(max_size=200),
    logprobs=st.none()
    | st.builds(LogprobsWish, top=st.integers(0, 20), prompt_from=st.none() | st.integers(0, 9)),
)


@given(JOBS)
def test_a_job_is_the_message_the_stubs_would_write(job: Job) -> None:
    """Read by the stubs, the bytes are the same message."""
    assert pb.GenerateRequest.FromString(write_job(job)) == generate_request(job)


@pytest.mark.parametrize("top", [0, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, 2**28, 2**32 - 1])
def test_ids_of_every_length_are_written(top: int) -> None:
    """Around each length of a varint, alone and in company."""
    ids = (top, 0, max(top - 1, 0), 5, top)

    read = pb.TokenizedInput()
    packed = pack_ids(ids)
    read.ParseFromString(b"\x12" + pack_varint(len(packed)) + packed)

    assert tuple(read.input_ids) == ids


@pytest.mark.parametrize("length", [0, 1, 8_191, 8_192, 8_193, 20_000])
@pytest.mark.parametrize("odd", [7, 2**28])
def test_prompts_of_every_length_are_written(length: int, odd: int) -> None:
    """However many ids there are, each arrives, also beside one that is too wide for the rest."""
    ids = (*range(150_000, 150_000 + length), odd)

    read = pb.TokenizedInput()
    packed = pack_ids(ids)
    read.ParseFromString(b"\x12" + pack_varint(len(packed)) + packed)

    assert tuple(read.input_ids) == ids


@pytest.mark.parametrize("ids", [(-1,), (2**32,), (1, 2, 2**40)])
def test_ids_out_of_range_are_refused(ids: tuple[int, ...]) -> None:
    """They cannot be a token of any vocabulary."""
    with pytest.raises(ValueError, match=r"range\(2\*\*32\)"):
        pack_ids(ids)


@pytest.mark.parametrize("top", [5, 2**28])
def test_an_encoders_array_is_written_as_its_numbers_are(top: int) -> None:
    """Whichever way the ids come."""
    ids = (*range(9_000), top)

    assert pack_ids(array("I", ids)) == pack_ids(ids)


def test_no_ids_are_no_bytes() -> None:
    """The empty prompt, which is refused elsewhere, is still written right."""
    assert pack_ids(()) == b""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints_are_the_shortest(value: int, expected: bytes) -> None:
    """The examples of protobuf's own documentation, and the edges."""
    assert pack_varint(value) == expected


def a_chunk(**fields: Any) -> bytes:
    """Return a serialised chunk of the job NAME."""
    chunk = pb.GenerateStreamChunk(**fields)
    return pb.GenerateResponse(request_id=NAME, chunk=chunk).SerializeToString()


def by_the_stubs(message: bytes) -> tuple[tuple[int, ...], Usage, int]:
    """Return what the stubs read in a plain chunk."""
    chunk = pb.GenerateResponse.FromString(message).chunk
    usage = Usage(
        chunk.prompt_tokens, chunk.completion_tokens, chunk.cached_tokens, chunk.reasoning_tokens
    )
    return tuple(chunk.token_ids), usage, chunk.index


COUNTERS = st.one_of(st.just(0), st.integers(0, 300), UINT32)
PLAIN: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "token_ids": st.lists(st.one_of(st.integers(0, 200_000), UINT32), max_size=3),
        "prompt_tokens": COUNTERS,
        "completion_tokens": COUNTERS,
        "cached_tokens": COUNTERS,
        "index": COUNTERS,
        "reasoning_tokens": COUNTERS,
    }
)
LOGPROBS = st.builds(
    lambda values, ids: pb.OutputLogProbs(token_logprobs=values, token_ids=ids),
    st.lists(FLOATS, max_size=2),
    st.lists(UINT32, max_size=2),
)
COMPLETES = st.builds(
    lambda ids, reason, count, matched: pb.GenerateComplete(
        output_ids=ids, finish_reason=reason, completion_tokens=count, matched_token_id=matched
    ),
    st.lists(UINT32, max_size=3),
    st.sampled_from(["stop", "length", "abort", ""]),
    COUNTERS,
    UINT32,
)
NAMES = st.one_of(st.just(NAME), st.text("0123456789abcdef", max_size=40))
RESPONSES = st.one_of(
    st.builds(
        lambda name, fields, more: pb.GenerateResponse(
            request_id=name,
            chunk=pb.GenerateStreamChunk(**fields, **({"output_logprobs": more} if more else {})),
        ),
        NAMES,
        PLAIN,
        st.none() | LOGPROBS,
    ),
    st.builds(
        lambda name, arm: pb.GenerateResponse(request_id=name, complete=arm), NAMES, COMPLETES
    ),
    st.builds(lambda name: pb.GenerateResponse(request_id=name), NAMES),
)


@given(st.lists(RESPONSES, max_size=8))
def test_what_is_read_by_hand_is_what_the_stubs_read(responses: list[pb.GenerateResponse]) -> None:
    """One reader, any sequence: it agrees with the stubs, or leaves the message to them."""
    reader = ChunkReader(NAME)
    for response in responses:
        message = response.SerializeToString()
        got = reader.read(message)

        if got is not None:
            assert response.request_id == NAME
            assert response.WhichOneof("response") == "chunk"
            assert not response.chunk.HasField("output_logprobs")
            assert got == by_the_stubs(message)


@given(PLAIN.filter(lambda fields: len(fields["token_ids"]) == 1))
def test_a_plain_token_is_read_by_hand(fields: dict[str, Any]) -> None:
    """The message that comes for every token does not reach the stubs."""
    message = a_chunk(**fields)

    got = ChunkReader(NAME).read(message)

    fits = fields["token_ids"][0] < 2**21 and 0 < fields["completion_tokens"] < 2**21
    assert got == (by_the_stubs(message) if fits else None)


@given(st.binary(max_size=80))
@example(b"\x0a\x20" + NAME.encode() + b"\x12\x80")
@example(b"\x0a\x20" + NAME.encode() + b"\x12\x04\x0a\x01\x05\x18")
def test_bytes_that_are_no_message_are_left_to_the_stubs(junk: bytes) -> None:
    """Whatever is read by hand is a message, and says the same to the stubs."""
    got = ChunkReader(NAME).read(junk)

    assert got is None or got == by_the_stubs(junk)


@given(st.data())
def test_a_damaged_chunk_is_never_misread(data: st.DataObject) -> None:
    """One changed, added or missing byte gives what the stubs read, or is left to them."""
    good = a_chunk(token_ids=[50_000], prompt_tokens=500, completion_tokens=7, cached_tokens=3)
    reader = ChunkReader(NAME)
    assert reader.read(good) is not None
    at = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.binary(max_size=2))
    damaged = good[:at] + change + good[at + 1 :]

    got = reader.read(damaged)

    assert got is None or got == by_the_stubs(damaged)
    assert reader.read(good) == by_the_stubs(good)


@pytest.mark.parametrize(
    "counter", [b"\x05\x07", b"\x83", b"\x83\x83", b"\x83\x83\x83", b"\x03\x18"]
)
@pytest.mark.parametrize("rest", [{}, {"cached_tokens": 3}])
def test_a_counter_that_is_no_varint_is_left_to_the_stubs(
    counter: bytes, rest: dict[str, int]
) -> None:
    """Where one counter stood, two numbers or half of one are no counter."""
    reader = ChunkReader(NAME)
    good = a_chunk(token_ids=[7], completion_tokens=5, **rest)
    assert reader.read(good) is not None
    at = good.index(b"\x18\x05") + 1
    bad = bytearray(good[:at] + counter + good[at + 1 :])
    bad[35] += len(counter) - 1

    got = reader.read(bytes(bad))

    assert got is None


def test_unknown_fields_are_skipped_by_the_stubs() -> None:
    """A newer worker's chunk is not plain, and loses nothing that is known."""
    chunk = pb.GenerateStreamChunk(token_ids=[5], completion_tokens=1).SerializeToString()
    chunk += b"\xa2\x06\x03new"
    name = NAME.encode()
    message = b"\x0a\x20" + name + b"\x12" + pack_varint(len(chunk)) + chunk

    assert ChunkReader(NAME).read(message) is None
    assert by_the_stubs(message) == ((5,), Usage(0, 1, 0, 0), 0)


def test_another_jobs_chunk_is_not_read() -> None:
    """An answer under an id that is not this job's is not plain."""
    other = a_chunk(token_ids=[5], completion_tokens=1)

    assert ChunkReader(NAME).read(other) is not None
    assert ChunkReader("f" * 32).read(other) is None


def test_counters_follow_the_message_they_came_in() -> None:
    """What is remembered of one chunk is not told of one that differs."""
    reader = ChunkReader(NAME)
    first = a_chunk(token_ids=[1], prompt_tokens=9, completion_tokens=1, cached_tokens=4, index=1)
    second = a_chunk(token_ids=[2], prompt_tokens=9, completion_tokens=200, index=0)
    third = a_chunk(token_ids=[3], completion_tokens=3, reasoning_tokens=2)

    assert reader.read(first) == ((1,), Usage(9, 1, 4, 0), 1)
    assert reader.read(second) == ((2,), Usage(9, 200, 0, 0), 0)
    assert reader.read(third) == ((3,), Usage(0, 3, 0, 2), 0)


@pytest.mark.parametrize("name", ["prompt_tokens", "cached_tokens", "index", "reasoning_tokens"])
def test_a_counter_that_changes_within_its_width_is_noticed(name: str) -> None:
    """Two chunks of one length that differ in one byte of a counter differ in that counter."""
    reader = ChunkReader(NAME)
    chunks = [
        a_chunk(token_ids=[7], completion_tokens=3, **{name: value}) for value in (4, 5, 4, 6)
    ]

    assert [reader.read(chunk) for chunk in chunks] == [by_the_stubs(chunk) for chunk in chunks]


def test_floats_arrive_as_they_were() -> None:
    """Sampling goes through the stubs: a float is the nearest one of 32 bits."""
    job = Job(id=NAME, model="m", input_ids=(1,), sampling=Sampling(temperature=0.1))

    read = pb.GenerateRequest.FromString(write_job(job))

    assert math.isclose(read.sampling_params.temperature, 0.1, rel_tol=1e-7)
    assert read.logprob_start_len == -1
    assert read.log_metrics
