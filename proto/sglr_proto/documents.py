"""YAML documents as people and programs write them, read within bounds.

Stricter than a YAML parser by itself: a key that stands there twice is an error, because one of
the two would be lost in silence; and what aliases stand for counts as often as it is named, so
that a small file cannot grow in memory.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import yaml

from sglr_proto.errors import ManifestError

MAX_BYTES: Final = 1024 * 1024
"""Longest text in UTF-8: 1 MiB, about 40,000 endpoints; an API server takes 1.5 MiB an object."""

MAX_NODES: Final = 300_000
"""Most keys and values, aliases counted in full: more than 1 MiB of the shortest endpoints has."""

MAX_DEPTH: Final = 64
"""Deepest nesting; a SGLangBackend has 7."""

_LOADER: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Constructor(yaml.constructor.SafeConstructor):
    """Makes plain values of nodes; a date stays the string that it was."""

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **yaml.constructor.SafeConstructor.yaml_constructors,
        "tag:yaml.org,2002:timestamp": yaml.constructor.SafeConstructor.construct_yaml_str,  # pyright: ignore[reportUnknownMemberType]  # no type in its stub
    }


def read_documents(text: str) -> list[tuple[str, object]]:
    """Return each document that is not empty: its place (``document 2 (line 14)``) and its value.

    Args:
        text: YAML; documents are divided by ``---``.

    Raises:
        ManifestError: It is too large, nested too deeply, not YAML, or has a key twice.
    """
    _refuse_oversize(text)
    found: list[tuple[str, object]] = []
    for number, node in enumerate(_compose(text), start=1):
        place = f"document {number} (line {_line(node)})"
        _refuse_duplicate_keys(node, place)
        value = _construct(node, place)
        if value is not None:
            found.append((place, value))
    return found


def _refuse_oversize(text: str) -> None:
    """Raise if *text* is longer than is read here, or no Unicode text at all."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        place = _place(text, error.start)
        raise ManifestError(f"Half a surrogate pair stands {place}; expected UTF-8.") from error
    if size > MAX_BYTES:
        raise ManifestError(f"The manifest has {size} bytes; at most {MAX_BYTES} are read.")


def _compose(text: str) -> list[yaml.Node]:
    """Return the node tree of each document; aliases share nodes.

    Raises:
        ManifestError: The text is not YAML, or not within the bounds.
    """
    try:
        _refuse_bombs(text)
        return list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise ManifestError(f"The manifest is not YAML: {_syntax(error)}.") from error
    except yaml.reader.ReaderError as error:
        code = int(error.character)
        place = _place(text, max(text.find(chr(code)), 0))
        raise ManifestError(f"U+{code:04X} stands {place}; YAML does not allow it.") from error


def _refuse_bombs(text: str) -> None:
    """Raise if *text* is nested too deeply, or grows too large once its aliases are followed.

    Works on events, one after the other: composing a tree is recursive, and comes too late.
    """
    sizes: dict[str | None, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor, 1)  # undefined: composing says so
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            sizes[event.anchor] = MAX_NODES + 1  # an alias within its own anchor is endless
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = total - before
        if len(open_nodes) > MAX_DEPTH:
            line = _line(event)
            raise ManifestError(f"Line {line} is nested deeper than {MAX_DEPTH} levels.")
        if total > MAX_NODES:
            line = _line(event)
            raise ManifestError(
                f"Line {line} brings the manifest above {MAX_NODES} values, aliases followed."
            )


def _refuse_duplicate_keys(root: yaml.Node, document: str) -> None:
    """Raise if a mapping below *root* has a key twice; YAML would keep the last one only."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            _refuse_twins([key for key, _ in node.value], document)
            children = [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = list(node.value)
        fresh = [child for child in children if id(child) not in seen]
        seen.update(id(child) for child in fresh)
        waiting.extend(fresh)


def _refuse_twins(keys: list[yaml.Node], document: str) -> None:
    """Raise if two of one mapping's *keys* are the same scalar."""
    first: dict[tuple[str, str], yaml.Node] = {}
    for key in keys:
        if not isinstance(key, yaml.ScalarNode):
            continue  # a mapping or list as a key: the constructor says that it cannot be one
        earlier = first.setdefault((key.tag, key.value), key)
        if earlier is not key:
            raise ManifestError(
                f"{key.value} stands twice, in line {_line(earlier)} and in line "
                f"{_line(key)}; expected it once.",
                path=key.value,
                document=document,
            )


def _construct(node: yaml.Node, document: str) -> object:
    """Return the plain value of *node*."""
    try:
        return _Constructor().construct_document(node)  # pyright: ignore[reportUnknownMemberType]  # no type in its stub
    except yaml.MarkedYAMLError as error:
        raise ManifestError(f"{_syntax(error)}.", document=document) from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        # PyYAML lets these out where a value does not fit an explicit tag, such as `!!int x`.
        raise ManifestError("a value does not fit its tag.", document=document) from error


def _line(part: yaml.Node | yaml.Event) -> int:
    """Return the line that *part* starts in, counted from 1."""
    return part.start_mark.line + 1 if part.start_mark else 1


def _syntax(error: yaml.MarkedYAMLError) -> str:
    """Return what the parser says, in one line with the place."""
    mark = error.problem_mark or error.context_mark
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return " ".join(filter(None, (error.context, error.problem))) + place


def _place(text: str, index: int) -> str:
    """Return where the character at *index* stands, counted from 1."""
    before = text[:index]
    line, column = before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1
    return f"in line {line}, column {column}"
