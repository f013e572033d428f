"""Coverage-guided fuzzing of the parsers by atheris, in an environment that has it.

``PYTHONPATH=dataplane:proto:…/site-packages PYTHON scripts/parsers/fuzz.py CORPUS -max_total_time=1200``

Of any text in any format it is demanded that nothing raises, that chunks do not matter, that no
letter of a text without calls is lost, and that the characters looked at are few for each that came.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

atheris: Any = importlib.import_module("atheris")  # there only in the fuzzer's own environment

with atheris.instrument_imports(include=["sglr_dataplane.output"]):
    from sglr_dataplane.output.calls import ToolSignature
    from sglr_dataplane.output.collect import Message, collect
    from sglr_dataplane.output.formats import (
        answer_formats,
        forced,
        grammar,
        reasoning_format,
        tool_format,
        tool_formats,
    )
    from sglr_dataplane.output.grammar import Start
    from sglr_dataplane.output.replay import Reader, at_random, by_character, one, whole

_FORMATS = [answer_formats(name) for name in sorted({tool_format(n).name for n in tool_formats()})]
_QWEN3 = reasoning_format("qwen3")
_STARTS: tuple[Start, ...] = ("outside", "inside", "off")
_TOOLS = (
    ToolSignature("f", {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}),
    ToolSignature("now"),
)
_SCRAPS = (
    *('{"name": "f"', '"arguments": {', '"a": "b"', "}", "}}", "[", "]", "{", '"', "\\", "\n", " "),
    *(
        "f",
        "now",
        "(",
        ")",
        "a=",
        "'x'",
        "-1.5",
        "true",
        ",",
        ":",
        "<",
        ">",
        "</",
        "é🙂",
        "```json",
    ),
    *(
        "<function=f>",
        "<parameter=a>",
        '<invoke name="f">',
        ' name="a">',
        "functions.f:0",
        "call:f{",
    ),
    *("text", " to=functions.f", "<think>", "</think>", "\\ud83d", '"""', "null", ' type="dict">'),
)
_LONGEST = 40


def check(data: bytes) -> None:
    """Read the text that *data* chooses in the way that it chooses."""
    source = atheris.FuzzedDataProvider(data)
    tools, reasoning = _FORMATS[source.ConsumeIntInRange(0, len(_FORMATS) - 1)]
    markers = sorted(grammar(tools, reasoning).markers())
    text = _text(source, markers)
    read_as = forced(tools, "f") if source.ConsumeBool() else tools
    start = _STARTS[source.ConsumeIntInRange(0, len(_STARTS) - 1)]
    reader = Reader(read_as, reasoning or _QWEN3, start, _TOOLS)
    seed = source.ConsumeIntInRange(0, 999)
    specials = frozenset(markers)

    spelled = [collect(reader.read(cut(text, specials))) for cut in (one, by_character)]
    spelled.append(collect(reader.read(at_random(2 * seed + 1)(text, specials))))
    tokens = [
        collect(reader.read(cut(text, specials), "stop", specials))
        for cut in (whole, at_random(2 * seed))
    ]

    if spelled[1:] != spelled[:-1] or tokens[1:] != tokens[:-1]:
        raise AssertionError(f"chunks matter: {read_as.name} {start} {text!r}")
    if not tools.channels and start == "off" and not spelled[0].tool_calls:
        _demand_letters(text, spelled[0], markers)


def _text(source: Any, markers: list[str]) -> str:
    parts: list[str] = []
    for _ in range(source.ConsumeIntInRange(0, _LONGEST)):
        kind = source.ConsumeIntInRange(0, 3)
        if kind <= 1 and markers:
            parts.append(markers[source.ConsumeIntInRange(0, len(markers) - 1)])
        elif kind == len(_STARTS):
            parts.append(source.ConsumeUnicodeNoSurrogates(4))
        else:
            parts.append(_SCRAPS[source.ConsumeIntInRange(0, len(_SCRAPS) - 1)])
    return "".join(parts)


def _demand_letters(text: str, message: Message, markers: list[str]) -> None:
    rest = text
    for marker in sorted(markers, key=len, reverse=True):
        rest = rest.replace(marker, " ")
    said = iter((message.reasoning or "") + (message.content or ""))
    if not all(letter in said for letter in filter(str.isalpha, rest)):
        raise AssertionError(f"a letter is lost: {text!r} became {message!r}")


def main() -> None:
    """Fuzz until the time is up or something breaks."""
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
