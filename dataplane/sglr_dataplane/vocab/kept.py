"""A vocabulary's tables on disk: read in a twentieth of the time that making them takes.

A file holds a checksum and then the tables. Its name has the tokenizer's digest and that of the code
that made them: neither another tokenizer nor another release finds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from sglr_dataplane.vocab import decoder, document, spelling, vocabulary
from sglr_dataplane.vocab.decoder import DecodingTable
from sglr_dataplane.vocab.document import TokenizerDocument, digest_of
from sglr_dataplane.vocab.vocabulary import Vocabulary

_MAKERS: Final = (decoder, document, spelling, vocabulary)
_CHECKSUM: Final = 32
"""Bytes of a SHA-256."""


class _Tables(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    digest: str
    added: dict[int, str]
    special: frozenset[int]
    control: frozenset[int]
    tokens: tuple[bytes, ...]
    atomic: dict[int, str]
    errors: str
    strip: int
    first: dict[int, bytes]


def vocabulary_of(source: bytes, folder: Path | None) -> Vocabulary:
    """Return the vocabulary of *source*, a tokenizer.json; from *folder*, where it is kept there.

    What is made is kept for the next time. A folder that cannot be written, or holds something
    damaged, costs time and nothing else. None keeps nothing.

    Raises:
        TokenizerLoadError: *source* is no tokenizer, or decodes in a way not supported here.
    """
    if folder is None:
        return Vocabulary.from_document(TokenizerDocument.parse(source))
    digest = digest_of(source)
    place = folder / f"vocabulary-{digest[:32]}-{_makers()}"
    kept = _read(place, digest)
    if kept is not None:
        return kept
    made = Vocabulary.from_document(TokenizerDocument.parse(source))
    with contextlib.suppress(OSError):
        _write(place, made)
    return made


def _read(place: Path, digest: str) -> Vocabulary | None:
    try:
        content = place.read_bytes()
        if hashlib.sha256(content[_CHECKSUM:]).digest() != content[:_CHECKSUM]:
            return None
        tables = msgspec.msgpack.decode(content[_CHECKSUM:], type=_Tables)
    except (OSError, msgspec.DecodeError):
        return None
    if tables.digest != digest:
        return None
    return Vocabulary(
        digest=digest,
        added=MappingProxyType(tables.added),
        special=tables.special,
        control=tables.control,
        table=DecodingTable(
            tokens=tables.tokens,
            atomic=MappingProxyType(tables.atomic),
            errors=tables.errors,
            strip=tables.strip,
            first=MappingProxyType(tables.first),
        ),
    )


def _write(place: Path, made: Vocabulary) -> None:
    """Write *made* in one step, so that a process starting beside this one reads all or nothing."""
    table = made.table
    tables = _Tables(
        digest=made.digest,
        added=dict(made.added),
        special=made.special,
        control=made.control,
        tokens=table.tokens,
        atomic=dict(table.atomic),
        errors=table.errors,
        strip=table.strip,
        first=dict(table.first),
    )
    content = msgspec.msgpack.encode(tables)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(hashlib.sha256(content).digest() + content)
    unfinished.replace(place)


@cache
def _makers() -> str:
    """Return the digest of the code that makes tables."""
    digest = hashlib.sha256()
    for module in _MAKERS:
        assert module.__file__ is not None  # noqa: S101  # a package of files
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()[:16]
