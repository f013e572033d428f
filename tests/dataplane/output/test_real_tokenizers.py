"""The vectors as real models' tokenizers spell them, special tokens hidden as in a request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from sglr_dataplane.cli.vectors import Vector, differences, load, reader_of
from sglr_dataplane.job import Chunk, Finish, Usage
from sglr_dataplane.output.collect import collect
from sglr_dataplane.output.deltas import Delta
from sglr_dataplane.output.pipeline import Pipeline
from sglr_dataplane.vocab import Vocabulary
from support.tokenizers import real_tokenizer, reference, vocabulary_of

VECTORS = Path(__file__).parent / "vectors"
TOOLS = tuple(json.loads((VECTORS / "tools.json").read_bytes()))
ALL = [v for path in sorted(VECTORS.glob("**/*.jsonl")) for v in load(path, TOOLS)]

PARSERS = {
    "qwen3": ("qwen", "hermes", "qwen3_coder", "qwen3", "trinity", "mimo"),
    "llama3.1": ("llama3",),
    "gptoss": ("gpt-oss",),
    "mistral_tekken": ("mistral",),
    "deepseek_v3": ("deepseekv3", "deepseekv31"),
    "deepseek_r1": ("deepseek-r1", "deepseek-v3"),
    "deepseek_v4": ("deepseekv32", "deepseekv4", "deepseekv41"),
    "glm4": ("glm45", "glm47"),
    "kimi_k2": ("kimi_k2",),
}


@dataclass(frozen=True)
class Model:
    """A real tokenizer, and what its vocabulary says."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    tokens: frozenset[str]

    def deltas(self, vector: Vector, size: int) -> list[Delta]:
        """The deltas of *vector*'s text in chunks of *size* tokens."""
        reader = reader_of(vector)
        pipeline = Pipeline(
            self.vocabulary.decoder(),
            tool_format=reader.tools,
            reasoning_format=reader.reasoning,
            starts=reader.starts,
            tools=reader.signatures,
            hidden=self.vocabulary.special,
            tokens=self.tokens,
            new_call_id=reader.new_call_id,
        )
        ids = self.tokenizer.encode(vector.text, add_special_tokens=False).ids
        deltas: list[Delta] = []
        for at in range(0, len(ids), size):
            deltas += pipeline.feed(Chunk(tuple(ids[at : at + size]), Usage()))
        finish = Finish("length" if vector.finish_reason == "length" else "stop")
        return deltas + pipeline.feed(Chunk((), Usage(), finish=finish))


@pytest.mark.parametrize("name", PARSERS)
def test_a_familys_vectors_are_read_in_its_own_tokens(name: str) -> None:
    """One, three, or all tokens a chunk."""
    directory = real_tokenizer(name)
    vocabulary = vocabulary_of(directory)
    model = Model(reference(directory), vocabulary, frozenset(vocabulary.added.values()))
    vectors = [vector for vector in ALL if vector.parser in PARSERS[name]]

    assert vectors
    for vector in vectors:
        for size in (1, 3, 10**6):
            assert differences(vector, collect(model.deltas(vector, size))) == [], vector.id
