"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.replies import model_card
from sglr_dataplane.errors import UnknownModelError
from sglr_dataplane.fleet.routes import adapter_names

if TYPE_CHECKING:
    from starlette.requests import Request

    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.recipe import Recipes


class Models:
    """The models that are declared here, whether or not a worker is up.

    Answers from memory: one sick worker can neither slow nor break it.
    """

    def __init__(self, registry: Registry, recipes: Recipes, *, created: int) -> None:
        """List what *registry* knows; *created* is when this router started, in seconds."""
        self._registry = registry
        self._recipes = recipes
        self._created = created

    async def all(self, request: Request) -> Response:
        """Return every model, alias and adapter once, as far as the caller's key may use them."""
        return _json({"object": "list", "data": list(self._cards(request).values())})

    async def one(self, request: Request) -> Response:
        """Return one model; its id may hold slashes, a leading one too.

        Raises:
            UnknownModelError: Nothing of that name is served.
        """
        name = request.path_params["id"]
        card = self._cards(request).get(name)
        if card is None:
            raise UnknownModelError(f"The model {name!r} does not exist here.", param="model")
        return _json(card)

    def _cards(self, request: Request) -> dict[str, dict[str, Any]]:
        """Return a card for each name; of several backends the first is described."""
        exchange: Exchange = request.state.exchange
        caller = caller_of(exchange)
        cards: dict[str, dict[str, Any]] = {}
        for key in self._registry.counts():
            backend = self._registry.backend(key)
            if not caller.may_enter(backend):
                continue
            model = backend.spec.model
            abilities = self._registry.abilities(key)
            extras = {"max_model_len": abilities.context, **self._formats(key)}
            for name in model.names:
                self._add(cards, name, {"root": model.name, "parent": None, **extras})
            for name in adapter_names(model, abilities.adapters):
                self._add(cards, name, {"root": name, "parent": model.name, **extras})
        return {name: card for name, card in cards.items() if caller.may_use(name)}

    def _add(self, cards: dict[str, dict[str, Any]], name: str, extras: dict[str, Any]) -> None:
        if name not in cards:
            cards[name] = model_card(id=name, created=self._created, owned_by="sglr", **extras)

    def _formats(self, backend_key: str) -> dict[str, Any]:
        """Return how the model's answers are read, and why so; nothing while nobody knows."""
        recipe = self._recipes.get(backend_key)
        if recipe is None:
            return {}
        tool, reasoning = recipe.tool_format, recipe.reasoning_format
        return {
            "tool_call_parser": tool.name if tool is not None else None,
            "reasoning_parser": reasoning.name if reasoning is not None else None,
            "parsers_reason": recipe.formats_reason,
        }


def _json(content: object) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
