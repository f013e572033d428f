"""``/v1/tokenize`` and ``/v1/detokenize``: what the router itself knows of a model's tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from sglr_dataplane.api.aside import aside
from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.schema import decode_chat
from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.completions import prompts_in
from sglr_dataplane.api.schema.native_fields import DETOKENIZE_FIELDS, TOKENIZE_FIELDS
from sglr_dataplane.api.schema.refusals import invalid, missing, mistyped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.config import Limits
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.recipe import Recipe, Recipes
    from sglr_dataplane.vocab import Vocabulary


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for the ids of: one text, several, or a chat's messages."""

    model: str | None = None
    prompt: Any = None
    messages: Any = None
    add_special_tokens: bool | None = None


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for the text of."""

    model: str | None = None
    tokens: Any = None
    skip_special_tokens: bool | None = None


_TOKENIZE = BodyReader(TokenizeBody, TOKENIZE_FIELDS)
_DETOKENIZE = BodyReader(DetokenizeBody, DETOKENIZE_FIELDS)


class Tokenize:
    """``POST /v1/tokenize``: texts to ids, as generation would encode them."""

    def __init__(self, recipes: Recipes, registry: Registry, limits: Limits) -> None:
        """Answer from the recipes; no worker is asked."""
        self._recipes = recipes
        self._registry = registry
        self._limits = limits

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request; raises RouterError."""
        body = await exchange.body(self._limits.max_body_bytes)
        sent = await aside(len(body), lambda: _TOKENIZE.read(body))
        recipe = self._recipes.find(sent.model, caller_of(exchange))
        tokens = await self._tokens(sent, recipe, body)
        several = isinstance(tokens[0], list) if tokens else False
        await exchange.answer(
            {
                "tokens": tokens,
                "count": [len(each) for each in tokens] if several else len(tokens),
                "max_model_len": self._registry.abilities(recipe.backend_key).context,
            }
        )

    async def _tokens(self, sent: TokenizeBody, recipe: Recipe, body: bytes) -> list[Any]:
        if sent.messages is not None:
            if sent.prompt is not None:
                raise invalid("messages", "expected either 'prompt' or 'messages'")
            asked = await aside(len(body), lambda: decode_chat(body))
            prompt = await recipe.aside(len(body), lambda: recipe.chat_prompt(asked.conversation))
            return list(prompt.ids)
        if sent.prompt is None:
            raise missing("prompt")
        with_special = sent.add_special_tokens is not False
        texts = [sent.prompt] if isinstance(sent.prompt, str) else _texts(sent.prompt)
        encode = recipe.tokenizer.encode_completion if with_special else recipe.tokenizer.encode
        if len(body) <= recipe.tokenizer.encode_in_thread_above:
            ids = [encode(text) for text in texts]
        else:
            ids = await asyncio.to_thread(lambda: [encode(text) for text in texts])
        return list(ids[0]) if isinstance(sent.prompt, str) else [list(each) for each in ids]


class Detokenize:
    """``POST /v1/detokenize``: ids to text."""

    def __init__(self, recipes: Recipes, limits: Limits) -> None:
        """Answer from the recipes; no worker is asked."""
        self._recipes = recipes
        self._limits = limits

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request; raises RouterError."""
        body = await exchange.body(self._limits.max_body_bytes)
        sent = await aside(len(body), lambda: _DETOKENIZE.read(body))
        vocabulary = self._recipes.find(sent.model, caller_of(exchange)).vocabulary
        await exchange.answer({"text": await aside(len(body), lambda: _decoded(sent, vocabulary))})


def _decoded(sent: DetokenizeBody, vocabulary: Vocabulary) -> str | list[str]:
    """Return the text of the one list of ids that was sent, or the texts of several."""
    if sent.tokens == []:
        return ""
    hide = vocabulary.special if sent.skip_special_tokens is not False else frozenset[int]()
    lists, paths = prompts_in(sent.tokens, "tokens")
    for ids, path in zip(lists, paths, strict=True):
        _check_ids(ids, path, vocabulary.size)
    texts = [vocabulary.decode(ids, hide) for ids in lists if not isinstance(ids, str)]
    return texts[0] if paths == ("tokens",) else texts


def _texts(value: Any) -> Sequence[str]:
    prompts, paths = prompts_in(value, "prompt")
    found: list[str] = []
    for prompt, path in zip(prompts, paths, strict=True):
        if not isinstance(prompt, str):
            raise mistyped(path, "a string", list(prompt))
        found.append(prompt)
    return found


def _check_ids(ids: str | tuple[int, ...], path: str, size: int) -> None:
    if isinstance(ids, str):
        raise mistyped(path, "an array of token ids", ids)
    for at, token_id in enumerate(ids):
        if not 0 <= token_id < size:
            raise invalid(f"{path}[{at}]", f"expected an integer from 0 to {size - 1}")
