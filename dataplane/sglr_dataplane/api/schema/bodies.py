"""Reading a body: JSON into a struct, with what the table of its fields refuses refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from sglr_dataplane.api.schema import refusals
from sglr_dataplane.api.schema.fields import Field
from sglr_dataplane.prompt.json_values import path_of_nul

_NUL: Final = b"\\u0000"
"""JSON has no other way to write it."""

Body = TypeVar("Body", bound=msgspec.Struct)


class _Refused:
    """The value of a field that may have to be refused."""


class _RefusedSentError(Exception):
    """A body has such a field."""


def _give_up(_kind: type[_Refused], _value: object) -> _Refused:
    raise _RefusedSentError


class BodyReader(Generic[Body]):
    """Reads the bodies of one API: what is known of them is a struct and a table of fields."""

    def __init__(self, struct: type[Body], fields: Mapping[str, Field]) -> None:
        """Read bodies as *struct*, which has the honoured ones of *fields*."""
        self._fields = fields
        self._refused = {name: field for name, field in fields.items() if field.fate == "refused"}
        # Mostly none of these is sent: the first of them ends a decoding that need not keep them.
        usual, self._whole = self._with(struct, _Refused | None), self._with(struct, Any)
        self._usual_decoder = msgspec.json.Decoder(usual, dec_hook=_give_up)
        self._whole_decoder = msgspec.json.Decoder(self._whole)

    def _with(self, struct: type[Body], kind: Any) -> type[Body]:
        """Return *struct* with the refused fields, each of *kind* or absent."""
        fields = [(name, kind, None) for name in self._refused]
        name = f"{struct.__name__}Whole"
        made = msgspec.defstruct(name, fields, bases=(struct,), frozen=True, kw_only=True)
        return cast("type[Body]", made)

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
        if type(sent) is self._whole:
            self._refuse_unserved(sent)
        return sent

    def _decoded(self, body: bytes) -> Body:
        try:
            if not body.isascii():
                body.decode()  # the decoder skips over unknown fields without reading their text
            try:
                return self._usual_decoder.decode(body)
            except _RefusedSentError:
                return self._whole_decoder.decode(body)
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
