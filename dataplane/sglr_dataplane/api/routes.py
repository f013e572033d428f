"""The paths of inference: every API that generates, and what belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.chat import Walk
from sglr_dataplane.api.counting import CountTokens
from sglr_dataplane.api.dialects.chat import ChatDialect
from sglr_dataplane.api.dialects.completions import CompletionDialect
from sglr_dataplane.api.dialects.messages import MessagesDialect
from sglr_dataplane.api.dialects.native import NativeDialect
from sglr_dataplane.api.dialects.responses import ResponsesDialect
from sglr_dataplane.api.embeddings import Embeddings
from sglr_dataplane.api.forward import FORWARDED, Forwarding
from sglr_dataplane.api.parse import (
    ParseCalls,
    ParseThoughts,
    calls_as_sglang,
    calls_as_smg,
    thoughts_as_sglang,
    thoughts_as_smg,
)
from sglr_dataplane.api.tokenization import Detokenize, Tokenize
from sglr_dataplane.errors import NotServedError
from sglr_dataplane.fleet.signpost import Signpost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglr_dataplane.api.dialect import Dialect
    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.api.front_door import Endpoint
    from sglr_dataplane.config import RouterConfig
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_dataplane.recipe import Recipes

NOT_SERVED: Final = (
    "/rerank",
    "/v1/rerank",
    "/score",
    "/v1/score",
    "/classify",
    "/v1/classify",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/moderations",
)
"""Paths of other servers that no gRPC worker answers."""

_DIALECTS: Final[Mapping[str, Dialect]] = {
    "/v1/chat/completions": ChatDialect(),
    "/v1/completions": CompletionDialect(),
    "/generate": NativeDialect(),
    "/v1/messages": MessagesDialect(),
    "/v1/responses": ResponsesDialect(),
}
"""The APIs that generate, by path."""


def inference_endpoints(
    recipes: Recipes,
    registry: Registry,
    dispatcher: Dispatcher,
    metrics: RouterMetrics,
    config: RouterConfig,
) -> dict[str, Endpoint]:
    """Return what answers every inference API, by the path that is posted to."""
    forwarding = Forwarding(
        registry,
        dispatcher,
        metrics,
        _signpost(registry, recipes),
        limits=config.limits,
        keepalive=config.keepalive,
    )
    return {
        path: forwarding.before(endpoint, path) if path in FORWARDED else endpoint
        for path, endpoint in _endpoints(recipes, registry, dispatcher, metrics, config).items()
    }


def _signpost(registry: Registry, recipes: Recipes) -> Signpost:
    """Return a signpost to backends of either protocol; HTTP workers make their prompts."""
    signpost = Signpost(registry)
    signpost.is_prepared = lambda key: registry.is_http(key) or recipes.get(key) is not None
    return signpost


def _endpoints(
    recipes: Recipes,
    registry: Registry,
    dispatcher: Dispatcher,
    metrics: RouterMetrics,
    config: RouterConfig,
) -> dict[str, Endpoint]:
    """Return what answers for models of gRPC workers, by path."""
    walks = {
        path: Walk(
            dialect,
            recipes,
            registry,
            dispatcher,
            metrics,
            limits=config.limits,
            keepalive=config.keepalive,
        )
        for path, dialect in _DIALECTS.items()
    }
    limits = config.limits
    tokenize = Tokenize(recipes, registry, limits)
    detokenize = Detokenize(recipes, limits)
    return {
        **walks,
        "/v1/messages/count_tokens": CountTokens(recipes, limits),
        "/v1/embeddings": Embeddings(recipes, registry, dispatcher, metrics, limits=limits),
        "/v1/tokenize": tokenize,
        "/tokenize": tokenize,
        "/v1/detokenize": detokenize,
        "/detokenize": detokenize,
        "/parse_function_call": ParseCalls(recipes, limits, calls_as_sglang),
        "/parse/function_call": ParseCalls(recipes, limits, calls_as_smg),
        "/separate_reasoning": ParseThoughts(recipes, limits, thoughts_as_sglang),
        "/parse/reasoning": ParseThoughts(recipes, limits, thoughts_as_smg),
        **dict.fromkeys(NOT_SERVED, _not_served),
    }


async def _not_served(exchange: Exchange) -> None:
    raise NotServedError(
        f"No worker of this router serves {exchange.path}: its workers are spoken to over gRPC, "
        "which has no such call."
    )
