"""What an HTTP worker's status, or an error in its stream, means to the one who asked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from sglr_dataplane.engine.json_values import is_array, is_object, object_in
from sglr_dataplane.engine.statuses import asked_pause, without_addresses
from sglr_dataplane.errors import (
    ContextLengthExceededError,
    NotServedError,
    RelayedRefusalError,
    RequestTooLargeError,
    RouterError,
    WorkerBusyError,
    WorkerError,
)

# vLLM: "This model's maximum context length is N tokens. However, you requested …"; SGLang: "The input
# (N tokens) is longer than the model's context length", "Requested token count exceeds …".
_TOO_LONG: Final = re.compile(
    r"maximum (allowed |context |input )?(context |token )?length|longer than the model's context|"
    r"token count exceeds|input length .* exceeds",
    re.IGNORECASE | re.DOTALL,
)
_CLIENT_ERRORS: Final = range(400, 500)
_SERVER_ERRORS: Final = range(500, 600)
_BUSY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_LOCKED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_UNKNOWN_ROUTE: Final = frozenset({"Not Found", "Method Not Allowed"})
"""FastAPI's words, in ``detail``, for a path or a method that it does not serve."""

UNAUTHORISED: Final = "The worker is unauthorised to us: it does not accept the router's key."


def error_of_status(
    status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> RouterError:
    """Return the error that an answer with *status*, which is no success, is.

    Args:
        status: The answer's.
        headers: Its fields, names in lower case: a busy worker may say there how long it wants to
            be left alone.
        body: What was read of its body.

    Returns:
        RelayedRefusalError or one of its siblings for 4xx; NotServedError for a path that the
        worker does not have; WorkerBusyError for 429 and 503; else WorkerError.
    """
    if status in _BUSY:
        error = WorkerBusyError("The worker has no room for another request now.")
        error.pause = asked_pause(headers)
        return error
    if status in _LOCKED:
        # The key is the router's own: the client's was checked here, and never left.
        return WorkerError(UNAUTHORISED)
    told = _told(body)
    if status in _CLIENT_ERRORS:
        return _refusal(_registered(status, HTTPStatus.BAD_REQUEST), told)
    if status == HTTPStatus.NOT_IMPLEMENTED:
        return NotServedError(told.sentence or "The worker does not implement this.")
    if status in _SERVER_ERRORS:
        return _failure(_registered(status, HTTPStatus.BAD_GATEWAY))
    return WorkerError(f"The worker answered with status {status}, which is no answer.")


def error_of_event(document: dict[str, Any] | None, data: bytes) -> RouterError:
    """Return what a stream of events that ended with an error means.

    Args:
        document: The error event's JSON; None when it is none.
        data: Its data.
    """
    told = _told(data)
    error = (document or {}).get("error")
    fields = error if is_object(error) else document or {}
    for name in ("code", "status_code", "http_code"):
        status = fields.get(name)
        if isinstance(status, int) and status in _CLIENT_ERRORS and status not in _LOCKED:
            return error_of_status(status, (), data)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return error_of_status(status, (), data)
    sentence = f": {told.sentence}" if told.sentence else "."
    return WorkerError(f"The worker ended the stream with an error{sentence}")


class _Told(msgspec.Struct, frozen=True):
    """What a worker says of an error."""

    sentence: str = ""
    param: str | None = None
    code: str | None = None
    is_unknown_route: bool = False


def _told(body: bytes) -> _Told:
    """Return what *body* says: OpenAI's shape, the flat one, FastAPI's, or none of them."""
    document = object_in(body)
    if document is None:
        return _Told()  # text and HTML are for people who can see the machine
    error = document.get("error")
    fields = error if is_object(error) else document
    detail = document.get("detail")
    words = fields.get("message") or (error if isinstance(error, str) else None) or detail
    return _Told(
        sentence=without_addresses(words if isinstance(words, str) else _details(words)),
        param=_text(fields.get("param")),
        code=_text(fields.get("code")),
        is_unknown_route=isinstance(detail, str) and detail in _UNKNOWN_ROUTE,
    )


def _details(words: object) -> str:
    """Return FastAPI's list of what does not validate as one sentence."""
    entries = filter(is_object, words) if is_array(words) else ()
    said = (f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg', '')}" for each in entries)
    return "; ".join(said)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _refusal(status: int, told: _Told) -> RouterError:
    if told.is_unknown_route:
        return NotServedError("No worker of this model serves this path.")
    sentence = told.sentence or f"The worker refused the request with status {status}."
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return RequestTooLargeError(sentence)
    if _TOO_LONG.search(told.sentence):
        return ContextLengthExceededError(sentence, param=told.param or "messages")
    code = told.code
    if status == HTTPStatus.NOT_FOUND and "model" in sentence.lower():
        code = code or "model_not_found"
    return RelayedRefusalError(sentence, status=status, param=told.param, code=code)


def _registered(status: int, otherwise: int) -> int:
    """Return *status* where HTTP knows it: proxies invent some that clients do not understand."""
    try:
        return HTTPStatus(status)
    except ValueError:
        return otherwise


def _failure(status: int) -> WorkerError:
    # Never its words: a worker may echo prompts and headers in them.
    error = WorkerError(f"The worker answered with an error (status {status}).")
    error.status = status  # type: ignore[misc]  # one instance may be sharper than its class
    return error
