"""The one grammar of a request, from whichever of its many names a client uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sglr_dataplane.api.schema.json_schemas import check_schema
from sglr_dataplane.api.schema.refusals import invalid, missing, mistyped
from sglr_dataplane.job import Constraint, ConstraintKind
from sglr_dataplane.prompt.constraint import compact
from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.ranges import shown

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_MAX_CHOICES = 1024


def grammar_of(fields: Mapping[str, Any]) -> Constraint | None:
    """Return the grammar that *fields* ask for; None when the model may write freely.

    Args:
        fields: The request's grammar fields, by name; None where unset.

    Raises:
        InvalidRequestError: A field is malformed, or two ask for different grammars.
    """
    found: dict[str, Constraint] = {}
    for name, read in _READERS.items():
        value = fields.get(name)
        constraint = None if value is None else read(name, value)
        if constraint is not None:
            found[name] = constraint
    if len(found) > 1:
        first, second, *_ = found
        raise invalid(second, f"a request can have one grammar, and '{first}' is one already")
    return next(iter(found.values()), None)


def native_grammar_of(*fields: tuple[ConstraintKind, str | None]) -> Constraint | None:
    """Return the grammar of SGLang's own ``sampling_params``, whose *fields* are the wire's.

    Raises:
        InvalidRequestError: One is empty, or there are two.
    """
    found: list[tuple[ConstraintKind, str]] = [
        (kind, source) for kind, source in fields if source is not None
    ]
    if len(found) > 1:
        raise invalid(f"sampling_params.{found[1][0]}", "a request can have one grammar")
    for kind, source in found:
        if not source:
            raise invalid(f"sampling_params.{kind}", "expected a grammar, but got an empty text")
        return Constraint(kind, source)
    return None


def _response_format(param: str, value: Any) -> Constraint | None:
    if not is_object(value):
        raise mistyped(param, "an object", value)
    kind = value.get("type")
    if kind is None:
        raise missing(f"{param}.type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Constraint("json_schema", compact({"type": "object"}))
    if kind == "json_schema":
        return _named_schema(f"{param}.json_schema", value.get("json_schema"))
    if kind == "structural_tag":
        return Constraint("structural_tag", compact(value))
    raise invalid(
        f"{param}.type",
        f"expected 'text', 'json_object', 'json_schema' or 'structural_tag', but got {shown(kind)}",
    )


def _named_schema(param: str, value: Any) -> Constraint:
    if value is None:
        raise missing(param)
    if not is_object(value):
        raise mistyped(param, "an object", value)
    name = value.get("name")
    if name is None:
        raise missing(f"{param}.name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{param}.name",
            f"expected 1 to 64 of letters, digits, '_' and '-', but got {shown(name)}",
        )
    if value.get("schema") is None:
        raise missing(f"{param}.schema")
    if not is_object(value["schema"]):
        raise mistyped(f"{param}.schema", "an object", value["schema"])
    check_schema(value["schema"], f"{param}.schema")
    return Constraint("json_schema", compact(value["schema"]))


def _schema(param: str, value: Any) -> Constraint:
    if is_object(value):
        check_schema(value, param)
        return Constraint("json_schema", compact(value))
    if isinstance(value, str):
        return Constraint("json_schema", _text(param, value).source)
    raise mistyped(param, "an object or its text", value)


def _text(param: str, value: Any) -> Constraint:
    return Constraint("json_schema", _required_text(param, value))


def _required_text(param: str, value: Any) -> str:
    if not isinstance(value, str):
        raise mistyped(param, "a string", value)
    if not value:
        raise invalid(param, "expected a grammar, but got an empty string")
    return value


def _regex(param: str, value: Any) -> Constraint:
    return Constraint("regex", _required_text(param, value))


def _ebnf(param: str, value: Any) -> Constraint:
    return Constraint("ebnf_grammar", _required_text(param, value))


def _choices(param: str, value: Any) -> Constraint:
    if not is_array(value):
        raise mistyped(param, "an array of strings", value)
    if not value:
        raise invalid(param, "expected at least one choice", "empty_array")
    if len(value) > _MAX_CHOICES:
        raise invalid(param, f"expected at most {_MAX_CHOICES} choices", "array_above_max_length")
    choices = [_required_text(f"{param}[{at}]", choice) for at, choice in enumerate(value)]
    escaped = [_SPECIAL.sub(r"\\\g<0>", choice) for choice in choices]
    return Constraint("regex", f"({'|'.join(escaped)})")


def _json_object(param: str, value: Any) -> Constraint | None:
    if not isinstance(value, bool):
        raise mistyped(param, "a boolean", value)
    return Constraint("json_schema", compact({"type": "object"})) if value else None


def _structural_tag(param: str, value: Any) -> Constraint:
    if isinstance(value, str):
        return Constraint("structural_tag", _required_text(param, value))
    if not is_object(value):
        raise mistyped(param, "an object", value)
    return Constraint("structural_tag", compact(value))


def _structured_outputs(param: str, value: Any) -> Constraint | None:
    if not is_object(value):
        raise mistyped(param, "an object", value)
    found: list[Constraint] = []
    for name, member in value.items():
        if member is None:
            continue
        read = _STRUCTURED.get(name)
        if read is None:
            raise invalid(f"{param}.{name}", f"expected one of {', '.join(_STRUCTURED)}")
        constraint = read(f"{param}.{name}", member)
        if constraint is not None:
            found.append(constraint)
    if len(found) > 1:
        raise invalid(param, "a request can have one grammar, and this holds several")
    return found[0] if found else None


_Reader = Callable[[str, Any], Constraint | None]

_STRUCTURED: Mapping[str, _Reader] = MappingProxyType(
    {
        "json": _schema,
        "regex": _regex,
        "choice": _choices,
        "grammar": _ebnf,
        "json_object": _json_object,
        "structural_tag": _structural_tag,
    }
)
_READERS: Mapping[str, _Reader] = MappingProxyType(
    {
        "response_format": _response_format,
        "regex": _regex,
        "ebnf": _ebnf,
        "guided_json": _schema,
        "guided_regex": _regex,
        "guided_grammar": _ebnf,
        "guided_choice": _choices,
        "structured_outputs": _structured_outputs,
    }
)
