"""``GET /openapi.json``: the HTTP API in OpenAPI's words, made from what decodes requests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
from starlette.responses import Response

from sglr_dataplane.api.routes import NOT_SERVED
from sglr_dataplane.api.schema.adapted_fields import MESSAGES_FIELDS, RESPONSES_FIELDS
from sglr_dataplane.api.schema.anthropic import MessagesBody
from sglr_dataplane.api.schema.chat import ChatBody
from sglr_dataplane.api.schema.completions import CompletionBody
from sglr_dataplane.api.schema.embeddings import EMBEDDING_FIELDS, EmbeddingBody
from sglr_dataplane.api.schema.fields import CHAT_FIELDS, COMPLETION_FIELDS
from sglr_dataplane.api.schema.native import NativeBody
from sglr_dataplane.api.schema.native_fields import (
    DETOKENIZE_FIELDS,
    NATIVE_FIELDS,
    TOKENIZE_FIELDS,
)
from sglr_dataplane.api.schema.parsing import (
    CALLS_FIELDS,
    THOUGHTS_FIELDS,
    CallsBody,
    ThoughtsBody,
)
from sglr_dataplane.api.schema.responses import ResponsesBody
from sglr_dataplane.api.tokenization import DetokenizeBody, TokenizeBody
from sglr_proto import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from sglr_dataplane.api.schema.fields import Field

    Schema = dict[str, Any]

_STATUSES: Final = {
    "400": "The request is wrong; the error names the field.",
    "401": "A key is needed, and there is none, or another.",
    "404": "No backend serves this model.",
    "413": "The body is larger than this router reads.",
    "415": "The body is no plain JSON.",
    "429": "Too many requests; see Retry-After.",
    "500": "The router failed.",
    "501": "Nothing here serves this.",
    "502": "A worker answered with an error.",
    "503": "No worker can take the request now; see Retry-After.",
    "504": "The worker did not answer in time.",
}


def _object(required: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "required": list(required), "properties": dict(required)}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_STRING: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "integer"}
_NULLABLE: Final[Schema] = {"type": ["string", "null"]}
_ANY: Final[Schema] = {"type": "object"}
_ERROR: Final = _object(
    {"error": _object({"message": _STRING, "type": _STRING, "param": _NULLABLE, "code": _NULLABLE})}
)
_ANTHROPIC_ERROR: Final = _object(
    {"type": {"const": "error"}, "error": _object({"type": _STRING, "message": _STRING})}
)
_USAGE: Final = _object({"prompt_tokens": _NUMBER, "total_tokens": _NUMBER})
_COMPLETION: Final[Mapping[str, Schema]] = {
    "id": _STRING, "created": _NUMBER, "model": _STRING, "usage": _USAGE,
}  # fmt: skip
_CARD: Final = _object(
    {"id": _STRING, "object": {"const": "model"}, "created": _NUMBER, "owned_by": _STRING}
)
_IDS: Final = _array(_NUMBER)

_ANSWERS: Final[Mapping[str, Schema]] = {
    "/v1/chat/completions": _object(
        {
            **_COMPLETION,
            "object": {"const": "chat.completion"},
            "choices": _array(
                _object({"index": _NUMBER, "message": _ANY, "finish_reason": _STRING})
            ),
        }
    ),
    "/v1/completions": _object(
        {
            **_COMPLETION,
            "object": {"const": "text_completion"},
            "choices": _array(
                _object({"index": _NUMBER, "text": _STRING, "finish_reason": _STRING})
            ),
        }
    ),
    "/v1/messages": _object(
        {
            "id": _STRING,
            "type": {"const": "message"},
            "role": {"const": "assistant"},
            "content": _array(_object({"type": _STRING})),
            "stop_reason": _STRING,
            "usage": _object({"input_tokens": _NUMBER, "output_tokens": _NUMBER}),
        }
    ),
    "/v1/messages/count_tokens": _object({"input_tokens": _NUMBER}),
    "/v1/responses": _object(
        {
            "id": _STRING,
            "object": {"const": "response"},
            "status": {"enum": ["completed", "incomplete"]},
            "output": _array(_object({"type": _STRING, "id": _STRING})),
        }
    ),
    "/generate": {"type": ["object", "array"]},
    "/v1/embeddings": _object(
        {
            "object": {"const": "list"},
            "data": _array(_object({"index": _NUMBER, "embedding": {"type": ["array", "string"]}})),
            "model": _STRING,
            "usage": _USAGE,
        }
    ),
    "/v1/tokenize": _object(
        {"tokens": {"type": "array"}, "count": {"type": ["integer", "array"]},
         "max_model_len": {"type": ["integer", "null"]}}
    ),
    "/v1/detokenize": _object({"text": {"type": ["string", "array"]}}),
    "/parse_function_call": _object(
        {"normal_text": _STRING,
         "calls": _array(
             _object({"tool_index": _NUMBER, "name": _STRING, "parameters": _STRING})
         )}
    ),
    "/parse/function_call": _object(
        {"remaining_text": _STRING,
         "tool_calls": _array(
             _object({"function": _object({"name": _STRING, "arguments": _STRING})})
         ),
         "success": {"const": True}}
    ),
    "/separate_reasoning": _object({"reasoning_text": _STRING, "text": _STRING}),
    "/parse/reasoning": _object(
        {"normal_text": _STRING, "reasoning_text": _STRING, "success": {"const": True}}
    ),
}  # fmt: skip

_BODIES: Final[Mapping[str, tuple[type[msgspec.Struct], Mapping[str, Field]]]] = {
    "/v1/chat/completions": (ChatBody, CHAT_FIELDS),
    "/v1/completions": (CompletionBody, COMPLETION_FIELDS),
    "/v1/messages": (MessagesBody, MESSAGES_FIELDS),
    "/v1/messages/count_tokens": (MessagesBody, MESSAGES_FIELDS),
    "/v1/responses": (ResponsesBody, RESPONSES_FIELDS),
    "/generate": (NativeBody, NATIVE_FIELDS),
    "/v1/embeddings": (EmbeddingBody, EMBEDDING_FIELDS),
    "/v1/tokenize": (TokenizeBody, TOKENIZE_FIELDS),
    "/v1/detokenize": (DetokenizeBody, DETOKENIZE_FIELDS),
    "/parse_function_call": (CallsBody, CALLS_FIELDS),
    "/parse/function_call": (CallsBody, CALLS_FIELDS),
    "/separate_reasoning": (ThoughtsBody, THOUGHTS_FIELDS),
    "/parse/reasoning": (ThoughtsBody, THOUGHTS_FIELDS),
}
_STREAMED: Final = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/generate"}
)
_ALIASES: Final = {"/tokenize": "/v1/tokenize", "/detokenize": "/v1/detokenize"}


async def openapi(_request: Request) -> Response:
    """Answer with the document."""
    return Response(_document(), media_type="application/json")


@cache
def _document() -> bytes:
    return orjson.dumps(document())


def document() -> Schema:
    """Return the OpenAPI document of everything that is served on the inference port."""
    structs = [struct for struct, _ in _BODIES.values()]
    _, components = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}"
    )
    for struct, fields in _BODIES.values():
        _describe(components[struct.__name__], fields)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sglr", "version": __version__},
        "paths": _paths(),
        "components": {
            "schemas": {**components, "Error": _ERROR, "AnthropicError": _ANTHROPIC_ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _describe(schema: Schema, fields: Mapping[str, Field]) -> None:
    """Say of each property what its field does."""
    for name, prop in schema["properties"].items():
        if name in fields and fields[name].note:
            prop["description"] = fields[name].note


def _paths() -> Schema:
    paths: Schema = {path: {"post": _post(path)} for path in _BODIES}
    paths |= {alias: {"post": _post(path)} for alias, path in _ALIASES.items()}
    paths |= {path: {"post": _not_served(path)} for path in NOT_SERVED}
    listed = _object({"object": {"const": "list"}, "data": _array(_CARD)})
    name = {"name": "id", "in": "path", "required": True, "schema": _STRING}
    return paths | {
        "/v1/models": {"get": _get("Every model and alias.", listed)},
        "/v1/models/{id}": {"get": _get("One model.", _CARD), "parameters": [name]},
        "/livez": {"get": _get("Whether the process lives.", _ANY)},
        "/readyz": {"get": _get("Whether a backend can take requests.", _ANY, "503")},
        "/health": {"get": _get("As /readyz.", _ANY, "503")},
        "/version": {"get": _get("The product's name and version.", _ANY)},
        "/": {"get": _get("The product's name and version.", _ANY)},
        "/metrics": {"get": {"responses": {"200": _content("Metrics.", "text/plain", _STRING)}}},
        "/openapi.json": {"get": _get("This document.", _ANY)},
    }


def _post(path: str) -> Schema:
    struct, _ = _BODIES[path]
    answer = _content("The answer.", "application/json", _ANSWERS[path])
    if path in _STREAMED:
        answer["content"]["text/event-stream"] = {"schema": _STRING}
    error = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    body = {"$ref": f"#/components/schemas/{struct.__name__}"}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": answer} | _failures(error),
    }


def _not_served(path: str) -> Schema:
    failures = _failures("Error")
    statuses = ("401", "429", "501", "503")
    return {
        "summary": f"{path} is known and not served.",
        "responses": {status: failures[status] for status in statuses},
    }


def _get(what: str, schema: Schema, *more: str) -> Schema:
    failures = _failures("Error")
    responses = {"200": _content(what, "application/json", schema)}
    responses |= {status: failures[status] for status in ("401", "404", "429")}
    responses |= {status: _content(what, "application/json", _ANY) for status in more}
    return {"summary": what, "responses": responses}


def _failures(error: str) -> Schema:
    reference = {"$ref": f"#/components/schemas/{error}"}
    return {
        status: _content(words, "application/json", reference)
        for status, words in _STATUSES.items()
    }


def _content(words: str, media_type: str, schema: Schema) -> Schema:
    return {"description": words, "content": {media_type: {"schema": schema}}}
