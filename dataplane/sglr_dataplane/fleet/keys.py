"""The keys that callers may come with: a file of hashes or keys, read again when it changes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.rates import Rates
from sglr_dataplane.fleet.shares import share, share_of_rates
from sglr_proto.documents import read_documents
from sglr_proto.errors import ManifestError

logger = logging.getLogger(__name__)

Limit = Annotated[int, Meta(ge=1)]


class KeysFileError(Exception):
    """The file of keys cannot be used; its sentence says why, and quotes no key."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[\w.:@/-]+$")]
    key: Annotated[str, Meta(min_length=1)] | None = None
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")] | None = None
    models: tuple[str, ...] | None = None
    priority: Literal["low", "normal", "high"] = "normal"
    max_inflight: Limit | None = None
    requests_per_minute: Limit | None = None
    input_tokens_per_minute: Limit | None = None
    output_tokens_per_minute: Limit | None = None


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[_Entry, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """One caller's key: its hash, and what it allows."""

    name: str
    """For logs and fairness; several keys of one name are one caller, as while they are rotated."""
    digest: bytes
    models: frozenset[str] | None
    priority: Priority
    """The highest that its requests may ask for."""
    rates: Rates
    max_inflight: int | None = None
    """Requests that its caller may have under way at once; None: any number."""

    def __repr__(self) -> str:
        return f"<Key of {self.name!r}>"


class Keys:
    """The keys of one file. Only their hashes are kept in memory."""

    def __init__(self, path: str | None, processes: int = 1) -> None:
        """Remember *path*; None: no key is needed.

        The limits of a key are divided among *processes*.
        """
        self._processes = processes
        self._path = Path(path) if path is not None else None
        self.are_needed = path is not None
        """Whether requests must come with a key."""
        self._stamp: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()

    def __repr__(self) -> str:
        return f"<Keys of {sorted({key.name for key in self._keys})}>"

    def find(self, presented: str) -> Key | None:
        """Return the key that *presented* is; None when it is none.

        Every key is compared, in constant time each: how long it takes tells nothing.
        """
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def load(self) -> None:
        """Read the file.

        Raises:
            KeysFileError: It cannot be read, or is not as it should be.
        """
        if self._path is None:
            return
        try:
            stamp = self._path.stat()
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise KeysFileError(f"The keys' file {str(self._path)!r} cannot be read.") from error
        self._stamp = (stamp.st_mtime_ns, stamp.st_size, stamp.st_ino)
        keys = _read(text, str(self._path))
        self._keys = tuple(_share_of(key, self._processes) for key in keys)

    async def follow(self, interval: float) -> None:
        """Read the file again whenever it changes, for ever; a broken one changes nothing."""
        while self._path is not None:
            await asyncio.sleep(interval)
            try:
                if await asyncio.to_thread(self._has_changed):
                    await asyncio.to_thread(self.load)
                    logger.info("keys loaded", extra={"keys": len(self._keys)})
            except KeysFileError as error:
                logger.error(  # noqa: TRY400  # the sentence is all there is to know
                    "keys not usable, the last good ones stay in force",
                    extra={"problem": str(error)},
                )

    def _has_changed(self) -> bool:
        assert self._path is not None  # noqa: S101  # who follows has a path
        try:
            found = self._path.stat()
        except OSError:
            return False  # a Secret that is being swapped: it is there in a moment
        return (found.st_mtime_ns, found.st_size, found.st_ino) != self._stamp


def _read(text: str, path: str) -> tuple[Key, ...]:
    try:
        documents = read_documents(text)
        document = msgspec.convert(documents[0][1] if documents else None, _Document)
    except (ManifestError, msgspec.ValidationError) as error:
        # What is said of YAML quotes the text around it, which may be a key.
        why = str(error) if isinstance(error, msgspec.ValidationError) else "it is no YAML"
        raise KeysFileError(f"The keys' file {path!r} is not usable: {why}.") from None
    if len(documents) > 1:
        raise KeysFileError(f"The keys' file {path!r} is not usable: it holds several documents.")
    keys = tuple(_key(entry, path) for entry in document.keys)
    owners: dict[bytes, str] = {}
    for key in keys:
        first = owners.setdefault(key.digest, key.name)
        if first != key.name:
            raise KeysFileError(
                f"The keys' file {path!r} is not usable: {first!r} and {key.name!r} have one key."
            )
    return keys


def _share_of(key: Key, processes: int) -> Key:
    """Return *key* with what one of *processes* has of its limits."""
    return replace(
        key,
        rates=share_of_rates(key.rates, processes),
        max_inflight=share(key.max_inflight, processes),
    )


def _key(entry: _Entry, path: str) -> Key:
    if (entry.key is None) == (entry.sha256 is None):
        raise KeysFileError(
            f"The keys' file {path!r} is not usable: {entry.name!r} needs either key or sha256."
        )
    plain = hashlib.sha256((entry.key or "").encode("utf-8", "surrogatepass")).digest()
    return Key(
        name=entry.name,
        digest=bytes.fromhex(entry.sha256) if entry.sha256 is not None else plain,
        models=frozenset(entry.models) if entry.models is not None else None,
        priority=Priority[entry.priority.upper()],
        rates=Rates(
            entry.requests_per_minute,
            entry.input_tokens_per_minute,
            entry.output_tokens_per_minute,
        ),
        max_inflight=entry.max_inflight,
    )
