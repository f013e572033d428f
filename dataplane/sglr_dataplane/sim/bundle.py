"""A tokenizer directory as GetTokenizer sends it: a zip in pieces, its digest on the last."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

from sglr_proto.sglang import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_SIZE = 64 * 1024
"""Bytes of one message; smg-grpc-servicer's."""

_NAMES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "preprocessor_config.json",
)
_PATTERNS = ("*.tiktoken", "*.jinja", "*.model")


def zip_directory(directory: Path) -> bytes:
    """Return a zip of the tokenizer files directly in *directory*.

    Raises:
        FileNotFoundError: It holds none.
    """
    found = [directory / name for name in _NAMES if (directory / name).is_file()]
    found += sorted(path for pattern in _PATTERNS for path in directory.glob(pattern))
    if not found:
        raise FileNotFoundError(f"No tokenizer files found in {directory}")
    buffer = io.BytesIO()
    # Files of an image are often dated 1970, and a zip's first year is 1980.
    packing = zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False)
    with packing as archive:
        for path in found:
            archive.write(path, path.name)
    return buffer.getvalue()


def chunks_of(archive: bytes) -> Iterator[common_pb2.GetTokenizerChunk]:
    """Return *archive* in messages of at most CHUNK_SIZE bytes; only the last names the digest."""
    for start in range(0, len(archive), CHUNK_SIZE):
        is_last = start + CHUNK_SIZE >= len(archive)
        yield common_pb2.GetTokenizerChunk(
            data=archive[start : start + CHUNK_SIZE],
            sha256=hashlib.sha256(archive).hexdigest() if is_last else "",
        )
