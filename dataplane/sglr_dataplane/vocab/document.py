"""Reads a tokenizer.json: the tokens by id, and how they become text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

FILE = "tokenizer.json"
MAX_IDS = 4_000_000
"""Bounds the tables that are made from a file: ten times the largest vocabulary there is."""


class TokenizerLoadError(Exception):
    """A tokenizer's files are missing, damaged, or of a kind that is not supported.

    ``str(error)`` is one sentence without a path: it may be shown where the path is known.
    """


class AddedToken(msgspec.Struct, frozen=True):
    """An entry of ``added_tokens``: text that is always one token, whatever is around it."""

    id: int
    content: str
    special: bool = False
    """True when the model's own ``decode(skip_special_tokens=True)`` leaves it out."""


class Model(msgspec.Struct, frozen=True):
    """The part of ``model`` that decoding needs."""

    type: str = "BPE"  # files older than the field hold nothing but BPE
    vocab: dict[str, int] | list[tuple[str, float]] = {}


class Decoder(msgspec.Struct, frozen=True):
    """A step of the decoder, with the settings of the kinds that are supported."""

    type: str
    decoders: list[Decoder] = []
    pattern: dict[str, str] = {}
    content: str = ""
    start: int = 0
    stop: int = 0
    prefix: str = "##"
    cleanup: bool = True
    replacement: str = "▁"
    prepend_scheme: str = "always"


class _File(msgspec.Struct, frozen=True):
    model: Model
    added_tokens: list[AddedToken] = []
    decoder: Decoder | None = None


@dataclass(frozen=True)
class TokenizerDocument:
    """What a tokenizer.json says, reduced to what decoding needs."""

    digest: str
    """SHA-256 of the file, in hexadecimal."""
    vocab: Mapping[str, int]
    added: Mapping[int, AddedToken]
    """By the id that loading the file gives them, see :func:`added_by_id`."""
    decoders: tuple[Decoder, ...]
    """The decoder, its sequences flattened; ``()`` when the file names none."""

    @classmethod
    def parse(cls, source: bytes) -> TokenizerDocument:
        """Return the document in *source*, the content of a tokenizer.json.

        Raises:
            TokenizerLoadError: It is not JSON, or not a tokenizer with a vocabulary.
        """
        try:
            file = msgspec.json.decode(source, type=_File)
        except msgspec.ValidationError as error:
            raise TokenizerLoadError(
                f"{FILE} is no tokenizer that can be read: {error}."
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TokenizerLoadError(f"{FILE} is not JSON: {error}.") from error
        vocab = _ids(file.model)
        return cls(
            digest=digest_of(source),
            vocab=vocab,
            added=added_by_id(vocab, file.added_tokens),
            decoders=tuple(_flattened(file.decoder)),
        )


def digest_of(source: bytes) -> str:
    """Return the digest by which the tokenizer in *source* is known."""
    return hashlib.sha256(source).hexdigest()


def added_by_id(vocab: Mapping[str, int], tokens: Sequence[AddedToken]) -> dict[int, AddedToken]:
    """Return *tokens* by the ids they really have.

    tokenizers 0.23.3 (AddedVocabulary::add_tokens) does not believe the file: a token the model
    has keeps the model's id, any other gets the next free one. They differ where a file's ids have
    gaps, and the engine, which loads the same file with the same library, counts as it does.
    """
    known = dict[str, int]()
    by_id: dict[int, AddedToken] = {}
    highest = -1
    for token in tokens:
        if not token.content:
            continue
        token_id = known.get(token.content, vocab.get(token.content))
        if token_id is None:
            token_id = max(highest + 1, len(vocab))
        known[token.content] = token_id
        by_id[token_id] = token
        highest = max(highest, token_id)
    return by_id


def _ids(model: Model) -> Mapping[str, int]:
    if model.type not in ("BPE", "WordLevel", "Unigram", "WordPiece"):
        raise TokenizerLoadError(
            f"The tokenizer's model type {model.type!r} is not supported: expected 'BPE', "
            "'Unigram', 'WordPiece' or 'WordLevel'."
        )
    if isinstance(model.vocab, list):
        vocab: Mapping[str, int] = {text: index for index, (text, _) in enumerate(model.vocab)}
    else:
        vocab = model.vocab
    if not vocab or min(vocab.values()) < 0 or max(vocab.values()) >= MAX_IDS:
        raise TokenizerLoadError(
            f"{FILE} has no vocabulary: expected tokens with ids from 0 to below {MAX_IDS}."
        )
    return vocab


def _flattened(decoder: Decoder | None) -> Iterator[Decoder]:
    if decoder is None:
        return
    if decoder.type != "Sequence":
        yield decoder
    for step in decoder.decoders:
        yield from _flattened(step)
