"""Finds any of many fixed texts in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count, groupby, takewhile
from operator import itemgetter
from typing import Final

_PIECE: Final = 64 * 1024
"""Characters searched in one go: below a millisecond."""


class LiteralSearch:
    """Finds the leftmost and there the longest of a set of texts, as tokenizers finds its tokens.

    The pattern is a trie, so a position costs at most the longest text's length: a plain
    alternation of a thousand reserved tokens would cost seconds on a megabyte of ``<``. A long
    text is searched in pieces, because ``re`` keeps every other thread waiting meanwhile.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        """Prepare to find *texts*; without any, nothing is ever found."""
        wanted = sorted({text for text in texts if text})
        branches = _branches(wanted)
        self._pattern = re.compile(branches) if branches else None
        self._longest = max(map(len, wanted), default=0)
        self.firsts = frozenset(text[0] for text in wanted)
        """The letters that the texts begin with."""
        letters = set("".join(wanted))
        self.stranger = next(chr(code) for code in count() if chr(code) not in letters)
        """A letter that is in none of the texts."""

    def __repr__(self) -> str:
        return f"<LiteralSearch firsts={''.join(sorted(self.firsts))!r}>"

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the texts stand in *text*, from left to right, without overlap."""
        if self._pattern is None:
            return
        start = 0
        while start < len(text):
            border = start + _PIECE
            # Beyond the border, so that what begins before it is found whole.
            for match in self._pattern.finditer(text, start, border + self._longest - 1):
                if match.start() >= border:
                    break
                yield match.span()
                start = match.end()
            start = max(start, border)

    def is_in(self, text: str) -> bool:
        """Return whether one of the texts stands anywhere in *text*."""
        if len(text) <= _PIECE:
            return self._pattern is not None and self._pattern.search(text) is not None
        return any(True for _ in self.spans(text))


def _branches(texts: list[str]) -> str:
    """Return a pattern that matches the longest of the sorted *texts*."""
    ends_here = texts[:1] == [""]
    choices: list[str] = []
    for _, same_start in groupby(texts[ends_here:], key=itemgetter(0)):
        group = list(same_start)
        # What the first and the last of a sorted list share, all between them share.
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(group[0], group[-1], strict=False))
        shared = sum(1 for _ in pairs)
        rest = _branches([text[shared:] for text in group])
        choices.append(re.escape(group[0][:shared]) + rest)
    if not choices:
        return ""
    return f"(?:{'|'.join(choices)}){'?' if ends_here else ''}"
