"""What image builds keep for the next one: the newest few, because each new lock makes another."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

BASES: Final = 2
"""Kept bases, 340 MB each: this build's, and that of a second checkout that builds in turn."""
LAYERS: Final = 6
"""Kept packed layers: a base's, 80 MB, and a few of the project, 2 MB each."""


def used(kept: Path) -> None:
    """Mark *kept* as used now; what was used last goes last."""
    os.utime(kept)


def prune(cache: Path) -> list[str]:
    """Remove from *cache* what was not used for longest; return the names of what went."""
    gone = []
    for pattern, most in (("image-*", BASES), ("layer-*.gz", LAYERS)):
        newest_first = sorted(cache.glob(pattern), key=lambda p: p.stat().st_mtime, reverse=True)
        for path in newest_first[most:]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            gone.append(path.name)
    return gone
