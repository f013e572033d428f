"""From the bytes of an embedding request to values that need no further checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.completions import PromptSource, prompts_in
from sglr_dataplane.api.schema.fields import NO_FIELD, Field, refused
from sglr_dataplane.api.schema.refusals import invalid
from sglr_dataplane.prompt.ranges import shown

EMBEDDING_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "model": Field("honoured", "Name or alias of a backend."),
        "input": Field(
            "honoured", "A text, a list of texts, token ids, or a list of lists of ids."
        ),
        "encoding_format": Field("honoured", "float or base64 (little-endian float32)."),
        "dimensions": Field("honoured", "Only the number that the model has."),
        "user": Field("no effect", "Nothing is kept of it."),
        "priority": refused(NO_FIELD, 0),
        "lora_path": refused("name the adapter as the model"),
    }
)
"""Every field of ``POST /v1/embeddings`` that is known, by name."""


class EmbeddingBody(msgspec.Struct, frozen=True, kw_only=True):
    """The honoured fields, as they are sent; null and absent are the same."""

    model: str
    input: Any = None
    encoding_format: str | None = None
    dimensions: int | None = None


_READER = BodyReader(EmbeddingBody, EMBEDDING_FIELDS)


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts to be embedded."""

    model: str
    inputs: tuple[PromptSource, ...]
    paths: tuple[str, ...]
    """What a refusal calls each of *inputs*."""
    base64: bool
    dimensions: int | None


def decode_embedding(body: bytes) -> EmbeddingRequest:
    """Return the request in *body*.

    Raises:
        InvalidJsonError: *body* is not JSON.
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    sent = _READER.read(body)
    if sent.encoding_format not in (None, "float", "base64"):
        raise invalid(
            "encoding_format",
            f"expected 'float' or 'base64', but got {shown(sent.encoding_format)}",
        )
    inputs, paths = prompts_in(sent.input, "input")
    return EmbeddingRequest(
        model=sent.model,
        inputs=inputs,
        paths=paths,
        base64=sent.encoding_format == "base64",
        dimensions=sent.dimensions,
    )
