"""Many messages of one token each, read at once.

In a stream nearly every message is the one before with another token and a counter that is one
higher. So the tokens are picked out as if that were certain, the messages are written again from
them, and the bytes are compared: what is equal was read right, however it was picked. The rest is
left to :class:`sglr_dataplane.engine.wire.ChunkReader`, message by message.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, repeat
from typing import Final

from sglr_dataplane.engine.h2.splitter import PREFIX
from sglr_dataplane.engine.wire import BITS, RIGHT, ChunkReader, number_of, pack_varint
from sglr_dataplane.job import Run

_BLOCK: Final = 1024
_IDS_KEPT: Final = 1 << 18
"""The largest vocabularies have as many tokens."""


@lru_cache(maxsize=256)
def _block(number: int) -> tuple[bytes, ...]:
    """Return the varints of one block of consecutive numbers."""
    return tuple(map(pack_varint, range(number * _BLOCK, (number + 1) * _BLOCK)))


def block_of(number: int) -> tuple[tuple[bytes, ...], int]:
    """Return the varints of consecutive numbers, *number* among them, and where it stands."""
    return _block(number // _BLOCK), number % _BLOCK


def counters(before: int, count: int) -> tuple[bytes, ...]:
    """Return *count* varints of consecutive numbers, the first of them one above *before*."""
    first = before + 1
    block = first // _BLOCK
    found = _block(block)
    while (block + 1) * _BLOCK < first + count:
        block += 1
        found += _block(block)
    start = first % _BLOCK
    return found[start : start + count]


class _Ids(dict[bytes, int]):
    """Token ids by their varints, each read once; emptied when it has outgrown any vocabulary."""

    def __missing__(self, varint: bytes) -> int:
        """Return what *varint* says.

        Raises:
            IndexError: It is wider than 21 bits take.
            ValueError: It is no varint.
        """
        word = int.from_bytes(varint, "little")
        if word & BITS[len(varint)] != RIGHT[len(varint)]:
            raise ValueError(varint)
        if len(self) >= _IDS_KEPT:
            self.clear()
        self[varint] = token_id = number_of(word)
        return token_id


IDS: Final = _Ids()


class RunReader:
    """Reads the runs in one call's answer."""

    __slots__ = ("_made_for", "_reader", "after", "before", "heads", "token_at")

    def __init__(self, reader: ChunkReader) -> None:
        """Expect messages of the shape that *reader* knows by then."""
        self._reader = reader
        self.token_at = PREFIX + len(reader.lead) + 3
        """Where the first token stands: after the chunk's length, the tag and its own length."""
        self.before = self.after = b""
        """What stands before and after the counter of a message."""
        self._made_for = b"", b"", 0
        """The two, and the counter's bytes: what the heads are made for."""
        self.heads: tuple[bytes, ...] = ()
        """What stands before a token of 0, 1, 2 and 3 bytes, from the message's prefix on."""

    def read(self, data: bytes, counted: int) -> tuple[Run, int] | None:
        """Return the run that *data* begins with, and how many bytes it is; None without one.

        Args:
            data: Messages with their prefixes, as they arrived.
            counted: Tokens of the one choice that came before.
        """
        reader = self._reader
        if not reader.before or reader.index or not data.startswith(reader.lead, PREFIX):
            return None
        if int.from_bytes(data[1:PREFIX], "big") + PREFIX == len(data):
            return self._read_one(data, counted)
        parts = data.split(reader.lead)
        counts = counters(counted, len(parts) - 1)
        if not counts:
            return None
        width = len(counts[0])
        if len(counts[-1]) != width:  # a wider counter needs other heads: the next time
            counts = tuple(count for count in counts if len(count) == width)
        self._make_heads(width)
        try:
            tokens = [part[3 : 3 + part[2]] for part in parts[1 : len(counts) + 1]]
            ids = [*map(IDS.__getitem__, tokens)]
        except (IndexError, ValueError):
            return None
        heads = map(self.heads.__getitem__, map(len, tokens))
        again = zip(heads, tokens, repeat(self.before), counts, repeat(self.after), strict=False)
        written = b"".join(chain.from_iterable(again))
        if not data.startswith(written):
            return None
        return Run(ids, reader.usage(counted + len(ids))), len(written)

    def _read_one(self, data: bytes, counted: int) -> tuple[Run, int] | None:
        """Return what :meth:`read` would of one message: most reads of a live model bring one."""
        completed = counted + 1
        count = _block(completed // _BLOCK)[completed % _BLOCK]
        self._make_heads(len(count))
        start = self.token_at
        try:
            token = data[start : start + data[start - 1]]
            token_id = IDS[token]
        except (IndexError, ValueError):
            return None
        if data != b"".join((self.heads[len(token)], token, self.before, count, self.after)):
            return None
        return Run([token_id], self._reader.usage(completed)), len(data)

    def expect(self, completed: int) -> bool:
        """Make :attr:`heads` right for a message that counts *completed*; False: no shape is known."""
        if not self._reader.before or self._reader.index:
            return False
        counters, at = block_of(completed)
        self._make_heads(len(counters[at]))
        return True

    def _make_heads(self, width: int) -> None:
        """Make the heads for messages with a counter of *width* bytes, unless they are."""
        reader = self._reader
        if self._made_for == (reader.before, reader.after, width):
            return
        self.before, self.after = reader.before, reader.after
        self._made_for = self.before, self.after, width
        rest = len(self.before) + width + len(self.after)
        size = len(reader.lead) + 3 + rest
        # A chunk of more bytes has a longer length than one byte says; no shape that was learnt has.
        self.heads = tuple(
            [
                b"%b%b%c\x0a%c"
                % ((size + token).to_bytes(PREFIX, "big"), reader.lead, 2 + token + rest, token)
                for token in range(len(BITS))
            ]
        )
