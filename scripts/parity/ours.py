"""What this router makes of the same requests."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sglr_dataplane.api.schema import decode_chat
from sglr_dataplane.errors import RouterError
from sglr_dataplane.prompt.messages import prepared
from sglr_dataplane.recipe import Recipe, load_recipe
from sglr_dataplane.recipe.sources import Folder
from sglr_proto.backend import decode_backend

Json = dict[str, Any]


BORROWED: Final = {"deepseek_v4": "deepseek_r1"}
"""Models without a template, and those whose template is named for them, to either side."""


def template_of(directory: Path) -> Path | None:
    """Return the template that is named for the model in *directory*; None: it has its own."""
    lender = BORROWED.get(directory.name)
    return None if lender is None else directory.parent / lender / "chat_template.jinja"


@dataclass(frozen=True)
class Ours:
    """The router's answer to one request."""

    ids: list[int] | None
    refusal: str
    """Why there are no ids; empty when there are."""
    prepared: Json | None
    """What its template was given; None when it did not come to that."""


def recipe_for(directory: Path, verdicts: Path | None, control_tokens: str) -> Recipe:
    """Return the recipe of the model in *directory*."""
    template = template_of(directory)
    named = {} if template is None else {"chatTemplate": {"path": str(template)}}
    backend = decode_backend(
        {
            "apiVersion": "sglr.dev/v1alpha1",
            "kind": "SGLangBackend",
            "metadata": {"name": "m"},
            "spec": {
                "model": {"name": "m"},
                "tokenizer": {"path": str(directory), "controlTokens": control_tokens, **named},
                "workers": {"static": {"endpoints": [{"host": "127.0.0.1"}]}},
            },
        },
        lenient=False,
    )
    threads = ThreadPoolExecutor(1)
    folder = Folder(directory, directory.name)
    return load_recipe(backend, folder, threads=threads, cache_dir=verdicts)


async def of_router(recipe: Recipe, body: Json) -> Ours:
    """Return what the router makes of *body*."""
    try:
        conversation = decode_chat(json.dumps(body).encode()).conversation
    except RouterError as error:
        return Ours(None, f"refused: {error}", None)
    given: Json | None = None
    try:
        ready = prepared(conversation, recipe.template)
        given = {
            "messages": ready.messages,
            "tools": ready.tools,
            "kwargs": dict(conversation.template_kwargs),
            "start": conversation.add_generation_prompt or conversation.continue_final_message,
        }
        ids = recipe.chat_prompt(conversation).ids
    except RouterError as error:
        return Ours(None, str(error), given)
    # What is continued is no matter of the template: only its own part is compared with it.
    return Ours(list(ids), "", None if ready.continuation else given)


def fingerprint(ids: list[int] | None) -> str:
    """Return a digest of *ids*, ``refused`` for None."""
    if ids is None:
        return "refused"
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]
