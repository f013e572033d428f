"""Spellings whose tokens are words, or begin with a sign for the space before them.

Their decoders treat the first token of a text differently from every later one.
"""

from __future__ import annotations

from typing import Final

# tokenizers 0.23.3, decoders/wordpiece.rs: what cleanup() does to each token, in this order.
_CLEANUPS: Final = (
    *((f" {sign}", sign) for sign in (".", "?", "!", ",")),
    *((" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" do not", " don't")),
    *((f" '{ending}", f"'{ending}") for ending in ("s", "ve", "re")),
)


class Words:
    """Whole words and, behind a prefix, pieces that are joined to the one before (BERT's)."""

    errors = "replace"
    strip = 0

    def __init__(self, *, prefix: str | None, cleanup: bool) -> None:
        """Take the decoder's settings.

        Args:
            prefix: What the pieces begin with; None: every token is a word.
            cleanup: Whether spaces before signs are taken out again.
        """
        self._prefix = prefix
        self._cleanup = cleanup

    def bytes_of(self, token: str) -> bytes:
        """Return what *token* stands for behind another one."""
        if self._prefix is not None and token.startswith(self._prefix):
            return self._cleaned(token.replace(self._prefix, "", 1))
        return self._cleaned(f" {token}")

    def first(self, token: str) -> bytes:
        """Return what *token* stands for at the very start of a text."""
        return self._cleaned(token)

    def is_atomic(self, token: str) -> bool:
        """Return True: no token is a piece of a character."""
        del token
        return True

    def _cleaned(self, text: str) -> bytes:
        for old, new in _CLEANUPS if self._cleanup else ():
            text = text.replace(old, new)
        return text.encode()


class Signs:
    """Text with a sign for the space (SentencePiece's, where no byte is a token of its own)."""

    errors = "replace"
    strip = 0

    def __init__(self, sign: str, *, drops_first: bool) -> None:
        """Take the decoder's settings.

        Args:
            sign: What stands for a space.
            drops_first: Whether the first token of a text loses its signs.
        """
        self._sign = sign
        self._drops_first = drops_first

    def bytes_of(self, token: str) -> bytes:
        """Return what *token* stands for behind another one."""
        return token.replace(self._sign, " ").encode()

    def first(self, token: str) -> bytes:
        """Return what *token* stands for at the very start of a text."""
        return token.replace(self._sign, "").encode() if self._drops_first else self.bytes_of(token)

    def is_atomic(self, token: str) -> bool:
        """Return True: no token is a piece of a character."""
        del token
        return True
