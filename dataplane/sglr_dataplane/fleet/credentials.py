"""What a router shows workers, and what it asks of them: read from files, and again on change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sglr_dataplane.engine.channel import tls_context
from sglr_proto.backend import Protocol, TlsMode

if TYPE_CHECKING:
    from sglr_proto.backend import SGLangBackend, Tls
    from sglr_proto.spec import Spec

logger = logging.getLogger(__name__)

_Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a worker's client is given."""

    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"<Credentials tls={self.tls is not None} key={self.key is not None}>"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The fields of every call; none without a key."""
        return (("authorization", f"Bearer {self.key}"),) if self.key else ()


def credentials_of(spec: Spec) -> Credentials:
    """Return the credentials of *spec*'s workers, read from its files.

    What cannot be read is logged and left out: with TLS the handshake then fails, and is tried
    again when the file has come.
    """
    path = spec.worker_auth.api_key_file
    key = None
    if path is not None:
        try:
            key = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            logger.error("worker key not readable", extra={"path": path})  # noqa: TRY400  # same
    speaks = "http/1.1" if spec.workers.protocol is Protocol.HTTP else "h2"
    return Credentials(_context(spec.tls, speaks), spec.tls.server_name, key)


def _context(wanted: Tls, speaks: str) -> ssl.SSLContext | None:
    if wanted.mode is TlsMode.DISABLED:
        return None
    try:
        return tls_context(
            ca=wanted.ca_file,
            certificate=wanted.certificate_file,
            key=wanted.key_file,
            speaks=speaks,
        )
    except (OSError, ssl.SSLError) as error:
        logger.error("TLS files not usable", extra={"problem": str(error)})  # noqa: TRY400  # same
        # Trusts nobody: every handshake fails, and nothing is said in plain text.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class CredentialFiles:
    """Watches the files of every backend's credentials."""

    def __init__(self) -> None:
        """Know of no file yet."""
        self._stamps: dict[str, dict[str, _Stamp]] = {}

    def changed(self, backends: Iterable[SGLangBackend]) -> list[str]:
        """Return the keys of those *backends* whose files changed since the last call."""
        found: dict[str, dict[str, _Stamp]] = {}
        for backend in backends:
            if files := _files(backend.spec):
                found[backend.key] = {path: _stamp(path) for path in files}
        before, self._stamps = self._stamps, found
        return [
            key
            for key, stamps in found.items()
            # Other files than before are a new version of the backend, which is followed elsewhere.
            if (known := before.get(key)) and known != stamps and known.keys() == stamps.keys()
        ]

    async def follow(
        self,
        backends: Callable[[], Iterable[SGLangBackend]],
        reconnect: Callable[[str], None],
        interval: float,
    ) -> None:
        """Call *reconnect* with each backend whose files changed, for ever."""
        while True:
            for key in await asyncio.to_thread(self.changed, tuple(backends())):
                logger.info("credentials changed", extra={"backend": key})
                reconnect(key)
            await asyncio.sleep(interval)


def _files(spec: Spec) -> list[str]:
    named = (
        spec.worker_auth.api_key_file,
        spec.tls.ca_file,
        spec.tls.certificate_file,
        spec.tls.key_file,
    )
    return [path for path in named if path is not None]


def _stamp(path: str) -> _Stamp:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
