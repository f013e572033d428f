"""The hot messages of ``sglang.grpc.scheduler``, written and read by hand.

Reading one token through the stubs costs as much as all else that the transport does for it.
Whatever is not plain here is left to them: :meth:`ChunkReader.read` returns None, and nothing is
guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from sglr_dataplane.engine.fields import CONTINUES, read_fields, read_numbers
from sglr_dataplane.engine.messages import generate_request, sampling_params
from sglr_dataplane.job import Job, Sampling, Usage, words_of

# GenerateRequest's fields, and TokenizedInput's one, as tags: number << 3 | wire type.
_REQUEST_ID: Final = b"\x0a"
_TOKENIZED: Final = b"\x12"
_INPUT_IDS: Final = b"\x12"
_SAMPLING_PARAMS: Final = b"\x22"
# The wire's default, 0, makes the engine compute the whole prompt's log probabilities and bypass
# its prefix cache: logprob_start_len is -1, as a 64-bit varint. log_metrics is true.
_CONSTANTS: Final = b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x68\x01"
_LORA_ID: Final = b"\x7a"
_STREAM: Final = b"\x88\x01\x01"
_REQUIRE_REASONING: Final = b"\x90\x01\x01"


def write_job(job: Job) -> bytes:
    """Return *job* as the ``GenerateRequest`` that the stubs would write.

    The ids are written in four bytes each, which every reader of protobuf takes and which can be
    made without a loop; so the bytes differ from the stubs', and the message they say does not.
    """
    ids = job.packed_ids or pack_ids(job.input_ids)
    tokenized = _INPUT_IDS + pack_varint(len(ids)) + ids
    sampling = _sampling(job.sampling)
    name = job.id.encode()
    return b"".join(
        (
            _REQUEST_ID,
            pack_varint(len(name)),
            name,
            _TOKENIZED,
            pack_varint(len(tokenized)),
            tokenized,
            _SAMPLING_PARAMS,
            pack_varint(len(sampling)),
            sampling,
            _CONSTANTS if job.logprobs is None else _wishes(job),
            _adapter(job.lora_id) if job.lora_id else b"",
            _STREAM if job.stream else b"",
            _REQUIRE_REASONING if job.require_reasoning else b"",
        )
    )


def _sampling(sampling: Sampling) -> bytes:
    """Return *sampling* as its message; what may be long is written anew each time."""
    if sampling.logit_bias or sampling.constraint is not None or sampling.stop:
        return sampling_params(sampling).SerializeToString()
    return _usual_sampling(sampling)


@lru_cache(256)
def _usual_sampling(sampling: Sampling) -> bytes:
    """Return *sampling* as its message: clients of a model mostly ask for the same.

    -0.0 and 0.0 are the same here, as they are to an engine: the one that came first is sent.
    """
    return sampling_params(sampling).SerializeToString()


def _adapter(lora_id: str) -> bytes:
    """Return the field that names the adapter."""
    name = lora_id.encode()
    return _LORA_ID + pack_varint(len(name)) + name


def _wishes(job: Job) -> bytes:
    """Return what stands in the place of the constants for a job that asks for more."""
    request = generate_request(Job("", "", (), stream=False, logprobs=job.logprobs))
    request.ClearField("tokenized")
    request.ClearField("sampling_params")
    return request.SerializeToString()


@lru_cache(1024)
def pack_varint(value: int) -> bytes:
    """Return *value*, not negative, as the shortest varint."""
    out = bytearray()
    while value >= CONTINUES:
        out.append(value & 0x7F | CONTINUES)
        value >>= 7
    out.append(value)
    return bytes(out)


# A token id's four bytes are made from its little-endian word, for all ids at once: a prompt's words
# are one large number. Its bits go up in two steps, by sums: the upper half of 28 bits by two, then
# the upper half of each 14 by one; so each seven of them have a byte, whose eighth bit is set last.
_AT_ONCE: Final = 8_192
"""Ids packed in one go: an eighth of a millisecond, in which no other thread has its turn."""
_UPPER_14: Final = int.from_bytes((0x3FFF << 14).to_bytes(4, "little") * _AT_ONCE, "little")
_UPPER_7: Final = int.from_bytes((0x7F << 7).to_bytes(2, "little") * 2 * _AT_ONCE, "little")
_GOES_ON: Final = int.from_bytes(b"\x80\x80\x80\0" * _AT_ONCE, "little")
_TOO_WIDE: Final = int.from_bytes(b"\0\0\0\xf0" * _AT_ONCE, "little")


def pack_ids(ids: Sequence[int]) -> bytes:
    """Return *ids*, each in ``range(2**32)``, as the content of a packed field.

    Raises:
        ValueError: An id is out of range.
    """
    size = len(ids)
    if size > _AT_ONCE:
        slices = (ids[start : start + _AT_ONCE] for start in range(0, size, _AT_ONCE))
        return b"".join(map(pack_ids, slices))
    try:
        words = int.from_bytes(words_of(ids), "little")
    except OverflowError as error:
        raise ValueError("A token id is not in range(2**32).") from error
    if words & _TOO_WIDE:
        return b"".join(map(pack_varint, ids))
    words += 3 * (words & _UPPER_14)
    words += words & _UPPER_7
    return (words | _GOES_ON >> 32 * (_AT_ONCE - size)).to_bytes(4 * size, "little")


# A varint of 1, 2 or 3 bytes, read as a little-endian word: the bits that say whether another byte
# follows, and what they must be. No other width passes.
BITS: Final = (0, 0x80, 0x8080, 0x808080)
RIGHT: Final = (1, 0, 0x80, 0x8080)
_WORD: Final = int.from_bytes


def number_of(word: int) -> int:
    """Return what the varint says whose bytes, at most three, are the little-endian *word*."""
    return word & 0x7F | word >> 1 & 0x3F80 | word >> 2 & 0x1FC000


class ChunkReader:
    """Reads the chunks of one job that hold one token and counters; they are nearly all.

    The bytes around the token and the counter of tokens are the same from chunk to chunk. They are
    read field by field once, and from then on only compared: with them equal and both varints
    whole, a message cannot say anything else.
    """

    __slots__ = (
        "_cached",
        "_end_lead",
        "_prompt",
        "_reasoning",
        "_token_at",
        "after",
        "before",
        "index",
        "lead",
    )

    def __init__(self, job_id: str) -> None:
        """Read answers to the job *job_id* only."""
        name = job_id.encode()
        name = _REQUEST_ID + pack_varint(len(name)) + name
        self.lead = name + _CHUNK
        """What a message begins with, up to the chunk's tag."""
        self._end_lead = name + _COMPLETE
        self._token_at = len(self.lead) + 3
        """Where a token's varint starts: after the chunk's length, the tag and its own length."""
        self.before = self.after = b""
        """What stood before and after the counter of tokens in the chunk learnt last; empty before
        there was one."""
        self.index = 0
        """The choice of that chunk."""
        self._prompt = self._cached = self._reasoning = 0

    def read(self, message: bytes) -> tuple[tuple[int, ...], Usage, int] | None:
        """Return the id, the counters and the choice of a serialised ``GenerateResponse``.

        Returns:
            None for whatever the stubs must read: several tokens, log probabilities, unknown
            fields, the other arm, another job's id, or bytes that are no message.
        """
        start = self._token_at
        size = len(message)
        if size <= start or not message.startswith(self.lead):
            return None
        width = message[start - 1]
        stop = start + width
        counter_at = stop + len(self.before)
        counter_width = size - len(self.after) - counter_at
        if not (
            0 < width <= _WIDEST
            and 0 < counter_width <= _WIDEST
            and message[start - 3] == size - start + 2
            and message[start - 2] == _TOKEN_IDS
            and message.startswith(self.before, stop)
            and message.endswith(self.after)
        ):
            return self._learn(message)
        word = _WORD(message[start:stop], "little")
        count = _WORD(message[counter_at : counter_at + counter_width], "little")
        if (
            not self.before
            or word & BITS[width] != RIGHT[width]
            or count & BITS[counter_width] != RIGHT[counter_width]
        ):
            return self._learn(message)
        usage = Usage(self._prompt, number_of(count), self._cached, self._reasoning)
        return (number_of(word),), usage, self.index

    def usage(self, completed: int) -> Usage:
        """Return the counters at *completed* tokens, the others as in the chunk learnt last."""
        return Usage(self._prompt, completed, self._cached, self._reasoning)

    def _learn(self, message: bytes) -> tuple[tuple[int, ...], Usage, int] | None:
        """Return what *message* says if it is plain, and remember its shape."""
        chunk_at = self._token_at - 2
        if message[chunk_at - 1] != len(message) - chunk_at:
            return None
        fields = read_fields(message, chunk_at, _CHUNK_NUMBERS, _CHUNK_TEXTS)
        if fields is None:
            return None
        numbers, texts = fields
        token, count, prompt = (
            texts.get(_TOKEN_IDS, b""),
            numbers.get(0x18, 0),
            numbers.get(0x10, 0),
        )
        counter = pack_varint(count)
        if not (0 < len(token) <= _WIDEST and count and len(counter) <= _WIDEST):
            return None
        word = _WORD(token, "little")
        before = b"\x10%b\x18" % pack_varint(prompt) if _PROMPT in numbers else b"\x18"
        after_at = self._token_at + len(token) + len(before) + len(counter)
        if word & BITS[len(token)] != RIGHT[len(token)] or not message.startswith(
            before + counter, self._token_at + len(token)
        ):
            return None
        self.before, self.after = before, message[after_at:]
        self.index, self._prompt = numbers.get(0x40, 0), prompt
        self._cached, self._reasoning = numbers.get(0x20, 0), numbers.get(0x48, 0)
        usage = Usage(prompt, count, self._cached, self._reasoning)
        return (number_of(word),), usage, self.index

    def read_end(self, message: bytes) -> End | None:
        """Return what the last message of a choice says; None if the stubs must read it."""
        if not message.startswith(self._end_lead):
            return None
        at = len(self._end_lead) + 1
        size = len(message) - at
        if not 0 <= size < CONTINUES or message[at - 1] != size:
            return None
        fields = read_fields(message, at, _END_NUMBERS, _END_TEXTS)
        if fields is None:
            return None
        numbers, texts = fields
        ids = read_numbers(texts.get(_TOKEN_IDS, b""))
        matched: int | str | None = numbers.get(0x40)
        if ids is None or (matched is not None and _MATCHED_TEXT in texts):
            return None
        try:
            reason = texts.get(0x12, b"").decode()
            if _MATCHED_TEXT in texts:
                matched = texts[_MATCHED_TEXT].decode()
        except UnicodeDecodeError:
            return None
        get = numbers.get
        usage = Usage(get(0x18, 0), get(0x20, 0), get(0x28, 0), get(0x60, 0))
        return End(ids, usage, get(0x58, 0), reason, matched)


class End(msgspec.Struct, frozen=True, gc=False):
    """What ``GenerateComplete`` says of a choice without log probabilities."""

    output_ids: tuple[int, ...]
    usage: Usage
    choice: int
    reason: str
    matched: int | str | None


_CHUNK: Final = b"\x12"
_COMPLETE: Final = b"\x1a"
_TOKEN_IDS: Final = 0x0A
_WIDEST: Final = 3
"""Bytes of the widest varint that is read by hand: 21 bits."""
_PROMPT: Final = 0x10
_COMPLETED: Final = 0x18
_MATCHED_TEXT: Final = 0x4A
# By tag, of GenerateStreamChunk: prompt_tokens, completion_tokens, cached_tokens, index and
# reasoning_tokens; token_ids.
_CHUNK_NUMBERS: Final = frozenset({_PROMPT, _COMPLETED, 0x20, 0x40, 0x48})
_CHUNK_TEXTS: Final = frozenset({_TOKEN_IDS})
# Of GenerateComplete: prompt_tokens, completion_tokens, cached_tokens, matched_token_id, index,
# reasoning_tokens, and two that are not told on; output_ids, finish_reason, matched_stop_str.
_END_NUMBERS: Final = frozenset({0x18, 0x20, 0x28, 0x40, 0x58, 0x60, 0x68, 0x70})
_END_TEXTS: Final = frozenset({_TOKEN_IDS, 0x12, _MATCHED_TEXT})
