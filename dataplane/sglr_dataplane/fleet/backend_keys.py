"""The keys that backends themselves ask callers for, as hashes that the operator resolved."""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglr_proto.snapshot import Snapshot


class BackendKeys:
    """Which backends a key opens. State: the hashes of the newest snapshot, each with its owners."""

    def __init__(self) -> None:
        """Know of no key: backends that ask for one are closed to everybody."""
        self._keys: dict[bytes, tuple[str, frozenset[str]]] = {}

    def __repr__(self) -> str:
        return f"<BackendKeys {len(self._keys)} hashes>"

    def tell(self, snapshot: Snapshot) -> None:
        """Take over the keys of *snapshot*, and none else."""
        names: dict[bytes, str] = {}
        opened: dict[bytes, set[str]] = defaultdict(set)
        for each in snapshot.backends:
            for caller in each.resolved.callers if each.resolved is not None else ():
                digest = bytes.fromhex(caller.sha256)
                names.setdefault(digest, f"{each.backend.metadata.namespace}/{caller.name}")
                opened[digest].add(each.backend.key)
        self._keys = {digest: (name, frozenset(opened[digest])) for digest, name in names.items()}

    def find(self, presented: str) -> tuple[str, frozenset[str]] | None:
        """Return whose key *presented* is, and the backends that it opens; None when nobody's.

        Every key is compared, in constant time each: how long it takes tells nothing.
        """
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, owner in self._keys.items():
            if hmac.compare_digest(known, digest):
                found = owner
        return found
