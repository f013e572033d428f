"""The paths of inference: every API that generates, and what belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from sglr_dataplane.api.chat import Walk
from sglr_dataplane.api.counting import CountTokens
from sglr_dataplane.api.dialects.chat import ChatDialect
from sglr_dataplane.api.dialects.completions import CompletionDialect
from sglr_dataplane.api.dialects.messages import MessagesDialect
from sglr_dataplane.api.dialects.native import NativeDialect
from sglr_dataplane.api.dialects.responses import ResponsesDialect
from sglr_dataplane.api.embeddings import Embeddings
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from sglr_dataplane.api.dialect import Dialect
    from sglr_dataplane.config import Limits, RouterConfig
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_dataplane.recipe import Recipes

NOT_SERVED: Final = (
    "/rerank",
    "/v1/rerank",
    "/v1/score",
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


def inference_routes(
    recipes: Recipes,
    registry: Registry,
    dispatcher: Dispatcher,
    metrics: RouterMetrics,
    config: RouterConfig,
) -> list[Route]:
    """Return the routes of every inference API."""
    walks = [
        Route(
            path,
            Walk(
                dialect,
                recipes,
                registry,
                dispatcher,
                metrics,
                limits=config.limits,
                keepalive=config.keepalive,
            ),
            methods=["POST"],
        )
        for path, dialect in _DIALECTS.items()
    ]
    tokenize = Tokenize(recipes, registry, config.limits)
    detokenize = Detokenize(recipes, config.limits)
    return [
        *walks,
        Route("/v1/messages/count_tokens", CountTokens(recipes, config.limits), methods=["POST"]),
        Route(
            "/v1/embeddings",
            Embeddings(recipes, registry, dispatcher, metrics, limits=config.limits),
            methods=["POST"],
        ),
        Route("/v1/tokenize", tokenize, methods=["POST"]),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/v1/detokenize", detokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        *_parse_routes(recipes, config.limits),
        *(Route(path, _not_served, methods=["POST"]) for path in NOT_SERVED),
    ]


def _parse_routes(recipes: Recipes, limits: Limits) -> list[Route]:
    return [
        Route(path, endpoint, methods=["POST"])
        for path, endpoint in (
            ("/parse_function_call", ParseCalls(recipes, limits, calls_as_sglang)),
            ("/parse/function_call", ParseCalls(recipes, limits, calls_as_smg)),
            ("/separate_reasoning", ParseThoughts(recipes, limits, thoughts_as_sglang)),
            ("/parse/reasoning", ParseThoughts(recipes, limits, thoughts_as_smg)),
        )
    ]


async def _not_served(request: Request) -> Response:
    raise NotServedError(
        f"No worker of this router serves {request.url.path}: workers are spoken to over gRPC, "
        "which has no such call."
    )
