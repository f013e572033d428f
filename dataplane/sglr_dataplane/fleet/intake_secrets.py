"""What the operator resolved from Secrets, as files that this process alone can read.

A spec names files in file mode and objects in a cluster; behind this module there are only files.
A file is called after its content: a value that changes is another file, and so another client.

State: the folder, and the files in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sglr_proto.resolved import Resolved

if TYPE_CHECKING:
    from sglr_proto.backend import Tls, WorkerAuth
    from sglr_proto.snapshot import BackendSnapshot, Snapshot

_ABSENT: Final = "unresolved"
"""A file that is never written: whoever needs it fails, instead of going on without."""


class SecretFiles:
    """Writes the values of a snapshot into files, and removes those of an earlier one."""

    def __init__(self, folder: Path | None) -> None:
        """Use *folder*, emptied first; None: a new one among the temporary files."""
        self._wanted = folder
        self._folder: Path | None = None
        self._kept: set[str] = set()

    def __repr__(self) -> str:
        return f"<SecretFiles {len(self._kept)} in {self._folder}>"

    def localised(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with a file for each object that a spec names.

        Raises:
            OSError: They cannot be written.
        """
        kept: set[str] = set()
        backends = tuple(self._localised(each, kept) for each in snapshot.backends)
        for name in self._kept - kept:
            (self._opened() / name).unlink(missing_ok=True)
        self._kept = kept
        return replace(snapshot, backends=backends)

    def close(self) -> None:
        """Remove every file."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder, self._kept = None, set()

    def _localised(self, each: BackendSnapshot, kept: set[str]) -> BackendSnapshot:
        spec, found = each.backend.spec, each.resolved or Resolved()
        tls = self._tls(spec.tls, found, kept)
        auth = self._worker_auth(spec.worker_auth, found, kept)
        if each.resolved is None and tls is spec.tls and auth is spec.worker_auth:
            return each
        backend = replace(each.backend, spec=replace(spec, tls=tls, worker_auth=auth))
        # Only hashes go on from here: the values are in files now.
        return replace(each, backend=backend, resolved=Resolved(callers=found.callers))

    def _tls(self, tls: Tls, found: Resolved, kept: set[str]) -> Tls:
        if tls.ca_ref is not None:
            tls = replace(tls, ca_ref=None, ca_file=self._file(found.ca, kept))
        if tls.certificate_secret_ref is not None:
            tls = replace(
                tls,
                certificate_secret_ref=None,
                certificate_file=self._file(found.certificate, kept),
                key_file=self._file(found.key, kept),
            )
        return tls

    def _worker_auth(self, auth: WorkerAuth, found: Resolved, kept: set[str]) -> WorkerAuth:
        if auth.api_key_secret_ref is None:
            return auth
        path = self._file(found.worker_key, kept)
        return replace(auth, api_key_secret_ref=None, api_key_file=path)

    def _file(self, text: str, kept: set[str]) -> str:
        """Return the path of a file that holds *text*; of none when there is no text."""
        name = hashlib.sha256(text.encode()).hexdigest() if text else _ABSENT
        path = self._opened() / name
        if text and name not in self._kept | kept:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        if text:
            kept.add(name)
        return str(path)

    def _opened(self) -> Path:
        if self._folder is None:
            if self._wanted is None:
                self._folder = Path(tempfile.mkdtemp(prefix="sglr-"))
            else:
                # What an earlier life of this process left behind is of no use.
                shutil.rmtree(self._wanted, ignore_errors=True)
                self._wanted.mkdir(mode=0o700, parents=True)
                self._folder = self._wanted
        return self._folder
