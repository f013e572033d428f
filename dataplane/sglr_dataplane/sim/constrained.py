"""What the assistant writes under a grammar: the shortest text it can think of that fits. Pure.

JSON schemas and structural tags are obeyed; regular expressions and EBNF are only checked.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sglr_dataplane.sim.instance import fill
from sglr_dataplane.sim.shapes import list_of, object_of

if TYPE_CHECKING:
    from sglr_proto.sglang import scheduler_pb2 as pb


def constrained(sampling: pb.SamplingParams, message: str) -> str | None:
    """Return a text that keeps to the grammar in *sampling*, filled with words of *message*.

    None when there is no grammar, or one that is only checked.
    """
    match sampling.WhichOneof("constraint"):
        case "json_schema":
            return _json(json.loads(sampling.json_schema), message)
        case "structural_tag":
            tag = object_of(json.loads(sampling.structural_tag))
            return (
                _format(object_of(tag.get("format")), message)
                if "format" in tag
                else _legacy(tag, message)
            )
        case _:
            return None


def _json(schema: object, message: str) -> str:
    return json.dumps(fill(schema, message), ensure_ascii=False)


def _legacy(tag: dict[str, Any], message: str) -> str | None:
    """Return the first of the older format's structures; None when none must come."""
    structures = list_of(tag.get("structures"))
    if not structures or not tag.get("at_least_one"):
        return None
    first = object_of(structures[0])
    schema = object_of(first.get("schema")) or {"type": "object"}
    return f"{first.get('begin', '')}{_json(schema, message)}{first.get('end', '')}"


def _format(form: dict[str, Any], message: str) -> str | None:
    """Return a text of xgrammar's format *form*; None where it leaves the words to the model."""
    match form.get("type"):
        case "const_string":
            return str(form.get("value", ""))
        case "json_schema":
            return _json(form.get("json_schema"), message)
        case "tag":
            ends = form.get("end", "")
            content = _format(object_of(form.get("content")), message) or ""
            return f"{form.get('begin', '')}{content}{(list_of(ends) or [ends])[0]}"
        case "sequence":
            parts = [_format(object_of(part), message) for part in list_of(form.get("elements"))]
            return "".join(part or "" for part in parts)
        case "or" | "triggered_tags" | "tags_with_separator" if _is_forced(form):
            options = list_of(form.get("elements")) or list_of(form.get("tags"))
            return _format(object_of(next(iter(options), None)), message)
        case _:
            return None


def _is_forced(form: dict[str, Any]) -> bool:
    """Return whether one of *form*'s options must come: of tags only with ``at_least_one``."""
    return form.get("type") == "or" or bool(form.get("at_least_one"))
