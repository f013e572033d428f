"""The last message of a choice, read by hand, says what the generated stubs read in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.fields import read_fields, read_numbers
from sglr_dataplane.engine.wire import ChunkReader, End
from sglr_dataplane.job import Usage
from sglr_proto.sglang import scheduler_pb2 as pb

NAME = "0123456789abcdef0123456789abcdef"
UINT32 = st.integers(0, 300) | st.integers(0, 2**32 - 1)
PLAIN: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "output_ids": st.lists(UINT32, max_size=5),
        "finish_reason": st.sampled_from(["stop", "length", "abort", "é"]),
        "prompt_tokens": UINT32,
        "completion_tokens": UINT32,
        "cached_tokens": UINT32,
        "index": UINT32,
        "reasoning_tokens": UINT32,
        "spec_accepted_tokens": UINT32,
        "spec_draft_tokens": UINT32,
    },
)
MATCHED: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just(dict[str, Any]()),
    UINT32.map(lambda token_id: {"matched_token_id": token_id}),
    st.text(max_size=5).map(lambda text: {"matched_stop_str": text}),
)


def an_end(**fields: Any) -> bytes:
    """Return the serialised last message of a choice of the job NAME."""
    complete = pb.GenerateComplete(**fields)
    return pb.GenerateResponse(request_id=NAME, complete=complete).SerializeToString()


def by_the_stubs(message: bytes) -> End:
    """Return what the stubs read in a plain last message."""
    read = pb.GenerateResponse.FromString(message).complete
    usage = Usage(
        read.prompt_tokens, read.completion_tokens, read.cached_tokens, read.reasoning_tokens
    )
    kind = read.WhichOneof("matched_stop")
    matched = None if kind is None else getattr(read, kind)
    return End(tuple(read.output_ids), usage, read.index, read.finish_reason, matched)


@given(PLAIN, MATCHED)
def test_a_plain_end_is_read_by_hand(plain: dict[str, Any], matched: dict[str, Any]) -> None:
    """Every field, whatever is told and whatever is not."""
    message = an_end(**plain, **matched)

    assert ChunkReader(NAME).read_end(message) == by_the_stubs(message)


@given(st.data())
def test_a_damaged_end_is_never_misread(data: st.DataObject) -> None:
    """One changed, added or missing byte gives what the stubs read, or is left to them."""
    good = an_end(
        output_ids=[5, 70_000], finish_reason="stop", prompt_tokens=500, completion_tokens=7,
        matched_token_id=70_000,
    )  # fmt: skip
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:at] + data.draw(st.binary(max_size=2)) + good[at + 1 :]

    got = ChunkReader(NAME).read_end(damaged)

    assert got is None or got == by_the_stubs(damaged)


def framed(content: bytes) -> bytes:
    """Return the message whose ``complete`` is *content*."""
    return b"\x0a\x20" + NAME.encode() + b"\x1a" + bytes([len(content)]) + content


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("log probabilities", an_end(output_logprobs=pb.OutputLogProbs(token_ids=[1]))),
        ("hidden states", an_end(all_hidden_states=[pb.HiddenStates(values=[1.0])])),
        (
            "a chunk",
            pb.GenerateResponse(
                request_id=NAME, chunk=pb.GenerateStreamChunk()
            ).SerializeToString(),
        ),
        ("another job's", an_end(finish_reason="stop").replace(b"0123", b"3210")),
        ("a long one", an_end(matched_stop_str="x" * 200)),
        ("a field that is not known", framed(b"\x18\x05\x78\x01")),
        ("a field twice", framed(b"\x18\x05\x18\x06")),
        ("fields out of order", framed(b"\x20\x05\x18\x06")),
        ("both that may have matched", framed(b"\x40\x05\x4a\x01x")),
        ("a text that is none", framed(b"\x12\x02\xff\xff")),
        ("a text that is cut", framed(b"\x12\x05st")),
        ("a number that is cut", framed(b"\x18\x85")),
        ("a number of more bits", framed(b"\x18\xff\xff\xff\xff\x7f")),
        ("a number that never ends", framed(b"\x18" + b"\x80" * 9 + b"\0")),
        ("ids that are cut", framed(b"\x0a\x02\x05\x85")),
        ("a field after the message", an_end(finish_reason="stop") + b"\x0a\0"),
    ],
)
def test_what_is_more_than_plain_is_left_to_the_stubs(what: str, message: bytes) -> None:
    """Nothing is guessed."""
    assert ChunkReader(NAME).read_end(message) is None, what


@given(st.lists(UINT32, max_size=9))
def test_packed_numbers_are_read(numbers: list[int]) -> None:
    """As the stubs wrote them."""
    packed = pb.TokenizedInput(input_ids=numbers).SerializeToString()
    fields = read_fields(packed, 0, frozenset(), frozenset({0x12}))

    assert fields is not None
    assert read_numbers(fields[1].get(0x12, b"")) == tuple(numbers)
