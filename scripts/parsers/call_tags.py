"""Compiles every family's structural tags by xgrammar and reads back what they let a model write.

``python -m parsers.call_tags --oracle PYTHON``, with ``PYTHONPATH=scripts`` and an interpreter that
has xgrammar. Ends with 1 when a tag does not compile, or when an answer that it allows is not read
as calls of the tools that it names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sglr_dataplane.output.call_tags import CallTag, calls_format
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import Message, collect
from sglr_dataplane.output.families.declare import ToolFormat
from sglr_dataplane.output.formats import answer_formats, forced, tool_format, tool_formats
from sglr_dataplane.output.replay import Reader, by_character, one

_PROPERTIES: dict[str, Any] = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "units": {"type": "string", "enum": ["c", "f"]},
    "where": {
        "type": "object",
        "properties": {"lat": {"type": "number"}},
        "required": ["lat"],
        "additionalProperties": False,
    },
}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": ["city", "days"],
    "additionalProperties": False,
}


_VALUE_ENDS: dict[str, str] = {
    "qwen_xml": "\n</parameter>",
    "minimax_xml": "</parameter>",
    "minimax_m3_xml": "]<]minimax[>[</city>",
    "deepseek_xml": "</\uff5cDSML\uff5cparameter>",
    "deepseek_v4_1_xml": "</\uff5cDSML\uff5c parameter>",
    "glm_xml": "</arg_value>",
    "cohere_xml": "</cofl:value>",
    "kimi_k3_xml": "<|close|>argument<|sep|>",
}


@dataclass(frozen=True)
class Case:
    """One grammar of one family."""

    parser: ToolFormat
    tag: CallTag
    tools: tuple[ToolSignature, ...]
    required: bool
    parallel: bool

    def __str__(self) -> str:
        strict = "strict" if self.tools[0].strict else "free"
        choice = "required" if self.required else "auto"
        several = "parallel" if self.parallel else "single"
        which = self.parser.tags.index(self.tag)
        return f"{self.parser.name}[{which}] {choice} {strict} {several}"

    def asked(self, seeds: int) -> str:
        """Return the line for the oracle."""
        format_ = calls_format(self.tag, self.tools, required=self.required, parallel=self.parallel)
        return json.dumps(
            {
                "tag": {"type": "structural_tag", "format": format_},
                "ends": [_VALUE_ENDS.get(self.tag.style, '"'), *self.tag.text[:1]],
                "seeds": seeds,
            }
        )

    def read(self, text: str) -> list[str]:
        """Return what is wrong with how *text* is read; nothing when all is right."""
        tools, reasoning = answer_formats(self.parser.name)
        reader = Reader(
            tools=forced(tools) if self.required else tools,
            reasoning=reasoning,
            signatures=self.tools,
        )
        messages = [collect(reader.read(cut(text, frozenset()))) for cut in (one, by_character)]
        problems = [*self._problems(messages[0])]
        if messages[0] != messages[1]:
            problems.append("it reads differently by character")
        return problems

    def _problems(self, message: Message) -> Iterator[str]:
        names = {tool.name for tool in self.tools}
        if self.required and not message.tool_calls:
            yield "no call is read"
        if self.required and not self.parallel and len(message.tool_calls) > 1:
            yield "there are several calls"
        for call in message.tool_calls:
            if call.name not in names:
                yield f"the call is of {call.name!r}"
            try:
                said = json.loads(call.arguments)
            except ValueError:
                yield f"the arguments are no JSON: {call.arguments!r}"
                continue
            if not isinstance(said, dict):
                yield f"the arguments are no object: {call.arguments!r}"
            elif self.tools[0].strict and not _fits(cast("dict[str, Any]", said)):
                yield f"the arguments do not fit the schema: {call.arguments!r}"


def _fits(said: dict[str, Any]) -> bool:
    """Return whether *said* fits the schema that the tag asked for."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "city": str,
        "days": (int, float),
        "units": str,
        "where": dict,
    }
    fits = all(isinstance(value, kinds.get(key, ())) for key, value in said.items())
    return fits and {"city", "days"} <= said.keys() <= kinds.keys()


def cases() -> Iterator[Case]:
    """Yield every grammar of every family that has its own tags."""
    known = {tool_format(name).name: tool_format(name) for name in tool_formats()}
    for parser in known.values():
        for tag in parser.tags:
            for strict in (True, False):
                tools = tuple(
                    ToolSignature(name, _SCHEMA, strict=strict) for name in ("get", "get.more-2")
                )
                for required in (True, False):
                    for parallel in (True, False):
                        yield Case(parser, tag, tools, required, parallel)


def main() -> int:
    """Ask the oracle about every case; print what is wrong, then the counts."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--oracle", required=True, help="a Python that has xgrammar")
    arguments.add_argument("--seeds", type=int, default=10, help="answers for each grammar")
    given = arguments.parse_args()
    script = str(Path(__file__).with_name("tag_oracle.py"))
    known = list(cases())
    asked = "\n".join(case.asked(given.seeds) for case in known)
    answer = subprocess.run(
        [given.oracle, script], input=asked, stdout=subprocess.PIPE, text=True, check=True
    )
    wrong = texts = 0
    for case, line in zip(known, answer.stdout.splitlines(), strict=True):
        told = json.loads(line)
        problems = [told["error"]] if "error" in told else []
        if not problems and not told["texts"]:
            problems.append("chance wrote no answer")
        for text in told.get("texts", ()):
            texts += 1
            problems += [f"{problem} in {text!r}" for problem in case.read(text)]
        wrong += bool(problems)
        for problem in problems[:3]:
            print(f"{case}: {problem}")
    print(
        f"{len(known) - wrong} of {len(known)} grammars compile and are read back; {texts} answers"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
