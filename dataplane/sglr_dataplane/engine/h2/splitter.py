"""DATA payloads → gRPC messages."""

from __future__ import annotations

from typing import Final

from sglr_dataplane.engine.h2.status import INTERNAL, RESOURCE_EXHAUSTED, CallError

PREFIX: Final = 5
"""Bytes before a message: a compressed flag and four of length."""


def frame_message(message: bytes) -> bytes:
    """Return *message* with its prefix, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class Splitter:
    """Cuts the payloads of one answer into messages, however they were put into frames."""

    __slots__ = ("_limit", "error", "rest")

    def __init__(self, limit: int) -> None:
        """Take messages of up to *limit* bytes."""
        self._limit = limit
        self.rest = bytearray()
        """What has come of a message that has not ended."""
        self.error: CallError | None = None
        """Why the payloads cannot be read further; None while they can."""

    def split(self, payloads: list[bytes]) -> list[bytes]:
        """Return the messages that *payloads* complete; after :attr:`error` is set, none."""
        messages: list[bytes] = []
        for payload in payloads:
            # A worker sends one message a frame, nearly always.
            if (
                not self.rest
                and payload[0] == 0
                and int.from_bytes(payload[1:PREFIX], "big") == len(payload) - PREFIX <= self._limit
            ):
                messages.append(payload[PREFIX:])
            elif self.error is None:
                self.rest += payload
                self._cut(messages)
        return messages

    def _cut(self, messages: list[bytes]) -> None:
        """Move the whole messages of the rest to *messages*."""
        rest, start = self.rest, 0
        while self.error is None and len(rest) - start >= PREFIX:
            stop = start + PREFIX + int.from_bytes(rest[start + 1 : start + PREFIX], "big")
            self.error = self._refusal(rest[start], stop - start - PREFIX)
            if self.error is not None or stop > len(rest):
                break
            messages.append(bytes(rest[start + PREFIX : stop]))
            start = stop
        del rest[:start]

    def _refusal(self, flag: int, length: int) -> CallError | None:
        """Return why a message with this prefix is not read; None if it is."""
        if flag == 1:
            return CallError(INTERNAL, "A message is compressed, though no encoding was accepted.")
        if flag:
            return CallError(INTERNAL, f"A message has the compressed flag {flag}.")
        if length > self._limit:
            # grpc's words, which say the same to whoever reads them.
            return CallError(
                RESOURCE_EXHAUSTED,
                f"CLIENT: Received message larger than max ({length} vs. {self._limit})",
            )
        return None
