"""Keeps the last good list in a ConfigMap, for routers that start while no operator answers.

Routers mount it; they never ask the API server. It holds what a SGLangBackend says in the open and
where its workers are: whatever is resolved from a Secret must never get here.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from typing import Final

from sglr_operator.errors import KubeError
from sglr_operator.kube import Kube
from sglr_operator.resources import CONFIGMAPS
from sglr_operator.statuses import MANAGER
from sglr_proto.keepsake import compress, pack
from sglr_proto.snapshot import Snapshot

logger = logging.getLogger(__name__)

FIELD: Final = "snapshot"
"""The key in ``binaryData``, and so the name of the mounted file."""
_LONGEST: Final = 900 * 1024
"""Bytes in base64; the API server refuses an object above 1 MiB."""


class Keeper:
    """The writer of one ConfigMap, for one leadership. State: what was written last."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        *,
        snapshot: Callable[[], Snapshot],
        may_write: Callable[[], bool],
        interval: float,
    ) -> None:
        """Keep what *snapshot* returns in ConfigMap *name*, at most once in *interval* seconds."""
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._snapshot = snapshot
        self._may_write = may_write
        self._interval = interval
        self._written = b""
        self._is_too_long = False

    def __repr__(self) -> str:
        return f"<Keeper {self._namespace}/{self._name} {len(self._written)} bytes>"

    async def run(self) -> None:
        """Write whenever there is something new, until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            packed = pack(self._snapshot())
            if packed != self._written and self._may_write():
                # A thousand backends take tens of milliseconds to compress.
                await self._write(packed, await asyncio.to_thread(compress, packed))

    async def _write(self, packed: bytes, compressed: bytes) -> None:
        text = base64.b64encode(compressed).decode()
        if len(text) > _LONGEST:
            self._complain(len(text))
            return
        self._is_too_long = False
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "binaryData": {FIELD: text},
        }
        try:
            path = CONFIGMAPS.path(self._namespace, self._name)
            await self._kube.apply(path, body, manager=MANAGER)
        except KubeError as error:
            logger.warning(
                "copy not written", extra={"configmap": self._name, "problem": str(error)}
            )
            return
        self._written = packed

    def _complain(self, length: int) -> None:
        """Say once that the list has outgrown a ConfigMap; the older copy stays."""
        if not self._is_too_long:
            self._is_too_long = True
            logger.error(
                "the list is too long for a ConfigMap; routers keep their own files",
                extra={"bytes": length, "most": _LONGEST},
            )
