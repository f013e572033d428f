"""From decoded JSON or YAML to frozen structs, with sentences that name the path.

msgspec says what is wrong with a value. Added here: the object's own words (``spec.model.nmae``,
not ``$.spec.model``), the value that stands there, a list of what would be right, and a choice
between refusing unknown fields (files) and ignoring them (an API server, a newer peer).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeGuard, TypeVar

import msgspec
from msgspec import inspect

from sglr_proto.errors import ManifestError

_StructT = TypeVar("_StructT", bound=msgspec.Struct)

_PLACE = re.compile(r"(?P<problem>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_LONGEST_SHOWN: Final = 80  # characters
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_TYPE_WORDS: Final = {
    "`int`": "an integer",
    "`str`": "a string",
    "`bool`": "a boolean",
    "`float`": "a number",
    "`object`": "a mapping",
    "`array`": "a list",
    "`null`": "null",
}


def decode(value: object, wanted: type[_StructT], *, owner: str, lenient: bool) -> _StructT:
    """Return *value* as a *wanted*.

    A field that is null counts as absent, as an API server has it. A struct class may name fields
    in ``tolerated: ClassVar[frozenset[str]]`` that are neither kept nor refused.

    Args:
        value: What a JSON or YAML parser made: mappings, lists and scalars.
        wanted: The struct to make of it.
        owner: The object in an error's sentence, such as ``SGLangBackend 'default/qwen'``.
        lenient: Whether unknown fields are ignored; else they are errors.

    Raises:
        ManifestError: The value is not a *wanted*; the error names the path.
    """
    known = _keep_known(value, _shape(wanted), "", owner=None if lenient else owner)
    try:
        return msgspec.convert(known, wanted)
    except msgspec.ValidationError as error:
        problem, path = _explain(str(error), known, _shape(wanted))
        raise ManifestError(problem, path=path, owner=owner) from error


@cache
def _shape(wanted: type[msgspec.Struct]) -> inspect.Type:
    """Return the fields of *wanted*, all the way down; reading them anew costs too much."""
    return inspect.type_info(wanted)


def _keep_known(value: object, shape: inspect.Type, path: str, *, owner: str | None) -> object:
    """Return *value* without nulls and without fields that *shape* has not.

    Args:
        value: Any part of the object.
        shape: The type expected there.
        path: Where it stands.
        owner: Whose unknown fields are errors; None drops them.

    Raises:
        ManifestError: An unknown field, and *owner* is not None.
    """
    if isinstance(shape, inspect.Metadata):
        return _keep_known(value, shape.type, path, owner=owner)
    if isinstance(shape, inspect.StructType) and _is_mapping(value):
        return _keep_fields(value, shape, path, owner=owner)
    if isinstance(shape, inspect.VarTupleType) and _is_list(value):
        return [
            _keep_known(item, shape.item_type, f"{path}[{index}]", owner=owner)
            for index, item in enumerate(value)
        ]
    if isinstance(shape, inspect.UnionType):
        inner = [part for part in shape.types if not isinstance(part, inspect.NoneType)]
        return _keep_known(value, inner[0], path, owner=owner) if len(inner) == 1 else value
    return value


def _keep_fields(
    value: Mapping[Any, object], shape: inspect.StructType, path: str, *, owner: str | None
) -> dict[str, object]:
    """Return the fields of *value* that *shape* knows; see :func:`_keep_known`."""
    fields = {field.encode_name: field.type for field in shape.fields}
    tolerated: frozenset[str] = getattr(shape.cls, "tolerated", frozenset())
    kept: dict[str, object] = {}
    for name, inner in value.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in fields:
            if owner is not None and name not in tolerated:
                raise ManifestError(_unknown(where, str(name), fields), path=where, owner=owner)
        elif inner is not None:
            kept[name] = _keep_known(inner, fields[name], where, owner=owner)
    return kept


def _unknown(path: str, name: str, fields: Mapping[str, object]) -> str:
    """Return the sentence about an unknown field, with the likeliest one that was meant."""
    close = difflib.get_close_matches(name, fields, n=1)
    meant = f"did you mean {close[0]}? The" if close else "the"
    return f"{path} is unknown; {meant} fields here are {', '.join(fields)}."


def _explain(message: str, value: object, shape: inspect.Type) -> tuple[str, str]:
    """Return msgspec's *message* as our sentence, and the path that it is about."""
    found = _PLACE.fullmatch(message)
    problem, path = (found["problem"], found["path"] or "") if found else (message, "")
    if missing := _MISSING.fullmatch(problem):
        path = f"{path}.{missing['field']}" if path else missing["field"]
        return f"{path} is missing.", path
    if problem.startswith("Invalid enum value"):
        choices = ", ".join(_choices(_descend_shape(shape, path)))
        return f"{path} is {short(_descend(value, path))}; expected one of {choices}.", path
    if problem.startswith("Expected "):
        expected = problem.partition(", got ")[0]  # what stands there says it better
        for word, plain in _TYPE_WORDS.items():
            expected = expected.replace(word, plain)
        there = f"{path or 'the object'} is {short(_descend(value, path))}"
        return f"{there}; e{expected[1:]}.", path
    return f"{path}.{problem}." if path else f"{problem}.", path


def _steps(path: str) -> list[str | int]:
    """Return *path* in steps: ``a.b[0]`` is a, b and 0."""
    return [
        int(step[1:-1]) if step[0] == "[" else step for step in re.findall(r"\[\d+\]|[^.\[]+", path)
    ]


def _descend(value: object, path: str) -> object:
    """Return what stands at *path* in *value*; the innermost that exists where it breaks off."""
    for step in _steps(path):
        if isinstance(step, int):
            value = value[step] if _is_list(value) and step < len(value) else value
        elif _is_mapping(value):
            value = value.get(step, value)
    return value


def _descend_shape(shape: inspect.Type, path: str) -> inspect.Type:
    """Return the type at *path* in *shape*."""
    for step in _steps(path):
        while isinstance(shape, inspect.Metadata):
            shape = shape.type
        if isinstance(shape, inspect.VarTupleType) and isinstance(step, int):
            shape = shape.item_type
        elif isinstance(shape, inspect.StructType):
            shape = next(field.type for field in shape.fields if field.encode_name == step)
    return shape


def _choices(shape: inspect.Type) -> list[str]:
    """Return the words that an enum or literal takes."""
    if isinstance(shape, inspect.Metadata):
        return _choices(shape.type)
    if isinstance(shape, inspect.EnumType):
        return [str(member.value) for member in shape.cls]
    if isinstance(shape, inspect.LiteralType):
        return [str(value) for value in shape.values]
    return []


def short(value: object) -> str:
    """Return *value* as a sentence can hold it: at most 80 characters."""
    if _is_mapping(value):
        return "a mapping"
    if _is_list(value):
        return f"a list of {len(value)}"
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 4]}...{shown[-1]}"


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, object]]:
    """Return whether *value* has fields."""
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Return whether *value* has items (a string has none)."""
    return isinstance(value, list | tuple)
