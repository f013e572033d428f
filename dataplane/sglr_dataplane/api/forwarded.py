"""What is read of a request that is forwarded: little, for the worker reads all of it; pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import orjson

from sglr_dataplane.api.schema import refusals

_SHOWN: Final = frozenset(
    {
        b"traceparent",
        b"tracestate",
        b"baggage",
        b"anthropic-version",
        b"anthropic-beta",
    }
)
"""Headers of clients that workers get. Never a key or a cookie: those are for the router alone."""
_UNIT: Final = 4
"""Bytes that stand for a token: English text has about as many in one."""
_NOTHING: Final = bytes(_UNIT)

_Json = msgspec.Raw


class Asked(msgspec.Struct, frozen=True):
    """A request, as far as the router goes by it. What of it is the prompt depends on the path."""

    model: str | None = None
    stream: bool | None = None
    n: Any = None
    prompt: _Json = _Json()
    tools: _Json = _Json()
    system: _Json = _Json()
    instructions: _Json = _Json()
    messages: _Json = _Json()
    input: _Json = _Json()
    text: _Json = _Json()
    input_ids: _Json = _Json()
    query: _Json = _Json()
    documents: _Json = _Json()

    @property
    def choices(self) -> int:
        """How many choices it asks for."""
        each = self.n if isinstance(self.n, int) and self.n > 0 else 1
        return each * _prompts(bytes(self.prompt))


_DECODER = msgspec.json.Decoder(Asked)


def read(body: bytes) -> Asked:
    """Return what *body* asks for.

    Raises:
        InvalidRequestError: It is no JSON object, or its model or stream has the wrong type.
    """
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise refusals.of_validation(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refusals.of_text(body, error) from error
    except RecursionError as error:
        raise refusals.too_deep() from error


def stand_in(asked: Asked) -> array[int]:
    """Return integers that stand for the prompt's tokens, for policies that go by the prompt.

    They are made of the canonical JSON of what the prompt is made of, in a template's order: they
    depend on no blank and on no order of fields, and a conversation begins as it did a turn before.
    """
    prompt = (
        asked.tools,
        asked.system,
        asked.instructions,
        asked.messages,
        asked.prompt,
        asked.input,
        asked.text,
        asked.input_ids,
        asked.query,
        asked.documents,
    )
    whole = b"".join(_canonical(bytes(part)) for part in prompt if part)
    return array("I", whole[: len(whole) // _UNIT * _UNIT] or _NOTHING)


def _prompts(prompt: bytes) -> int:
    """Return how many prompts there are in one, in a list of texts, or in one of lists of ids."""
    found = _value(prompt) if prompt.startswith(b"[") else None
    prompts: list[Any] = found if isinstance(found, list) else []  # pyright: ignore[reportUnknownVariableType]  # JSON
    return 1 if not prompts or isinstance(prompts[0], int) else len(prompts)


def headers_for_worker(
    headers: Iterable[tuple[bytes, bytes]], request_id: str
) -> tuple[tuple[bytes, bytes], ...]:
    """Return what of a request's *headers* its worker gets, and the request's id."""
    shown = tuple((name, value) for name, value in headers if name in _SHOWN)
    return (*shown, (b"x-request-id", request_id.encode("latin-1")))


def _canonical(part: bytes) -> bytes:
    """Return *part* with its fields sorted, and without what ends a list: the next turn goes on."""
    value = _value(part)
    if value is None:
        return part
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).removesuffix(b"]")
    except (TypeError, ValueError):
        return part


def _value(part: bytes) -> Any:
    """Return what *part* says; None for what this reader cannot read, such as huge numbers."""
    try:
        return orjson.loads(part)
    except ValueError:
        return None
