"""What the Secrets and ConfigMaps that a backend names hold, on its way from operator to router.

It travels over an authenticated, encrypted stream and is kept in files that their owner alone can
read. It is in no ConfigMap, on no debug page, and in no ``repr``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Pem = Annotated[str, Meta(max_length=1024 * 1024)]
"""As much as a Secret can hold."""


class CallerKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One key of a caller, as its hash."""

    name: Annotated[str, Meta(min_length=1, max_length=512)]
    """Whose it is: Secret and key within it."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class Resolved(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The values behind one backend's references; empty where none is named."""

    worker_key: Pem = ""
    ca: Pem = ""
    certificate: Pem = ""
    key: Pem = ""
    callers: tuple[CallerKey, ...] = ()
    """Sorted by name and hash."""

    def __repr__(self) -> str:
        """Return which values there are, and none of them."""
        named = [name for name in self.__struct_fields__ if getattr(self, name)]
        return f"<Resolved {', '.join(named) or 'nothing'}>"

    @property
    def has_secrets(self) -> bool:
        """Whether anything in it must not be seen by others."""
        return bool(self.worker_key or self.key or self.callers)
