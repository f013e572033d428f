"""Finds any of many fixed texts in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from operator import itemgetter


class LiteralSearch:
    """Finds the leftmost and there the longest of a set of texts, as tokenizers finds its tokens.

    The pattern is a trie, so a position costs at most the longest text's length: a plain
    alternation of a thousand reserved tokens would cost seconds on a megabyte of ``<``.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        """Prepare to find *texts*; without any, nothing is ever found."""
        branches = _branches(sorted({text for text in texts if text}))
        self._pattern = re.compile(branches) if branches else None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the texts stand in *text*, from left to right, without overlap."""
        if self._pattern is not None:
            for match in self._pattern.finditer(text):
                yield match.span()


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
