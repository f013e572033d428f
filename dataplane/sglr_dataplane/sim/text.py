"""A model's tokenizer as the simulated worker needs it: ids to text and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sglr_dataplane.prompt.template_files import template_files
from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.sim.shapes import list_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Text(Protocol):
    """What the worker knows of its model's text."""

    @property
    def vocab_size(self) -> int:
        """Ids at or above this end the process."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a generation; the first is the one the model itself writes."""
        ...

    @property
    def chooses_thinking(self) -> bool:
        """Whether the model opens its thought itself unless the prompt says otherwise."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of *text*, control tokens recognised, none added."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of *ids*, control tokens included."""
        ...


@dataclass(frozen=True, slots=True)
class IdsOnly:
    """A worker without a tokenizer: it takes and gives ids, and knows no words."""

    vocab_size: int = 151_680
    eos_ids: tuple[int, ...] = ()
    chooses_thinking: bool = False

    def encode(self, text: str) -> tuple[int, ...]:
        """Return one id per byte, so that scripted words still have a length."""
        return tuple(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """Return the bytes that are ids below 256 as text; the others are left out."""
        return bytes(i for i in ids if i < 256).decode(errors="replace")  # noqa: PLR2004  # a byte


class DirectoryText:
    """The tokenizer of a directory in Hugging Face's layout."""

    def __init__(self, directory: Path, vocab_size: int | None = None) -> None:
        """Read the files of *directory*; *vocab_size* replaces what they say.

        Raises:
            TokenizerLoadError: ``tokenizer.json`` is missing or not one.
            ValueError: Another file is not what its name says.
        """
        self._tokenizer = Tokenizer.from_dir(directory)
        files = template_files(directory)
        config = _json_of(directory / "config.json")
        own_size = self._tokenizer.vocabulary.size
        self.vocab_size: int = vocab_size or config.get("vocab_size") or own_size
        self.eos_ids = self._eos_ids(directory, config)
        self.chooses_thinking = "enable_thinking" in (files.text or "")

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of *text*, control tokens recognised, none added."""
        return tuple(self._tokenizer.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of *ids*, control tokens included."""
        return self._tokenizer.vocabulary.decode(ids)

    def _eos_ids(self, directory: Path, config: dict[str, Any]) -> tuple[int, ...]:
        """Return the EOS ids, those of generation_config.json first, as the engine unites them."""
        generation = _json_of(directory / "generation_config.json")
        found = [*_ids_of(generation.get("eos_token_id")), *_ids_of(config.get("eos_token_id"))]
        token = self._tokenizer.eos
        own = None if token is None else self._tokenizer.vocabulary.id_of(token)
        return tuple(dict.fromkeys([*found, *_ids_of(own)]))


def _json_of(path: Path) -> dict[str, Any]:
    """Return the object in the JSON file at *path*; empty when there is no such file."""
    if not path.is_file():
        return {}
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _ids_of(value: object) -> list[int]:
    """Return the ids in a config's ``eos_token_id``: one number, a list, or nothing."""
    if isinstance(value, int):
        return [value]
    return [int(item) for item in list_of(value)]
