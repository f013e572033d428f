"""How vocabularies spell text: by the family of the decoder that undoes it."""

from __future__ import annotations

import string
from collections.abc import Sequence
from types import MappingProxyType
from typing import Protocol

from sglr_dataplane.vocab.decoder import EACH_BYTE, DecodingTable
from sglr_dataplane.vocab.document import Decoder, TokenizerDocument, TokenizerLoadError
from sglr_dataplane.vocab.words import Signs, Words


class Spelling(Protocol):
    """Turns a token as the file spells it into what it adds to a text."""

    errors: str
    """The codec error handler that replaces broken bytes as this family's decoder does."""
    strip: int
    """How many spaces are taken from the very start of a text."""

    def bytes_of(self, token: str) -> bytes:
        """Return the bytes *token* stands for, behind another one."""
        ...

    def first(self, token: str) -> bytes:
        """Return the bytes *token* stands for at the very start of a text, but for *strip*."""
        ...

    def is_atomic(self, token: str) -> bool:
        """Return whether *token*, when added, is text of its own and no piece of a character."""
        ...


class ByteLevel:
    """GPT-2's spelling: each character is a byte, and every byte has a printable one."""

    # Rust's String::from_utf8_lossy: one U+FFFD for each maximal broken piece, as Python does.
    errors = "replace"
    strip = 0

    def __init__(self) -> None:
        """Prepare the table from characters to bytes."""
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = sorted(set(range(0x100)).difference(printable))
        # Characters that spell no byte go beyond Latin-1, so that encoding a token with one fails.
        self._bytes = dict.fromkeys(range(0x100), 0xFFFF)
        self._bytes |= {byte: byte for byte in printable}
        self._bytes |= {0x100 + index: byte for index, byte in enumerate(others)}

    def bytes_of(self, token: str) -> bytes:
        """Return the bytes *token* spells; its own UTF-8 when a character of it spells none."""
        try:
            return token.translate(self._bytes).encode("latin-1")
        except UnicodeEncodeError:
            return token.encode()

    first = bytes_of

    def is_atomic(self, token: str) -> bool:
        """Return whether the bytes of *token* are whole characters."""
        try:
            self.bytes_of(token).decode()
        except UnicodeDecodeError:
            return False
        return True


class ByteFallback:
    """SentencePiece's spelling: text with a sign for the space, and ``<0xNN>`` for single bytes."""

    errors = EACH_BYTE

    def __init__(
        self, replacements: Sequence[tuple[str, str]], *, fallback: bool, strip: int
    ) -> None:
        """Take the decoder's settings.

        Args:
            replacements: What is replaced in each token, in order.
            fallback: Whether ``<0xNN>`` is the byte NN; else it is text.
            strip: How many spaces are taken from the very start of a text.
        """
        digits = string.hexdigits if fallback else ""
        self._byte = {f"<0x{a}{b}>": bytes.fromhex(a + b) for a in digits for b in digits}
        self._replacements = replacements
        self.strip = strip

    def bytes_of(self, token: str) -> bytes:
        """Return the byte or the text *token* spells."""
        text = self._text(token)
        return self._byte.get(text) or text.encode()

    first = bytes_of

    def is_atomic(self, token: str) -> bool:
        """Return whether *token* is not a byte."""
        return self._text(token) not in self._byte

    def _text(self, token: str) -> str:
        for old, new in self._replacements:
            token = token.replace(old, new)
        return token


def spelling_of(decoders: Sequence[Decoder]) -> Spelling:
    """Return the spelling that *decoders*, a flattened sequence, undo.

    Raises:
        TokenizerLoadError: They are none of those that are known.
    """
    types = [decoder.type for decoder in decoders]
    if not types:
        return Words(prefix=None, cleanup=False)
    if types == ["WordPiece"]:
        return Words(prefix=decoders[0].prefix, cleanup=decoders[0].cleanup)
    if types == ["Metaspace"]:
        drops_first = decoders[0].prepend_scheme != "never"
        return Signs(decoders[0].replacement, drops_first=drops_first)
    if types in (["ByteLevel"], ["ByteLevel", "Fuse"]):
        return ByteLevel()
    first = next((i for i, name in enumerate(types) if name != "Replace"), len(types))
    rest = types[first:]
    if rest[:1] == ["ByteFallback"]:
        rest = rest[1:]
    if rest == ["Fuse"] or (rest == ["Fuse", "Strip"] and _strips_leading_spaces(decoders[-1])):
        return ByteFallback(
            [_replacement(decoder) for decoder in decoders[:first]],
            fallback="ByteFallback" in types,
            strip=decoders[-1].start if rest[-1] == "Strip" else 0,
        )
    raise _unsupported(types)


def table_of(document: TokenizerDocument) -> DecodingTable:
    """Return how the ids of *document* become text.

    Raises:
        TokenizerLoadError: It decodes in a way that is not supported.
    """
    spelling = spelling_of(document.decoders)
    tokens = [b""] * (1 + max(*document.vocab.values(), *document.added))
    first: dict[int, bytes] = {}
    texts = {token_id: text for text, token_id in document.vocab.items()}
    texts |= {token_id: added.content for token_id, added in document.added.items()}
    for token_id, text in texts.items():
        tokens[token_id] = spelling.bytes_of(text)
        begins = spelling.first(text)
        if begins != tokens[token_id]:
            first[token_id] = begins
    atomic: dict[int, str] = {}
    for token_id, added in document.added.items():
        if spelling.is_atomic(added.content):
            atomic[token_id] = tokens[token_id].decode()
    return DecodingTable(
        tokens=tuple(tokens),
        atomic=MappingProxyType(atomic),
        errors=spelling.errors,
        strip=spelling.strip,
        first=MappingProxyType(first),
    )


def _strips_leading_spaces(decoder: Decoder) -> bool:
    return decoder.content == " " and not decoder.stop


def _replacement(decoder: Decoder) -> tuple[str, str]:
    if "String" not in decoder.pattern:
        raise _unsupported(["Replace by a regular expression"])
    return decoder.pattern["String"], decoder.content


def _unsupported(types: Sequence[object]) -> TokenizerLoadError:
    return TokenizerLoadError(
        f"The tokenizer's decoder {types!r} is not supported: expected 'ByteLevel', 'WordPiece', "
        "'Metaspace', or 'Replace', 'ByteFallback', 'Fuse' and a 'Strip' of leading spaces."
    )
