"""A model's tokenizer as the simulated worker needs it: ids to text and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tokenizers import Tokenizer

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
            OSError: ``tokenizer.json`` cannot be read.
            ValueError: A file is not what its name says.
        """
        self._tokenizer = Tokenizer.from_str(
            (directory / "tokenizer.json").read_text(encoding="utf-8")
        )
        config = _json_of(directory / "config.json")
        own_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.vocab_size = vocab_size or config.get("vocab_size") or own_size
        self.eos_ids = self._eos_ids(directory, config)
        self.chooses_thinking = _chooses_thinking(directory)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of *text*, control tokens recognised, none added."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of *ids*, control tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def _eos_ids(self, directory: Path, config: dict[str, Any]) -> tuple[int, ...]:
        """Return the EOS ids, those of generation_config.json first, as the engine unites them."""
        generation = _json_of(directory / "generation_config.json")
        found = [*_ids_of(generation.get("eos_token_id")), *_ids_of(config.get("eos_token_id"))]
        token = _json_of(directory / "tokenizer_config.json").get("eos_token")
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            found += _ids_of(self._tokenizer.token_to_id(token))
        return tuple(dict.fromkeys(found))


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
    return [int(item) for item in value] if isinstance(value, list) else []


def _chooses_thinking(directory: Path) -> bool:
    """Return whether the chat template has a switch to turn the model's thinking off."""
    template = directory / "chat_template.jinja"
    text = template.read_text(encoding="utf-8") if template.is_file() else ""
    stored = _json_of(directory / "tokenizer_config.json").get("chat_template")
    return "enable_thinking" in (text or str(stored or ""))
