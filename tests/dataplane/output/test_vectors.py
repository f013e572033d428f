"""The families' vectors, in every chunking, and at every place an answer can be cut off.

``vectors/field`` holds texts whose reading was verified against implementations in the field;
``vectors`` holds more of each family, rendered from calls that are known beforehand.
``sglr parse --vectors FILE --chunking random:200`` runs any of them at length.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from sglr_dataplane.cli.vectors import Vector, as_given, differences, load, read, reader_of
from sglr_dataplane.output.collect import Message, collect
from sglr_dataplane.output.replay import (
    SPECIAL,
    Chunking,
    at_random,
    by_character,
    by_token,
    one,
    token_texts,
    whole,
)

VECTORS = Path(__file__).parent / "vectors"
TOOLS = tuple(json.loads((VECTORS / "tools.json").read_bytes()))
FIELD = [v for path in sorted(VECTORS.glob("field/*.jsonl")) for v in load(path, TOOLS)]
OWN = [v for path in sorted(VECTORS.glob("*.jsonl")) for v in load(path, TOOLS)]
ALL = [*FIELD, *OWN]
FEW, MANY = 8, 200
"""Random chunkings of each vector: the field's get more."""

every_vector = pytest.mark.parametrize("vector", ALL, ids=[v.id for v in ALL])


def shown(message: Message) -> str:
    """Everything a client sees of *message*, in one string."""
    calls = "".join(call.name + call.arguments for call in message.tool_calls)
    return (message.reasoning or "") + (message.content or "") + calls


def test_there_are_at_least_three_hundred_vectors_with_distinct_ids() -> None:
    """The suite is as large as it claims, and no vector hides another."""
    assert len({v.id for v in ALL}) == len(ALL)
    assert len(ALL) >= 300


@every_vector
@pytest.mark.parametrize("chunking", [whole, by_token, by_character, one])
def test_a_vector_is_read_as_expected(vector: Vector, chunking: Chunking) -> None:
    """A family's answer gives the same message, whole, by token, by character and in one chunk."""
    assert differences(vector, read(vector, chunking)) == []


@every_vector
def test_a_vector_is_read_as_expected_in_its_own_hostile_chunks(vector: Vector) -> None:
    """A cut through the middle of markers changes nothing."""
    if not vector.chunks:
        halves = (vector.text[: len(vector.text) // 2], vector.text[len(vector.text) // 2 :])
        vector = Vector(
            **{f: getattr(vector, f) for f in vector.__struct_fields__} | {"chunks": halves}
        )

    assert differences(vector, read(vector, as_given(vector))) == []


@every_vector
def test_a_vector_is_read_as_expected_in_random_chunks(vector: Vector) -> None:
    """Wherever the worker cuts its chunks, the message is the same."""
    first = zlib.crc32(vector.id.encode()) % 1000 * 2
    for seed in range(first, first + (MANY if vector in FIELD else FEW)):
        assert differences(vector, read(vector, at_random(seed))) == [], f"seed {seed}"


@every_vector
def test_every_beginning_of_a_vector_reads_the_same_in_any_chunking(vector: Vector) -> None:
    """An answer cut off anywhere raises nothing and does not depend on the chunks either."""
    reader = reader_of(vector)
    for end in range(
        len(vector.id) % 7 if vector in OWN else 0, len(vector.text), 1 if vector in FIELD else 5
    ):
        text = vector.text[:end]
        by_one = collect(reader.read(one(text, frozenset()), "length"))
        by_many = collect(reader.read(by_character(text, frozenset()), "length"))
        assert by_one == by_many, repr(text)


@every_vector
def test_a_vector_is_read_as_expected_when_its_markers_are_hidden_ids(vector: Vector) -> None:
    """Special tokens never show, but those of the format are read."""
    specials = frozenset(vector.specials)
    reader = replace(reader_of(vector), hidden=frozenset({SPECIAL}))
    chunks = by_token(vector.text, specials)
    reason: Literal["stop", "length"] = "length" if vector.finish_reason == "length" else "stop"

    deltas = reader.read(chunks, reason, token_texts(chunks, specials))

    assert differences(vector, collect(deltas)) == []


@every_vector
def test_a_vector_streams_the_deltas_it_collects(vector: Vector) -> None:
    """Whether special tokens are known as such or spelled out, the message is one."""
    specials = frozenset(vector.specials)
    tokens = by_token(vector.text, specials)
    spelled = by_character(vector.text, specials)
    reader = reader_of(vector)

    as_tokens = collect(reader.read(tokens, "stop", token_texts(tokens, specials)))
    as_text = collect(reader.read(spelled, "stop"))

    assert shown(as_tokens) == shown(as_text)
