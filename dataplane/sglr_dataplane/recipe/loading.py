"""From a backend and the folder of its tokenizer to its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal

import msgspec

from sglr_dataplane.output.detect import choose
from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.template import BrokenTemplateError, ChatTemplate
from sglr_dataplane.prompt.tokenizer import MAX_CHARACTERS, Tokenizer
from sglr_dataplane.recipe.recipe import Recipe
from sglr_dataplane.recipe.sources import Folder
from sglr_proto.backend import ReasoningWhitespace, SGLangBackend, UnknownTools

_UNKNOWN_TOOLS: Mapping[UnknownTools, Literal["forward", "content", "drop"]] = {
    UnknownTools.FORWARD: "forward",
    UnknownTools.CONTENT: "content",
    UnknownTools.DROP: "drop",
}
_LARGEST_TEMPLATE = 2**20
"""Bytes; the longest chat template there is has 16 KiB."""


def load_recipe(
    backend: SGLangBackend,
    folder: Folder,
    *,
    threads: Executor,
    cache_dir: Path | None = None,
    max_prompt_chars: int = MAX_CHARACTERS,
) -> Recipe:
    """Return the recipe of *backend*; reads files and takes up to seconds.

    Args:
        backend: Whose it is.
        folder: Its tokenizer.
        threads: Where long prompts are made.
        cache_dir: Where comparisons of encoders are kept; None compares nothing.
        max_prompt_chars: Longer prompts are refused.

    Raises:
        TokenizerLoadError: The tokenizer cannot be loaded.
        BrokenTemplateError: The chat template does not compile, or is not there.
        UnknownFormatError: The spec names a parser that is not known.
    """
    tokenizer = Tokenizer.from_dir(folder.path, verdicts=cache_dir, max_characters=max_prompt_chars)
    template = _template(backend, folder.path)
    added_tokens = frozenset(tokenizer.vocabulary.added.values())
    parsers = backend.spec.parsers
    chosen = choose(
        parsers.tool_call,
        parsers.reasoning,
        template.text or "",
        backend.spec.model.name,
        added_tokens,
    )
    return Recipe(
        backend_key=backend.key,
        source=folder.source,
        family=str(_settings(folder.path / "config.json").get("model_type", "unknown")),
        template=template,
        tokenizer=tokenizer,
        typed_controls_are_text=backend.spec.tokenizer.control_tokens == "AsText",
        formats=chosen,
        unknown_tools=_UNKNOWN_TOOLS[parsers.unknown_tools],
        strips_thoughts=parsers.reasoning_whitespace is ReasoningWhitespace.STRIP,
        added_tokens=added_tokens,
        ends=_end_ids(folder.path, tokenizer),
        threads=threads,
    )


def _template(backend: SGLangBackend, path: Path) -> ChatTemplate:
    wanted = backend.spec.tokenizer.chat_template
    model = backend.spec.model.name
    if wanted is None:
        return ChatTemplate.from_dir(path, model=model)
    text = wanted.inline
    if wanted.path is not None:
        text = _read_template(Path(wanted.path))
    return ChatTemplate.from_dir(path, model=model, text=text, name=wanted.name)


def _read_template(path: Path) -> str:
    """Return the template in the file *path*; what is wrong with it is told without the path."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_TEMPLATE + 1)
        if len(content) > _LARGEST_TEMPLATE:
            raise BrokenTemplateError(
                f"The file of spec.tokenizer.chatTemplate has more than {_LARGEST_TEMPLATE} bytes."
            )
        return content.decode()
    except OSError as error:
        raise BrokenTemplateError(
            f"The file of spec.tokenizer.chatTemplate cannot be read: {error.strerror}."
        ) from error
    except UnicodeDecodeError as error:
        raise BrokenTemplateError(
            f"The file of spec.tokenizer.chatTemplate is not UTF-8: {error.reason}."
        ) from error


def _end_ids(path: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that end an answer, by the tokenizer and by ``generation_config.json``."""
    texts = [text for text in (tokenizer.eos,) if text is not None]
    named: Any = _settings(path / "generation_config.json").get("eos_token_id")
    listed: list[Any] = named if is_array(named) else [named]
    return tokenizer.vocabulary.ids_of(texts) | {i for i in listed if isinstance(i, int)}


def _settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in *path*; an empty one when it is missing or damaged."""
    try:
        config: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return config if is_object(config) else {}
