"""Finding a model's chat template and special tokens in its directory, as transformers does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglr_dataplane.prompt.json_values import is_array, is_object

_TOKEN_KEYS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


@dataclass(frozen=True, slots=True)
class TemplateFiles:
    """What a model's directory says about its template."""

    text: str | None
    """None when it has no template."""
    tool_text: str | None
    """The template named ``tool_use``, for requests with tools."""
    special_tokens: Mapping[str, str]


def template_files(path: Path, *, name: str | None = None) -> TemplateFiles:
    """Return the template and special tokens in directory *path*.

    ``chat_template.jinja`` comes before the key of ``tokenizer_config.json``, which holds one
    template or a list of named ones; ``chat_template.json`` is the last resort.

    Args:
        path: A model's directory.
        name: One of the named templates, for every request; None: ``default``, and ``tool_use``
            for requests with tools.

    Raises:
        ValueError: A file is not UTF-8, not JSON, or not of the shape it should have; or no
            template has that name.
    """
    config = _json_object(path / "tokenizer_config.json")
    templates = {
        **_named(path / "additional_chat_templates"),
        **_of_config(config.get("chat_template"), path / "tokenizer_config.json"),
    }
    own = path / "chat_template.jinja"
    if own.is_file():
        templates["default"] = own.read_text(encoding="utf-8")
    if not templates:
        legacy = path / "chat_template.json"
        templates = _of_config(_json_object(legacy).get("chat_template"), legacy)
    tokens = {**_tokens(_json_object(path / "special_tokens_map.json")), **_tokens(config)}
    if name is None:
        return TemplateFiles(templates.get("default"), templates.get("tool_use"), tokens)
    if name not in templates:
        there = ", ".join(map(repr, sorted(templates))) or "none at all"
        raise ValueError(f"No chat template is named {name!r}; there are: {there}.")
    return TemplateFiles(templates[name], None, tokens)


def _json_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if is_object(value):
        return value
    raise ValueError(f"{path.name} holds no JSON object.")


def _named(folder: Path) -> dict[str, str]:
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.jinja"))}


def _of_config(value: Any, path: Path) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    if is_array(value) and all(_is_named(entry) for entry in value):
        return {entry["name"]: entry["template"] for entry in value}
    raise ValueError(
        f"'chat_template' in {path.name} is neither a string nor a list of named templates."
    )


def _is_named(entry: Any) -> bool:
    return is_object(entry) and all(isinstance(entry.get(key), str) for key in ("name", "template"))


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of *config*: each a string, or an AddedToken's dict."""
    tokens: dict[str, str] = {}
    for key in _TOKEN_KEYS:
        value = config.get(key)
        if is_object(value):
            value = value.get("content")
        if isinstance(value, str):
            tokens[key] = value
    return tokens
