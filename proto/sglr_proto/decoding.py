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

_PLACE = re.compile(
    r"(?P<problem>.*?)(?: - at (?P<key>`key` in )?`\$\.?(?P<path>[^`]*)`)?", re.DOTALL
)
_LONGEST_SHOWN: Final = 80  # characters
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_TYPE_WORDS: Final = {
    "int": "an integer",
    "str": "a string",
    "bool": "a boolean",
    "float": "a number",
    "object": "a mapping",
    "array": "a list",
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
    shape = _bare(shape)
    if isinstance(shape, inspect.StructType) and _is_mapping(value):
        return _keep_fields(value, shape, path, owner=owner)
    if isinstance(shape, inspect.VarTupleType) and _is_list(value):
        return [
            _keep_known(item, shape.item_type, f"{path}[{index}]", owner=owner)
            for index, item in enumerate(value)
        ]
    return value


def _bare(shape: inspect.Type) -> inspect.Type:
    """Return *shape* without its bounds and without the None that it may be instead."""
    if isinstance(shape, inspect.Metadata):
        return _bare(shape.type)
    if isinstance(shape, inspect.UnionType):
        inner = [part for part in shape.types if not isinstance(part, inspect.NoneType)]
        return _bare(inner[0]) if len(inner) == 1 else shape
    return shape


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
    there = f"{path or 'the object'} is {short(_descend(value, path))}"
    if found and found["key"]:
        there = f"{path} has a wrong key"
    elif path.endswith("[...]"):  # somewhere in a mapping whose keys are the author's own
        path = path.removesuffix("[...]")
        there = f"{path} has a wrong value"
    if problem.startswith("Invalid enum value"):
        return f"{there}; expected one of {', '.join(_choices(shape, path))}.", path
    if problem.startswith("Expected "):
        return f"{there}; {_plain(problem)}.", path
    return f"{path}.{problem}." if path else f"{problem}.", path


def _plain(problem: str) -> str:
    """Return msgspec's ``Expected ...`` without Python's names for types."""
    expected = problem.partition(", got ")[0]  # what stands there says it better
    return "e" + _TYPES.sub(lambda found: _words(found[1]), expected)[1:]


def _words(types: str) -> str:
    """Return Python's names for *types*, divided by ``|``, in plain words; null goes unsaid."""
    names = [name for name in types.split(" | ") if name != "null"]
    return " or ".join(_TYPE_WORDS.get(name, name) for name in names)


def _steps(path: str) -> list[str | int]:
    """Return *path* in steps: ``a.b[0]`` is a, b and 0."""
    found = re.findall(r"\[(\d+)\]|([^.\[\]]+)", path)
    return [int(index) if index else name for index, name in found]


def _descend(value: object, path: str) -> object:
    """Return what stands at *path* in *value*; the path leads somewhere."""
    for step in _steps(path):
        if isinstance(step, int):
            value = value[step] if _is_list(value) else value
        elif _is_mapping(value):
            value = value.get(step, value)
    return value


def _choices(shape: inspect.Type, path: str) -> list[str]:
    """Return the words that the enum at *path* in *shape* takes."""
    for step in _steps(path):
        shape = _bare(shape)
        if isinstance(shape, inspect.VarTupleType):
            shape = shape.item_type
        elif isinstance(shape, inspect.DictType):
            shape = shape.value_type
        elif isinstance(shape, inspect.StructType):
            shape = next(field.type for field in shape.fields if field.encode_name == step)
    shape = _bare(shape)
    if isinstance(shape, inspect.DictType):
        shape = _bare(shape.value_type)
    if isinstance(shape, inspect.EnumType):
        return [str(member.value) for member in shape.cls]
    return [str(value) for value in getattr(shape, "values", ())]


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
