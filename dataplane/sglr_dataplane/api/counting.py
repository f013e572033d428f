"""``POST /v1/messages/count_tokens``: what a prompt would cost, without asking a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.api.aside import aside
from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.schema.anthropic import decode_messages

if TYPE_CHECKING:
    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.config import Limits
    from sglr_dataplane.recipe import Recipes


class CountTokens:
    """Counts the tokens of a prompt as ``/v1/messages`` would send it."""

    def __init__(self, recipes: Recipes, limits: Limits) -> None:
        """Count with the recipes."""
        self._recipes = recipes
        self._limits = limits

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request; raises RouterError."""
        body = await exchange.body(self._limits.max_body_bytes)
        asked = await aside(len(body), lambda: decode_messages(body, counts_only=True))
        recipe = self._recipes.find(asked.model, caller_of(exchange))
        prompt = await recipe.aside(len(body), lambda: recipe.chat_prompt(asked.conversation))
        await exchange.answer({"input_tokens": len(prompt.ids)})
