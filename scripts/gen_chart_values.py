"""From the values' source to defaults, JSON Schema and a table: pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Final

import yaml

Node = dict[str, Any]
_WIDTH: Final = 100
_OWN: Final = frozenset({"default", "description", "properties"})
"""Keys of the source that are not copied into the schema as they are."""

_HEAD: Final = """# Values of the chart

Generated from deploy/helm/values.source.yaml. `helm install` refuses unknown keys and wrong types.
"""


def resolved(source: Node) -> Node:
    """Return the tree of values with every ``$ref`` and ``$merge`` put in place.

    Args:
        source: The document: ``properties``, ``definitions``, ``shapes`` and ``merges``.
    """
    return _resolve({"properties": source["properties"]}, source)


def _resolve(node: Node, source: Node) -> Node:
    node = dict(node)
    if (name := node.pop("$ref", None)) is not None:
        if name in source["shapes"]:
            node.pop("default", None)
            node = {**source["shapes"][name], **node}
        else:
            node = {**source["definitions"][name], **node}
    if isinstance(node.get("items"), dict):
        node["items"] = _resolve(node["items"], source)
    if "properties" in node:
        properties = dict(node["properties"])
        if (name := properties.pop("$merge", None)) is not None:
            properties |= source["merges"][name]
        node["properties"] = {key: _resolve(value, source) for key, value in properties.items()}
    return node


def schema(tree: Node) -> Node:
    """Return the JSON Schema that Helm checks values with; unknown keys are refused."""
    # Subcharts and parents share .Values.global, which Helm adds by itself.
    root = _schema(tree)
    root["properties"]["global"] = {"type": "object", "description": "Helm's own; not used."}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of sglr", **root}


def _schema(node: Node) -> Node:
    made = {key: value for key, value in node.items() if key not in _OWN}
    if "description" in node:
        made["description"] = node["description"]
    if "properties" in node:
        made["type"] = "object"
        made["additionalProperties"] = False
        made["properties"] = {key: _schema(value) for key, value in node["properties"].items()}
    elif "default" in node:
        made["default"] = node["default"]
    return made


def defaults(tree: Node) -> str:
    """Return values.yaml: every value with its default, and its meaning above it."""
    return "".join(_lines(tree, 0))


def _lines(node: Node, depth: int) -> Iterator[str]:
    margin = "  " * depth
    for key, value in node["properties"].items():
        if depth == 0:
            yield "\n"
        for line in textwrap.wrap(value["description"], _WIDTH - len(margin) - 2):
            yield f"{margin}# {line}\n"
        if "properties" in value:
            yield f"{margin}{key}:\n"
            yield from _lines(value, depth + 1)
        else:
            text = yaml.safe_dump({key: value["default"]}, sort_keys=False, width=_WIDTH)
            yield textwrap.indent(text, margin)


def table(tree: Node) -> str:
    """Return the reference of all values as Markdown."""
    parts = [_HEAD]
    top = {k: v for k, v in tree["properties"].items() if "properties" not in v}
    parts += _section("General", "", {"properties": top, "description": "For everything."})
    for key, value in tree["properties"].items():
        if "properties" in value:
            parts += _section(f"`{key}`", f"{key}.", value)
    return "".join(parts)


def _section(title: str, prefix: str, node: Node) -> Iterator[str]:
    yield f"\n## {title}\n\n{node['description']}\n\n| value | default | meaning |\n| --- | --- | --- |\n"
    for path, leaf in _leaves(prefix, node):
        default = yaml.safe_dump(leaf["default"], default_flow_style=True, width=10_000)
        default = default.removesuffix("\n").removesuffix("\n...")
        choices = ", ".join(f"`{each}`" for each in leaf.get("enum", ()))
        meaning = leaf["description"] + (f" One of {choices}." if choices else "")
        yield f"| `{path}` | `{default}` | {meaning.replace('|', '&#124;')} |\n"


def _leaves(prefix: str, node: Node) -> Iterator[tuple[str, Node]]:
    for key, value in node["properties"].items():
        if "properties" in value:
            yield from _leaves(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value
