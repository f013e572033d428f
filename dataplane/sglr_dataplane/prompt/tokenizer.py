"""Text to token ids, exactly as the model's own tokenizer gives them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from sglr_dataplane.errors import ContextLengthExceededError, InvalidRequestError
from sglr_dataplane.prompt.encoder import Encoder, FastEncoder, ReferenceEncoder
from sglr_dataplane.prompt.literals import LiteralSearch
from sglr_dataplane.prompt.memory import give_back
from sglr_dataplane.prompt.verdict import verdict_on
from sglr_dataplane.vocab import TokenizerLoadError, Vocabulary
from sglr_dataplane.vocab.document import FILE, digest_of
from sglr_dataplane.vocab.kept import vocabulary_of
from sglr_dataplane.vocab.sources import tokenizer_json

MAX_CHARACTERS = 8_000_000
"""More than any model's context holds, and about a second's work for the slower encoder's thread."""

Segment = tuple[str, bool]
"""A part of a prompt, and whether control tokens in it are meant as such."""

Fits = Callable[[int], None]
"""Raises where so many tokens are too many; asked before their ids are made."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """The tokenizer of one model: immutable, safe to call from several threads.

    Calls are pure CPU work and release the interpreter lock; texts of more than
    ``encode_in_thread_above`` bytes belong in a thread.
    """

    vocabulary: Vocabulary
    special_tokens: Mapping[str, str]
    """What templates may name: ``{"bos_token": "<s>", "eos_token": "</s>", …}``."""
    encoder_reason: str
    """Why this encoder was chosen, in one clause."""
    max_characters: int
    controls: LiteralSearch
    """Finds control tokens in a text."""
    _encoder: Encoder

    @classmethod
    def from_dir(
        cls,
        path: Path | str,
        *,
        verdicts: Path | None = None,
        max_characters: int = MAX_CHARACTERS,
    ) -> Tokenizer:
        """Return the tokenizer in the directory *path*; takes up to seconds, so not in a request.

        Args:
            path: Holds the vocabulary, as ``vocab.sources`` reads it, and tokenizer_config.json or
                special_tokens_map.json.
            verdicts: Where comparisons of the fast encoder with the reference, and the
                vocabulary's tables, are kept; None: nothing is compared and the reference encodes.
            max_characters: Longer texts are refused before they are encoded.

        Raises:
            TokenizerLoadError: A file is missing, damaged or of an unsupported kind.
        """
        directory = Path(path)
        source = tokenizer_json(directory)
        # The encoder's library loads without the interpreter lock: both at once on two cores.
        with ThreadPoolExecutor(1, thread_name_prefix="encoder") as beside:
            choosing = beside.submit(_chosen, source, digest_of(source), verdicts)
            vocabulary = vocabulary_of(source, verdicts)
            encoder, reason = choosing.result()
        del source
        give_back()
        return cls(
            vocabulary=vocabulary,
            special_tokens=MappingProxyType(_special_tokens(directory)),
            encoder_reason=reason,
            max_characters=max_characters,
            controls=LiteralSearch(vocabulary.added[i] for i in vocabulary.control),
            _encoder=encoder,
        )

    def __repr__(self) -> str:
        """Name the vocabulary and the encoder."""
        return f"Tokenizer({self.vocabulary!r}, encoder={self.encoder_name!r})"

    def warm(self) -> None:
        """Have the calling thread's first text behind it: tens of milliseconds, once.

        The fast encoder makes each thread a table of 40 MB at its first text, and 8 MB of scraps
        with it.
        """
        self._encoder.encode_plain("warm")
        give_back()

    @property
    def encoder_name(self) -> str:
        """Name of the library that encodes: ``fastokens`` or ``tokenizers``."""
        return self._encoder.name

    @cached_property
    def encode_in_thread_above(self) -> int:
        """Length in bytes from which encoding may hold its caller for too long."""
        return self._encoder.thread_above

    @property
    def bos(self) -> str | None:
        """Text of the token that begins a prompt; None when the model has none."""
        return self.special_tokens.get("bos_token")

    @property
    def eos(self) -> str | None:
        """Text of the token that ends an answer; None when the files name none."""
        return self.special_tokens.get("eos_token")

    @property
    def pad(self) -> str | None:
        """Text of the padding token; None when the files name none."""
        return self.special_tokens.get("pad_token")

    def encode(self, text: str, fits: Fits | None = None) -> array[int]:
        """Return the token ids of *text*, without special tokens around it.

        Args:
            text: A rendered prompt, which writes its own BOS; may be empty.
            fits: Asked whether so many ids are wanted; what it raises is raised.

        Returns:
            One id per token, each in ``range(vocabulary.size)``; empty for ``""``.

        Raises:
            ContextLengthExceededError: It has more than ``max_characters`` characters.
            InvalidRequestError: It holds a lone surrogate, which no UTF-8 has.
        """
        self._check_length(text)
        ids = self._guarded(self._encoder.encode, text)
        if fits is not None:
            fits(len(ids))
        return ids

    def encode_completion(self, text: str, fits: Fits | None = None) -> array[int]:
        """Return the token ids of *text* as a prompt of its own: with one BOS if the model has one.

        Raises:
            ContextLengthExceededError, InvalidRequestError: As ``encode``.
        """
        self._check_length(text)
        ids = self._guarded(lambda text: self._encoder.encode(text, add_special_tokens=True), text)
        bos = self.vocabulary.id_of(self.bos) if self.bos is not None else None
        # A prompt that writes its BOS itself would get a second one.
        if bos is not None and ids[:2] == array("I", (bos, bos)):
            ids = ids[1:]
        return _made([ids], fits)

    def encode_segments(self, segments: Sequence[Segment], fits: Fits | None = None) -> array[int]:
        """Return the token ids of the joined *segments*; control tokens count only where allowed.

        Without a control token in a segment that does not allow them, this is
        ``encode`` of the joined text. Otherwise the text between the allowed control tokens around
        it is encoded with no added token recognised, so that it stays text for the model.

        Args:
            segments: Texts in order, each with whether control tokens in it are meant as such.
            fits: As ``encode``'s.

        Raises:
            ContextLengthExceededError, InvalidRequestError: As ``encode``.
        """
        text = "".join(part for part, _ in segments)
        self._check_length(text)
        return self._apart(text, list(self._allowed_controls(segments)), fits)

    def _apart(
        self, text: str, allowed: Sequence[tuple[int, int]], fits: Fits | None
    ) -> array[int]:
        """Return the ids of *text*, in which the *allowed* control tokens count and no others."""
        if allowed == list(self.controls.spans(text)):
            return _made([self._guarded(self._encoder.encode, text)], fits)
        ids: list[array[int]] = []
        marked_from = section_from = 0
        for start, end in (*allowed, (len(text), len(text))):
            section = text[section_from:start]
            if any(self.controls.spans(section)):
                ids.append(self._guarded(self._encoder.encode, text[marked_from:section_from]))
                plain = partial(self._encoder.encode_plain, at_start=section_from == 0)
                ids.append(self._guarded(plain, section))
                marked_from = start
            section_from = end
        ids.append(self._guarded(self._encoder.encode, text[marked_from:]))
        return _made(ids, fits)

    def encode_typed(self, text: str, typed: Sequence[int], fits: Fits | None = None) -> array[int]:
        """Return the token ids of *text*; control tokens that begin where somebody typed are text.

        Args:
            text: A rendered prompt.
            typed: Offsets of letters, rising.
            fits: As ``encode``'s.

        Raises:
            ContextLengthExceededError, InvalidRequestError: As ``encode``.
        """
        if not typed:
            return self.encode(text, fits)
        self._check_length(text)
        disallowed: list[int] = []
        for start, end in self.controls.spans(text):
            at = bisect_left(typed, start)
            if at < len(typed) and typed[at] == start:
                disallowed += typed[at : bisect_left(typed, end)]
        if not disallowed:
            return self.encode(text, fits)
        starts = (0, *(offset + 1 for offset in disallowed))
        pieces = map(text.__getitem__, map(slice, starts, (*disallowed, len(text))))
        # With a letter of no control token in the place of each that is text, none goes across one.
        allowed = self.controls.spans(self.controls.stranger.join(pieces))
        return self._apart(text, list(allowed), fits)

    def _allowed_controls(self, segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
        """Yield where control tokens stand that begin and end in segments that allow them."""
        offset = 0
        stretch = ""
        for part, allows in (*segments, ("", False)):
            if allows:
                stretch += part
                continue
            yield from ((offset + a, offset + b) for a, b in self.controls.spans(stretch))
            offset += len(stretch) + len(part)
            stretch = ""

    def _check_length(self, text: str) -> None:
        if len(text) > self.max_characters:
            raise ContextLengthExceededError(
                f"The prompt has {len(text)} characters; at most {self.max_characters} are read."
            )

    def _guarded(self, encode: Callable[[str], array[int]], text: str) -> array[int]:
        if not text:
            return array("I")
        try:
            return encode(text)
        except (TypeError, UnicodeEncodeError):
            # What the two libraries raise for text that is not Unicode; else it is a fault of ours.
            _refuse_lone_surrogates(text)
            raise


def _made(parts: Sequence[array[int]], fits: Fits | None) -> array[int]:
    """Return the ids of *parts* one after the other, if *fits* has nothing against their number."""
    if fits is not None:
        fits(sum(map(len, parts)))
    ids = parts[0]
    for part in parts[1:]:
        ids += part
    return ids


def _refuse_lone_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"The text holds the lone surrogate {text[error.start]!r}; expected valid Unicode."
        ) from None


def _chosen(source: bytes, digest: str, verdicts: Path | None) -> tuple[Encoder, str]:
    """Return the encoder for *source* and why it was chosen."""
    reason = "no directory for comparisons with fastokens was given"
    try:
        if verdicts is not None:
            verdict = verdict_on(source, digest, verdicts)
            reason = verdict.reason
            if verdict.admitted:
                return FastEncoder(source), reason
        return ReferenceEncoder(source), reason
    except ValueError as error:
        raise TokenizerLoadError(f"{FILE} is refused by its library: {error}.") from error


def _special_tokens(directory: Path) -> dict[str, str]:
    """Return the named tokens of the directory's settings; tokenizer_config.json has precedence."""
    named: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        for key, value in _settings(directory / name).items():
            if key.endswith("_token"):
                match value:
                    # An AddedToken is written as an object, or as plain text.
                    case {"content": str(text)} | str(text):
                        named[key] = text
                    case _:
                        continue
    return named


def _settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in *path*; ``{}`` when there is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TokenizerLoadError(f"{path.name} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TokenizerLoadError(f"{path.name} is not a JSON object: {error}.") from error
