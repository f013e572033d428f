"""Where the folder of a backend's tokenizer is, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sglr_dataplane.recipe.hub import downloaded
from sglr_dataplane.vocab import TokenizerLoadError
from sglr_proto.backend import SGLangBackend


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory with a tokenizer's files."""

    path: Path
    source: str
    """Where it came from, for people; no path of this machine but one that the manifest names."""


def named_source(backend: SGLangBackend) -> str:
    """Return where *backend* says that its tokenizer, and its template, are, for people."""
    tokenizer = backend.spec.tokenizer
    if tokenizer.path is not None:
        source = f"folder {tokenizer.path}"
    elif tokenizer.hugging_face is not None:
        source = f"Hugging Face {tokenizer.hugging_face.repo} {tokenizer.hugging_face.revision}"
    else:
        source = "the workers"
    template = tokenizer.chat_template
    if template is None:
        return source
    if template.path is not None:
        return f"{source}, template in {template.path}"
    return f"{source}, template {template.name or 'in the manifest'}"


def named_folder(backend: SGLangBackend) -> Folder:
    """Return the folder that *backend* names; downloads it if it is a repository.

    Raises:
        TokenizerLoadError: The repository cannot be had.
    """
    tokenizer = backend.spec.tokenizer
    if tokenizer.path is not None:
        return Folder(Path(tokenizer.path), f"folder {tokenizer.path}")
    if tokenizer.hugging_face is not None:
        wanted = tokenizer.hugging_face
        path = downloaded(wanted.repo, wanted.revision)
        # The hub's cache names the folder of a revision by its commit.
        return Folder(path, f"Hugging Face {wanted.repo} {wanted.revision} ({path.name[:12]})")
    raise TokenizerLoadError("The tokenizer comes from the workers.")
