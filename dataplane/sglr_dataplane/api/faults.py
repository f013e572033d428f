"""Errors on their way out: one envelope for every path, method and protocol."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sglr_dataplane.errors import MethodNotAllowedError, RouterError, UnknownUrlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglr_dataplane.api.exchange import Exchange

logger = logging.getLogger(__name__)

CLIENT_GONE: Final = "client_closed_request"
"""How a request ended whose client left; nginx's 499 in words."""
UNEXPECTED: Final = "The router failed on this request; its log has the reason."


class ClientGoneError(Exception):
    """The client closed its connection; there is nobody to answer."""


def envelope(error: RouterError) -> dict[str, dict[str, str | None]]:
    """Return OpenAI's error object for *error*."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


_ANTHROPIC_TYPES = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
}

_UNREAD = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_TIMEOUT})


def anthropic_envelope(error: RouterError) -> dict[str, Any]:
    """Return Anthropic's error object for *error*."""
    kind = _ANTHROPIC_TYPES.get(HTTPStatus(error.status), "api_error")
    if kind == "api_error" and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = "invalid_request_error"
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def last_frames(error: RouterError, path: str) -> bytes:
    """Return what ends a stream of *path* that failed, whatever it has told so far."""
    if path.startswith("/v1/messages"):
        return named_event(anthropic_envelope(error))
    if path.startswith("/v1/responses"):
        # OpenAI's word for a failure that no response object tells of.
        told = {"code": error.code, "message": error.message, "param": error.param}
        return named_event({"type": "error", **told, "sequence_number": 0})
    return b"data: " + orjson.dumps(envelope(error)) + b"\n\ndata: [DONE]\n\n"


def named_event(event: dict[str, Any]) -> bytes:
    """Return *event* as Anthropic's and OpenAI's newer streams have it: named by its type."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def fault_reply(error: RouterError, path: str = "") -> Response:
    """Return the HTTP answer for *error*; 413 and 408 also close the connection, its body is unread.

    Args:
        error: What went wrong.
        path: What was asked for: Anthropic's clients read errors in their own shape.
    """
    shaped = anthropic_envelope if path.startswith("/v1/messages") else envelope
    reply = Response(orjson.dumps(shaped(error)), error.status, media_type="application/json")
    if error.retry_after is not None:
        reply.headers["Retry-After"] = str(error.retry_after)
    if error.status == HTTPStatus.UNAUTHORIZED:
        reply.headers["WWW-Authenticate"] = "Bearer"
    if error.status in _UNREAD:
        reply.headers["Connection"] = "close"
    return reply


async def refuse(exchange: Exchange, error: Exception) -> None:
    """Answer in place of what failed with *error*, and note with what it did.

    Raises:
        Exception: The *error*; the answer has begun, and only the end of its connection can tell.
    """
    if isinstance(error, ClientGoneError):
        exchange.failure = CLIENT_GONE
        return
    headers: Mapping[str, str] = {}
    if isinstance(error, RouterError):
        answer = error
    elif isinstance(error, HTTPException):
        answer = _as_router_error(error, exchange)
        headers = error.headers or {}
    else:
        logger.error("request failed unexpectedly", exc_info=error, extra={"path": exchange.path})
        answer = RouterError(UNEXPECTED)
    exchange.failure = answer.code
    if exchange.status:
        raise error
    reply = fault_reply(answer, exchange.path)
    reply.headers.update(headers)
    await exchange.answer_with(reply)


def _as_router_error(error: HTTPException, exchange: Exchange) -> RouterError:
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return MethodNotAllowedError(
            f"{exchange.method} is not allowed on {exchange.path}."
            f"{_allowed(error)} See GET /v1/models for what is served."
        )
    return UnknownUrlError(f"Unknown request URL: {exchange.method} {exchange.path}.")


def _allowed(error: HTTPException) -> str:
    allow = (error.headers or {}).get("Allow", "")
    return f" Allowed: {allow}." if allow else ""
