"""What text may pass unread: most of it, because no marker and no stop string begins in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from sglr_dataplane.output.deltas import Reasoning, Text


@dataclass(frozen=True, slots=True)
class Passage:
    """How ordinary tokens become deltas of their own, whatever comes before or after them."""

    kind: type[Text | Reasoning]
    """What they become."""
    blocked: re.Pattern[bytes] | None
    """Found in tokens, as JSON escapes them and each followed by a NUL, of which one has to be
    read; None: none has to."""

    def admits(self, pieces: list[bytes]) -> bool:
        """Return whether all *pieces*, tokens as JSON escapes them, may pass."""
        return self.blocked is None or not self.blocked.search(b"\0".join([*pieces, b""]))


@lru_cache(maxsize=256)
def blocked(firsts: str, *, space_at_end: bool) -> re.Pattern[bytes] | None:
    """Return the pattern of what has to be read.

    Args:
        firsts: Characters that must not pass.
        space_at_end: Whether whitespace at a token's end must not.
    """
    wanted = [re.escape(_escaped(first)) for first in sorted(set(firsts))]
    if space_at_end:
        # A backslash before an n may be one that was written: that token is read without need.
        wanted.append(rb"(?: |\\[nrt])\0")
    return re.compile(b"|".join(wanted)) if wanted else None


def _escaped(character: str) -> bytes:
    return json.dumps(character, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
