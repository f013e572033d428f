"""Reading a body: JSON into a struct, with what the table of its fields refuses refused."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from sglr_dataplane.api.schema import refusals
from sglr_dataplane.api.schema.fields import Field
from sglr_dataplane.prompt.json_values import path_of_nul

_NUL: Final = b"\\u0000"
"""JSON has no other way to write it."""

Body = TypeVar("Body", bound=msgspec.Struct)


class BodyReader(Generic[Body]):
    """Reads the bodies of one API: what is known of them is a struct and a table of fields."""

    def __init__(self, struct: type[Body], fields: Mapping[str, Field]) -> None:
        """Read bodies as *struct*, which has the honoured ones of *fields*."""
        self._fields = fields
        self._refused = {name: field for name, field in fields.items() if field.fate == "refused"}
        # With anything to be refused at least two names: of one alone, attrgetter returns no tuple.
        self._values = attrgetter("__class__", *self._refused)
        # The table decides what is refused, so these fields are made from it.
        whole = msgspec.defstruct(
            f"{struct.__name__}Whole",
            [(name, Any, None) for name in self._refused],
            bases=(struct,),
            frozen=True,
            kw_only=True,
        )
        self._nothing = (whole, *(None for _ in self._refused))
        self._decoder = cast("msgspec.json.Decoder[Body]", msgspec.json.Decoder(whole))

    def read(self, body: bytes) -> Body:
        """Return what *body* says.

        Raises:
            InvalidJsonError: *body* is not JSON, or nested too deeply.
            InvalidRequestError: A field has the wrong type or is refused; *param* is its path.
        """
        try:
            sent = self._decoded(body)
            if _NUL in body:  # "\\u0000" may be text too
                self._refuse_nul(body)
        except RecursionError as error:
            raise refusals.too_deep() from error
        if self._values(sent) != self._nothing:
            self._refuse_unserved(sent)
        return sent

    def _decoded(self, body: bytes) -> Body:
        try:
            if not body.isascii():
                body.decode()  # the decoder skips over unknown fields without reading their text
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise refusals.of_validation(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise refusals.of_text(body, error) from error

    def _refuse_nul(self, body: bytes) -> None:
        value = msgspec.json.decode(body)
        known = {name: item for name, item in value.items() if name in self._fields}
        path = path_of_nul(known)
        if path is not None:
            raise refusals.invalid(path, "a NUL character (\\u0000) cannot be part of a request")

    def _refuse_unserved(self, sent: Body) -> None:
        for name, field in self._refused.items():
            value = getattr(sent, name)
            if value is not None and not any(_same(value, neutral) for neutral in field.neutral):
                raise refusals.invalid(name, f"it is not supported: {field.note}")


def _same(value: Any, neutral: Any) -> bool:
    """Return whether they are equal and of one kind: JSON's false is no 0."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)
