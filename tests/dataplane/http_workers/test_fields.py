"""The tables of docs/api.md on HTTP workers: every field passes, whatever becomes of it over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglr_client.testing import MockServer, Raw
from sglr_dataplane.api.schema.adapted_fields import MESSAGES_FIELDS, RESPONSES_FIELDS
from sglr_dataplane.api.schema.embeddings import EMBEDDING_FIELDS
from sglr_dataplane.api.schema.fields import CHAT_FIELDS, COMPLETION_FIELDS, Field
from sglr_dataplane.api.schema.native_fields import (
    DETOKENIZE_FIELDS,
    NATIVE_FIELDS,
    TOKENIZE_FIELDS,
)
from support.http_workers import MODEL, an_http_backend
from support.router import running_router

READ: dict[str, Any] = {"model": MODEL, "stream": False, "n": 1}
"""What the router reads must be of its type; anything else may be what it likes."""


@pytest.mark.parametrize(
    ("path", "at_worker", "known"),
    [
        ("/v1/chat/completions", "/v1/chat/completions", CHAT_FIELDS),
        ("/v1/completions", "/v1/completions", COMPLETION_FIELDS),
        ("/v1/messages", "/v1/messages", MESSAGES_FIELDS),
        ("/v1/responses", "/v1/responses", RESPONSES_FIELDS),
        ("/generate", "/generate", NATIVE_FIELDS),
        ("/v1/embeddings", "/v1/embeddings", EMBEDDING_FIELDS),
        ("/v1/tokenize", "/tokenize", TOKENIZE_FIELDS),
        ("/v1/detokenize", "/detokenize", DETOKENIZE_FIELDS),
    ],
)
async def test_every_field_of_the_tables_passes(
    tmp_path: Path, path: str, at_worker: str, known: Mapping[str, Field]
) -> None:
    """Those that gRPC workers' requests are refused for as well, and one that nobody knows."""
    body = {name: READ.get(name, ["any", {"thing": 1.50}]) for name in (*known, "no_such_field")}
    body["model"] = MODEL
    with MockServer([MODEL]) as worker:
        worker.default = Raw([b"{}"], content_type="application/json")
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post(path, json=body)
        received = [request for request in worker.requests if request.path == at_worker]

    assert answer.status_code == 200
    assert [request.body for request in received] == [body]
