"""The two libraries that cut text into tokens, behind one protocol."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tokenizers


class Encoder(Protocol):
    """Cuts text into tokens. Safe to call from several threads; releases the interpreter lock.

    Ids come as an array of unsigned integers of 32 bits.
    """

    name: str
    thread_above: int
    """Bytes from which a call may hold the event loop for too long, and so belongs in a thread."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> array[int]:
        """Return the ids of *text*, in which added tokens are recognised.

        With *add_special_tokens* the tokenizer's post-processor puts its BOS (and the like) around
        them.
        """
        ...

    def encode_plain(self, text: str, *, at_start: bool = True) -> array[int]:
        """Return the ids of *text*, in which no added token is recognised.

        Where a prompt's very beginning gets a space of its own, *text* has it only *at_start*.
        """
        ...


def without_first_space(source: bytes) -> bytes | None:
    """Return *source*, a tokenizer.json, for text that is not a prompt's beginning.

    None: there is no difference, as in all but SentencePiece's newer files.
    """
    document: Any = msgspec.json.decode(source)
    found = [
        each
        for each in _steps(document.get("pre_tokenizer"))
        if each.get("type") == "Metaspace" and each.get("prepend_scheme") == "first"
    ]
    for each in found:
        each["prepend_scheme"] = "never"
    return msgspec.json.encode(document) if found else None


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """Yield *step*, or what it is a sequence of."""
    if step:
        yield step
        for each in step.get("pretokenizers") or ():
            yield from _steps(each)


class ReferenceEncoder:
    """The ``tokenizers`` library, as the engines use it."""

    name = "tokenizers"
    thread_above = 1_000  # 0.25 to 0.9 million tokens a second

    def __init__(self, source: bytes) -> None:
        """Load *source*, the content of a tokenizer.json.

        Raises:
            ValueError: It is none.
        """
        # Here, because where the other encoder is admitted nobody needs its 15 MB.
        from tokenizers import Tokenizer as HuggingFaceTokenizer

        try:
            self._marked = HuggingFaceTokenizer.from_str(source.decode())
        except Exception as error:  # the library raises no narrower class
            raise ValueError(str(error)) from error
        # Embedding models come with a length to cut or fill to; here the router decides.
        self._marked.no_truncation()
        self._marked.no_padding()
        self._plain = self._inner = _unmarked(self._marked)
        inner = without_first_space(source)
        if inner is not None:
            self._inner = _unmarked(HuggingFaceTokenizer.from_str(inner.decode()))

    def encode(self, text: str, *, add_special_tokens: bool = False) -> array[int]:
        """Return the ids of *text*, in which added tokens are recognised."""
        # Unlike encode(), encode_batch_fast() releases the interpreter lock (tokenizers 0.23.3).
        batch = self._marked.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return _packed(batch[0].ids)

    def encode_plain(self, text: str, *, at_start: bool = True) -> array[int]:
        """Return the ids of *text*, in which no added token is recognised."""
        plain = self._plain if at_start else self._inner
        return _packed(plain.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def _unmarked(marked: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return *marked* without its added tokens; the model, by far the largest part, is shared."""
    plain = type(marked)(marked.model)
    if marked.normalizer is not None:
        plain.normalizer = marked.normalizer
    if marked.pre_tokenizer is not None:
        plain.pre_tokenizer = marked.pre_tokenizer
    return plain


_SLICE: Final = 65_536
"""Ids packed in one go: below a millisecond, after which other threads have their turn."""


def _packed(ids: list[int]) -> array[int]:
    packed = array("I")
    for start in range(0, len(ids), _SLICE):
        packed.extend(ids[start : start + _SLICE])
    return packed


class FastEncoder:
    """The ``fastokens`` library: 10 to 50 times faster, admitted where it was seen to be equal."""

    name = "fastokens"
    # 12 to 70 million tokens a second. What costs most is a run of letters without a space, of which a
    # byte takes a tenth of a microsecond: up to here no text holds the event loop for much more than
    # two milliseconds, and to go to a thread and back takes a tenth of one.
    thread_above = 24_000

    def __init__(self, source: bytes) -> None:
        """Load *source*, the content of a tokenizer.json.

        Raises:
            ValueError: It is none that this library supports.
            ImportError: The library is not installed.
        """
        # Optional: it has no wheels for some platforms.
        import fastokens  # type: ignore[import-untyped]  # it ships stubs, but no py.typed

        self._tokenizer = fastokens.Tokenizer.from_json_str(source.decode())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, add_special_tokens: bool = False) -> array[int]:
        """Return the ids of *text*, in which added tokens are recognised."""
        packed, _ = self._tokenizer.encode_batch_flat([text], add_special_tokens)
        return array("I", packed)

    def encode_plain(self, text: str, *, at_start: bool = True) -> array[int]:
        """Return the ids of *text*, in which no added token is recognised."""
        del at_start  # the library refuses the tokenizers in which that makes a difference
        # Not encode_segments(), which keeps the interpreter lock (fastokens 0.3.5).
        return _packed(self._tokenizer.encode_ordinary(text).ids)
