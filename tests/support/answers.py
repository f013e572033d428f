"""Answers that a worker may write, and what they are to one request, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import cast

from hypothesis import strategies as st

from sglr_dataplane.api.answer import Answer
from sglr_dataplane.api.readings import choices_of
from sglr_dataplane.api.schema import ChatRequest, CompletionRequest
from sglr_dataplane.job import Chunk, Extras, Finish, Job, TokenLogprob, Usage
from sglr_dataplane.output.detect import detect
from sglr_dataplane.prompt.sampling import sampling_of
from sglr_dataplane.prompt.template import ChatTemplate
from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.recipe import PromptIds, Recipe
from support.router import DEMO_MODEL

TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
PIECES = [
    "Hello", " world", "\n", "é漢🙂", "<think>", "</think>", CALL, "STOP", "ST", "OP", "a", " ",
    "<tool_call>", "{", '"x"',
]  # fmt: skip
PROMPT = PromptIds("Hi", (1, 2))


@cache
def tokenizer() -> Tokenizer:
    """Return the demo model's tokenizer."""
    return Tokenizer.from_dir(DEMO_MODEL)


@cache
def recipe() -> Recipe:
    """Return what reading an answer needs of the demo model's recipe, and nothing else."""
    vocabulary = tokenizer().vocabulary
    template = ChatTemplate.from_dir(DEMO_MODEL, model="m")
    added = frozenset(vocabulary.added.values())
    chosen = detect(template.text or "", "m", added)
    return cast(
        "Recipe",
        SimpleNamespace(
            model="m",
            vocabulary=vocabulary,
            tool_format=chosen.tool,
            reasoning_format=chosen.reasoning,
            added_tokens=added,
            ends=vocabulary.ids_of(["<|im_end|>"]),
            unknown_tools="forward",
            strips_thoughts=False,
        ),
    )


@dataclass(frozen=True)
class Written:
    """What the worker says, and where it cuts it."""

    ids: tuple[int, ...]
    borders: tuple[int, ...]
    """Where a new chunk begins; positions in *ids*."""
    finish: Finish
    repeats_finish: bool
    """Whether the finish comes in a message of its own, as the real worker's does."""


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Return random tokens: those of likely texts, and any others, ended as engines end them."""
    encode = tokenizer().encode
    size = recipe().vocabulary.size
    parts = draw(
        st.lists(
            st.sampled_from(PIECES).map(encode)
            | st.integers(0, size - 1).map(lambda token_id: (token_id,)),
            max_size=12,
        )
    )
    ends = recipe().ends
    ids = tuple(i for part in parts for i in part if i not in ends) or tuple(encode("x"))
    finish = Finish("length")
    if draw(st.booleans()):
        (eos,) = ends
        ids, finish = (*ids, eos), Finish("stop", eos)
    borders = draw(st.sets(st.integers(1, max(len(ids) - 1, 1))))
    return Written(ids, tuple(sorted(borders)), finish, draw(st.booleans()))


def chunks(said: Written, *, cut: bool, logprobs: bool) -> list[Chunk]:
    """Return *said* as chunks: cut at its borders, or whole."""
    starts = [0, *(at for at in said.borders if at < len(said.ids))] if cut else [0]
    found: list[Chunk] = []
    for start, end in zip(starts, [*starts[1:], len(said.ids)], strict=True):
        ids = said.ids[start:end]
        rows = tuple(TokenLogprob(i, -i / 1000, ((i, -i / 1000),)) for i in ids)
        extras = Extras(logprobs=rows) if logprobs else None
        last = end == len(said.ids) and not (cut and said.repeats_finish)
        usage = Usage(prompt_tokens=2, completion_tokens=end)
        found.append(Chunk(ids, usage, 0, said.finish if last else None, extras))
    if cut and said.repeats_finish:
        usage = Usage(prompt_tokens=2, completion_tokens=len(said.ids))
        found.append(Chunk((), usage, 0, said.finish, Extras() if logprobs else None))
    return found


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "stop": st.sampled_from([["STOP"], ["O"], ["OP", "STOP"], ["é漢"], ["</think>"], ["\n"]]),
        "tools": st.just([TOOL]),
        "logprobs": st.just(True),
        "top_logprobs": st.just(1),
        "no_stop_trim": st.booleans(),
        "separate_reasoning": st.booleans(),
        "stream_reasoning": st.booleans(),
        "include_reasoning": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "ignore_eos": st.booleans(),
        "stop_token_ids": st.just([1]),
        "min_tokens": st.integers(0, 8),
    },
)


def answer(
    asked: ChatRequest | CompletionRequest, items: Sequence[Chunk] | AsyncIterator[Chunk]
) -> Answer:
    """Return the answer that *items* are to *asked*."""
    sampling = sampling_of(asked.sampling, vocab_size=recipe().vocabulary.size)
    job = Job("0" * 32, "m", PROMPT.ids, sampling, asked.stream, logprobs=asked.logprobs)
    source = items if isinstance(items, AsyncIterator) else _each(items)
    return Answer(source, choices_of(asked, recipe(), [PROMPT], [job]))


async def _each(items: Sequence[Chunk]) -> AsyncIterator[Chunk]:
    for item in items:
        yield item
