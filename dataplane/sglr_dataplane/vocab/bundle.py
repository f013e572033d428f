"""Unpacks the tokenizer that a worker sends, which is believed in nothing but its text."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sglr_dataplane.vocab.document import TokenizerLoadError

MAX_BUNDLE_BYTES = 128 * 2**20
"""What is accepted packed: three times the largest tokenizer there is (Gemma's 33 MB of JSON)."""
MAX_UNPACKED_BYTES = 256 * 2**20
MAX_MEMBERS = 256

# What a router reads: JSON settings and vocabularies, merges, tiktoken files and templates.
_WANTED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(json|txt|jinja|model|tiktoken)")
_TEMPLATES = "additional_chat_templates"
_READ_BYTES = 2**20


def unpacked(bundle: bytes, sha256: str, cache: Path) -> Path:
    """Return the directory in *cache* that holds the files of *bundle*, unpacked if need be.

    Its name is the bundle's digest, so equal bundles of any workers share it. It appears complete
    or not at all. Members that a router does not read are left out, whatever their names say.

    Args:
        bundle: A zip archive, as ``GetTokenizer`` streams it.
        sha256: The digest the worker gave, in hexadecimal.
        cache: A directory, made when needed.

    Raises:
        TokenizerLoadError: The digest is another, or it is no archive, or too large.
        OSError: *cache* cannot be written.
    """
    return placed(bundle, checked_digest(bundle, sha256), cache)


def placed(bundle: bytes, digest: str, cache: Path) -> Path:
    """Return what ``unpacked`` does for a *bundle* whose *digest* was checked; raises the same."""
    target = cache / digest
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=cache))
    try:
        _extract(bundle, unfinished)
        return _published(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def checked_digest(bundle: bytes, sha256: str) -> str:
    """Return the digest of *bundle*, which must be *sha256*.

    Raises:
        TokenizerLoadError: It is another, or the bundle is too large.
    """
    if len(bundle) > MAX_BUNDLE_BYTES:
        raise TokenizerLoadError(
            f"The worker's tokenizer bundle has {len(bundle)} bytes; at most {MAX_BUNDLE_BYTES} "
            "are accepted."
        )
    digest = hashlib.sha256(bundle).hexdigest()
    if digest != sha256.lower():
        raise TokenizerLoadError("The worker's tokenizer bundle does not have the digest it gave.")
    return digest


def _published(unfinished: Path, target: Path) -> Path:
    try:
        unfinished.rename(target)
    except OSError:
        # Another process was faster; its files are the same, for they have the same digest.
        if not target.is_dir():
            raise
    return target


def _extract(bundle: bytes, into: Path) -> None:
    """Write the wanted members of *bundle* below *into*, and nothing anywhere else."""
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            room = MAX_UNPACKED_BYTES
            for member, place in _wanted(archive):
                path = into / place
                path.parent.mkdir(exist_ok=True)
                room -= _copied(archive, member, path, room)
    # RuntimeError: an encrypted member, or (NotImplementedError) an archive of a newer kind.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise TokenizerLoadError("The worker's tokenizer bundle is no zip archive.") from error


def _wanted(archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """Yield the members that a router reads, each with its place in the directory."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise TokenizerLoadError(
            f"The worker's tokenizer bundle has {len(members)} members; at most {MAX_MEMBERS} are "
            "accepted."
        )
    for member in members:
        place = PurePosixPath(member.filename)
        in_place = place.parent.name in ("", _TEMPLATES) and len(place.parts) <= 2  # noqa: PLR2004
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(member.compress_type)  # others may need memory without end
        if in_place and not place.is_absolute() and _WANTED.fullmatch(place.name):
            yield member, place


def _copied(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, room: int) -> int:
    """Return how many bytes *member* has, written to *path*; it may have at most *room*."""
    size = 0
    # Counted while reading: the size in the archive's directory is only a claim.
    with archive.open(member) as source, path.open("wb") as file:
        while data := source.read(_READ_BYTES):
            size += len(data)
            if size > room:
                raise TokenizerLoadError(
                    f"The worker's tokenizer bundle unpacks to more than {MAX_UNPACKED_BYTES} bytes."
                )
            file.write(data)
    return size
