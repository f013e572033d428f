"""Header blocks ↔ fields, and the rules that a response's fields must keep.

Reading is HPACK by the ``hpack`` library. Writing is HPACK's literal form without indexing, which
keeps no state: a block can be rendered once and sent on any connection, any number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from hpack import Decoder, HPACKError, OversizedHeaderListError
from hpack.hpack import encode_integer
from hpack.table import HeaderTable

from sglr_dataplane.engine.h2.codes import ErrorCode
from sglr_dataplane.engine.h2.errors import BrokenConnectionError, BrokenStreamError

Fields = tuple[tuple[bytes, bytes], ...]

SHRINK_TABLE = b"\x20"
"""Dynamic table size 0: must open the next block after the peer lowered its table size (4.3.1)."""
_STATUS = re.compile(rb"[1-9][0-9][0-9]")
_NAME = re.compile(rb"[!-9;-@\[-~]+")
_FORBIDDEN_IN_VALUE = re.compile(rb"[\0\r\n]")
_OF_ONE_CONNECTION = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_MEMO_SIZE = 32
_JUDGED = 32
"""Lists of fields whose verdict is remembered: a worker's answers all begin and end alike."""
_MEMO_BLOCK = 256
"""Bytes of the largest block that is remembered."""


def pack_fields(fields: Iterable[tuple[bytes, bytes]], *, secret: bool = False) -> bytes:
    """Return *fields* as a header block fragment that any HPACK decoder reads in any state.

    Args:
        fields: Lower-case names and values; pseudo-fields first.
        secret: True forbids intermediaries to index the fields (RFC 7541, 7.1.3).
    """
    lead = b"\x10" if secret else b"\x00"
    return b"".join(lead + _pack_text(name) + _pack_text(value) for name, value in fields)


def _pack_text(text: bytes) -> bytes:
    """Return a string literal without Huffman coding."""
    return bytes(encode_integer(len(text), 7)) + text


class HeaderReader:
    """Turns the header blocks of one connection into fields; must see every block, in order."""

    def __init__(self, max_list_size: int) -> None:
        """Read blocks of up to *max_list_size* bytes, counted as SETTINGS does (6.5.2)."""
        self._decoder = Decoder(max_list_size)
        # A block that leaves the dynamic table as it is, such as a server's second and later
        # answers, means the same until some other block changes the table.
        self._memo: dict[bytes, Fields] = {}

    def read(self, block: bytes) -> Fields:
        """Return the fields of *block*.

        Raises:
            BrokenConnectionError: It is no HPACK, or too large: the table is out of step.
        """
        known = self._memo.get(block)
        if known is not None:
            return known
        table = self._decoder.header_table
        newest, count, size = _newest(table), len(table.dynamic_entries), table.maxsize
        try:
            fields = tuple((bytes(n), bytes(v)) for n, v in self._decoder.decode(block, raw=True))
        except OversizedHeaderListError as error:
            raise BrokenConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM, "A header list is larger than the limit."
            ) from error
        except HPACKError as error:
            raise BrokenConnectionError(
                ErrorCode.COMPRESSION_ERROR, "A header block is not HPACK."
            ) from error
        is_same = (
            _newest(table) is newest and len(table.dynamic_entries) == count
        ) and table.maxsize == size
        if not is_same or len(self._memo) >= _MEMO_SIZE:
            self._memo.clear()
        if is_same and len(block) <= _MEMO_BLOCK:
            self._memo[block] = fields
        return fields


def _newest(table: HeaderTable) -> object:
    """Return the entry that was inserted last; identity tells whether another one was."""
    return table.dynamic_entries[0] if table.dynamic_entries else None


@lru_cache(_JUDGED)
def read_head(fields: Fields) -> int:
    """Return the HTTP status of a response's first fields.

    Raises:
        BrokenStreamError: They are malformed (8.2, 8.3).
    """
    status: bytes | None = None
    pseudo_allowed = True
    for name, value in fields:
        if name.startswith(b":"):
            if name != b":status" or status is not None or not pseudo_allowed:
                raise _malformed(f"Pseudo-field {name!r} is unknown, repeated or out of place.")
            status = value
        else:
            pseudo_allowed = False
            _check_field(name, value)
    if status is None or not _STATUS.fullmatch(status):
        raise _malformed(f"Field :status is {status!r}, not a status of three digits.")
    return int(status)


@lru_cache(_JUDGED)
def check_trailers(fields: Fields) -> None:
    """Raise BrokenStreamError when trailers are malformed (8.1)."""
    for name, value in fields:
        if name.startswith(b":"):
            raise _malformed(f"Trailers hold the pseudo-field {name!r}.")
        _check_field(name, value)


@lru_cache(_JUDGED)
def read_content_length(fields: Fields) -> int | None:
    """Return the declared length of a response's body; None when there is none.

    Raises:
        BrokenStreamError: It is no number, or two fields disagree.
    """
    declared: int | None = None
    for name, value in fields:
        if name == b"content-length":
            if not value.isdigit() or declared not in {None, int(value)}:
                raise _malformed(f"Field content-length is {value!r}.")
            declared = int(value)
    return declared


def _check_field(name: bytes, value: bytes) -> None:
    """Raise when a regular field has a name or value that HTTP/2 forbids (8.2.1, 8.2.2).

    White space around a value is let pass: a gRPC server may end ``grpc-message`` with a space,
    and its status matters more.
    """
    if not _NAME.fullmatch(name):
        raise _malformed(f"Field name {name!r} has a forbidden character.")
    if _FORBIDDEN_IN_VALUE.search(value):
        raise _malformed(f"The value of {name!r} has a forbidden character.")
    if name in _OF_ONE_CONNECTION:
        raise _malformed(f"Field {name!r} has no place in HTTP/2.")


def _malformed(reason: str) -> BrokenStreamError:
    """Return the error of a malformed response (8.1.1)."""
    return BrokenStreamError(ErrorCode.PROTOCOL_ERROR, reason)
