"""What becomes of a request's body on its way to an HTTP worker: the model's name, nothing else; pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_model(body: bytes, name: str) -> bytes:
    """Return the JSON object *body* with *name* as its ``model``.

    Every other value keeps its bytes: numbers their digits, strings their escapes, and objects the
    order of their fields.
    """
    fields: Mapping[str, msgspec.Raw] = _RAW.decode(body)
    named = {**fields, "model": msgspec.Raw(msgspec.json.encode(name))}
    pairs = (msgspec.json.encode(key) + b":" + bytes(value) for key, value in named.items())
    return b"{" + b",".join(pairs) + b"}"
