"""Tokenizers as workers send them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

from sglr_dataplane.engine import TokenizerBundle
from support.tokenizers import DEMO_MODEL


def a_bundle(directory: Path = DEMO_MODEL, **changed: str) -> TokenizerBundle:
    """Return the files of *directory*; *changed* replaces some by new text, ``.`` spelled ``__``."""
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    files |= {name.replace("__", "."): text.encode() for name, text in changed.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return TokenizerBundle(buffer.getvalue(), hashlib.sha256(buffer.getvalue()).hexdigest())
