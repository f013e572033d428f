"""Protobuf messages of a few plain fields, read without the stubs.

Every writer of protobuf sends fields by number, each once, in its shortest form. What is not so, or
is more than numbers and bytes, is left to the stubs: nothing here guesses.
"""

from __future__ import annotations

from typing import Final

CONTINUES: Final = 0x80
"""The bit that says that another byte of a varint follows."""
_LONGEST: Final = 28
"""Bits before the last byte of a varint of 32 bits."""


def read_fields(
    message: bytes, at: int, numbers: frozenset[int], texts: frozenset[int]
) -> tuple[dict[int, int], dict[int, bytes]] | None:
    """Return the numbers and the texts of *message* by their tags; None if the stubs must read it.

    Args:
        message: Its end is the fields' end.
        at: Where the fields begin.
        numbers: Tags of fields that are numbers of 32 bits.
        texts: Tags of those that are bytes: strings, or packed numbers.
    """
    counts: dict[int, int] = {}
    told: dict[int, bytes] = {}
    size, last = len(message), 0
    try:
        while at < size:
            tag, number = message[at], message[at + 1]
            at += 2
            if number >= CONTINUES:
                second = message[at]
                if second < CONTINUES:
                    number, at = number & 0x7F | second << 7, at + 1
                else:
                    number, at = _read_on(message, at, number)
            if tag <= last or number >> 32:
                return None
            last = tag
            if tag in numbers:
                counts[tag] = number
            elif tag in texts and at + number <= size:
                told[tag] = message[at : at + number]
                at += number
            else:
                return None
    except IndexError:
        return None
    return counts, told


def _read_on(message: bytes, at: int, first: int) -> tuple[int, int]:
    """Return the varint that begins with the byte *first*, and where it ends.

    Raises:
        IndexError: It does not end within 32 bits, or within *message*.
    """
    number, shift = first & 0x7F, 7
    while shift <= _LONGEST:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < CONTINUES:
            return number, at
        shift += 7
    raise IndexError


def read_numbers(packed: bytes) -> tuple[int, ...] | None:
    """Return the numbers of a packed field; None if the stubs must read them."""
    numbers: list[int] = []
    at, size = 0, len(packed)
    try:
        while at < size:
            number = packed[at]
            at += 1
            if number >= CONTINUES:
                number, at = _read_on(packed, at, number)
            if number >> 32:
                return None
            numbers.append(number)
    except IndexError:
        return None
    return tuple(numbers)
