"""The filters and methods that can make a huge value from small ones, with their sizes checked.

Each checks how large its result would be before it makes it; what they return within the limits
is what jinja2's and Python's own return. Every list, tuple and dict that a template makes is weighed
when it is made, here and in :mod:`sglr_dataplane.prompt.sandbox`: what is printed, compared or
sorted later is then of a size that was allowed, and needs no second look.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from jinja2 import Environment
from jinja2 import filters as builtin
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.utils import pass_context

from sglr_dataplane.prompt.budget import Budget, budget_of

_WIDEST = 1000
"""Columns, items or digits a template may ask for in one field; prompts have no wider tables."""
_WIDE_FIELD = re.compile(r"\d{4,}|%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")
"""A width or precision of four digits or more, or one that is itself taken from the arguments."""


def check_format(template: str) -> None:
    """Refuse a format string whose fields may be wide.

    Raises:
        SecurityError: A field has a width of four digits or more, or a computed one.
    """
    if ("%" in template or "{" in template) and _WIDE_FIELD.search(template):
        raise SecurityError("format strings with fields wider than 999 are not rendered")


def formatted_size(template: str, largest: int) -> int:
    """Return the most characters *template* can have when its values have up to *largest*."""
    return len(template) + max(template.count("%"), template.count("{")) * largest


def checked_arguments(
    budget: Budget, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return *args* for *method*, if it is no string's method whose result exceeds *budget*."""
    text = getattr(getattr(method, "__wrapped__", method), "__self__", None)
    if not isinstance(text, str):
        return args
    name = getattr(method, "__name__", "")
    if name in ("format", "format_map"):
        largest = max(map(budget.weigh, (*args, *kwargs.values())), default=0)
        budget.make(formatted_size(text, largest))
    if name == "join" and args:  # what is given may be a generator: gone after it was measured
        args = (list(args[0]), *args[1:])
    size = _SIZES.get(name)
    if size is not None:
        budget.make(size(text, *args, **kwargs))
    return args


def _joined_size(separator: str, parts: list[Any]) -> int:
    return sum(len(separator) + len(part) for part in parts if isinstance(part, str))


def _replaced_size(text: str, old: str, new: str, count: int = -1) -> int:
    times = text.count(old)
    if count >= 0:
        times = min(times, count)
    return len(text) + times * max(len(new) - len(old), 0)


def _padded_size(text: str, width: int, *_: Any) -> int:
    return max(len(text), width)


def _tabbed_size(text: str, tabsize: int = 8) -> int:
    return len(text) + text.count("\t") * tabsize


_SIZES: Mapping[str, Callable[..., int]] = MappingProxyType(
    {
        "join": _joined_size,
        "replace": _replaced_size,
        "center": _padded_size,
        "ljust": _padded_size,
        "rjust": _padded_size,
        "zfill": _padded_size,
        "expandtabs": _tabbed_size,
    }
)


def _narrow(*numbers: Any) -> None:
    for number in numbers:
        size = len(number) if isinstance(number, str) else number
        if isinstance(size, int) and abs(size) > _WIDEST:
            raise SecurityError(f"a width, depth or count of {size} is more than {_WIDEST}")


@pass_context
def _tojson(  # the parameters are transformers': templates name them
    context: Context,
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    _narrow(indent, *(separators or ()))
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    budget_of(context).make(len(text))
    return text


@pass_context
def _join(
    context: Context, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        value = map(builtin.make_attrgetter(context.environment, attribute), value)
    separator, texts, size = str(d), list[str](), 0
    for item in value:
        texts.append(str(item))
        size += len(separator) + len(texts[-1])
        budget_of(context).fits(size)
    budget_of(context).make(size)
    return separator.join(texts)


@pass_context
def _replace(context: Context, s: str, old: str, new: str, count: int | None = None) -> str:
    s, old, new = str(s), str(old), str(new)
    times = -1 if count is None else count
    budget_of(context).make(_replaced_size(s, old, new, times))
    return s.replace(old, new, times)


@pass_context
def _format(context: Context, value: str, *args: Any, **kwargs: Any) -> str:
    check_format(str(value))
    largest = max(map(budget_of(context).weigh, (*args, *kwargs.values())), default=0)
    budget_of(context).make(formatted_size(str(value), largest))
    return builtin.do_format(value, *args, **kwargs)


@pass_context
def _indent(
    context: Context,
    s: str,
    width: int | str = 4,
    first: bool = False,  # noqa: FBT001, FBT002  # jinja2's parameters
    blank: bool = False,  # noqa: FBT001, FBT002
) -> str:
    _narrow(width)
    step = len(width) if isinstance(width, str) else width
    budget_of(context).make(len(s) + (s.count("\n") + 1) * step)
    return builtin.do_indent(s, width, first, blank)


@pass_context
def _center(context: Context, value: str, width: int = 80) -> str:
    _narrow(width)
    budget_of(context).step()
    return str(value).center(width)


@pass_context
def _round(
    context: Context,
    value: float,
    precision: int = 0,
    method: Literal["common", "ceil", "floor"] = "common",
) -> float:
    budget_of(context).step()
    _narrow(precision)
    return builtin.do_round(value, precision, method)


@pass_context
def _list(context: Context, value: Iterable[Any]) -> list[Any]:
    items = list(value)
    budget_of(context).weigh(items)
    return items


@pass_context
def _batch(
    context: Context, value: Iterable[Any], linecount: int, fill_with: Any = None
) -> Iterator[list[Any]]:
    budget_of(context).step()
    _narrow(linecount)
    return builtin.do_batch(value, linecount, fill_with)


@pass_context
def _sum(
    context: Context,
    iterable: Iterable[Any],
    attribute: str | int | None = None,
    start: Any = 0,
) -> Any:
    budget_of(context).step()
    if not isinstance(start, int | float):
        raise SecurityError("only numbers are summed")
    return builtin.sync_do_sum(context.environment, iterable, attribute, start)


def _reversed(_: Environment, value: Iterable[Any]) -> Iterable[Any]:
    return builtin.do_reverse(value)


def _weighed(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter *make*, whose first parameter is the environment, weighing its result."""

    @pass_context
    def weighed(context: Context, *args: Any, **kwargs: Any) -> Any:
        made = make(context.environment, *args, **kwargs)
        budget_of(context).weigh(made)
        return made

    return weighed


FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "tojson": _tojson,
        "join": _join,
        "replace": _replace,
        "format": _format,
        "indent": _indent,
        "center": _center,
        "round": _round,
        "list": _list,
        "batch": _batch,
        "sum": _sum,
        "sort": _weighed(builtin.do_sort),
        "groupby": _weighed(builtin.sync_do_groupby),
        "reverse": _weighed(_reversed),
    }
)
