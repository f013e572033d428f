"""What a worker sends when it is asked for its tokenizer, put together within bounds."""

from __future__ import annotations

from typing import Final

from sglr_dataplane.engine import TokenizerBundle
from sglr_dataplane.engine.statuses import (
    FAILED_PRECONDITION,
    INTERNAL,
    UNIMPLEMENTED,
    error_from_status,
)
from sglr_dataplane.errors import RouterError, WorkerError
from sglr_dataplane.vocab.bundle import MAX_BUNDLE_BYTES
from sglr_proto.sglang import common_pb2

_INSTEAD: Final = "name one in spec.tokenizer, by path or huggingFace."


class BundleReader:
    """Collects the chunks of one ``GetTokenizer`` call."""

    def __init__(self, limit: int = MAX_BUNDLE_BYTES) -> None:
        """Take at most *limit* bytes."""
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []
        self._sha256 = ""

    def __repr__(self) -> str:
        return f"<BundleReader {self._size} bytes>"

    def add(self, chunk: common_pb2.GetTokenizerChunk) -> None:
        """Take one more *chunk*; only the last names the digest.

        Raises:
            WorkerError: There would be more bytes than are taken.
        """
        self._size += len(chunk.data)
        if self._size > self._limit:
            raise WorkerError(f"The worker's tokenizer has more than {self._limit} bytes.")
        self._pieces.append(chunk.data)
        self._sha256 = chunk.sha256 or self._sha256

    def bundle(self) -> TokenizerBundle:
        """Return what was collected; nobody has compared it with its digest yet.

        Raises:
            WorkerError: Nothing came, or the chunk with the digest did not.
        """
        if not self._sha256:
            raise WorkerError("The worker's tokenizer ended before its digest came.")
        return TokenizerBundle(b"".join(self._pieces), self._sha256)


def bundle_error(code: int, details: str) -> RouterError:
    """Return what it means that ``GetTokenizer`` ended with status *code*."""
    if code == UNIMPLEMENTED:
        return WorkerError(f"The worker does not offer its tokenizer; {_INSTEAD}")
    if code == FAILED_PRECONDITION:
        # smg-grpc-servicer: the worker runs with --skip-tokenizer-init, or without a model path.
        return WorkerError(f"The worker has no tokenizer to offer; {_INSTEAD}")
    if code == INTERNAL:
        # smg-grpc-servicer: the model path is a repository's name, no folder.
        return WorkerError(f"The worker cannot read its own tokenizer's files; {_INSTEAD}")
    return error_from_status(code, details)
