"""Every family's grammar of calls, compiled by a real SGLang and read back from what it generates.

Run with ``--router``: the base URL of a router whose backend reads no calls and no thoughts, so that
the text comes as it was generated. The model is random: what its text has of form is the grammar's.
Ends with 1 when the engine refuses a grammar, or its text is not read as the one call it allows.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from interop.cases import CHAT, MODEL
from parsers.call_tags import Case

from sglr_dataplane.output.call_tags import calls_format
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import collect
from sglr_dataplane.output.formats import answer_formats, forced, tool_format, tool_formats
from sglr_dataplane.output.replay import Reader, by_character

_SECONDS: Final = 300.0
_TRIES: Final = 3
"""Chance may go on in a number for long: one of so many answers must come to its end."""
_AT_ONCE: Final = 16
_NO_SPACES: Final = {str(token_id): 30 for token_id in range(94)}
"""In the tokenizer of the model these are the printable characters, each a token."""
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"units": {"type": "string", "enum": ["c", "f"]}, "exact": {"type": "boolean"}},
    "required": ["units", "exact"],
    "additionalProperties": False,
}
_TOOL: Final = ToolSignature("get_weather", _SCHEMA, strict=True)
_ALLOWED: Final = [{"units": u, "exact": e} for u in ("c", "f") for e in (True, False)]


def cases() -> Iterator[Case]:
    """Yield a grammar of one required call for each tag of each family."""
    known = {tool_format(name).name: tool_format(name) for name in tool_formats()}
    for parser in known.values():
        for tag in parser.tags:
            yield Case(parser, tag, (_TOOL,), required=True, parallel=False)


def problem(base_url: str, case: Case) -> str:
    """Return what is wrong with the answer to *case*; ``""`` when nothing is."""
    text = ""
    for _ in range(_TRIES):
        status, answer = _ask(base_url, case)
        if status != HTTPStatus.OK:
            return f"{status}: {json.dumps(answer)[:300]}"
        (choice,) = answer["choices"]
        text = choice["message"]["content"] or ""
        if choice["finish_reason"] == "stop":
            said = _misread(case, text)
            return f"{text!r} is read as {said}" if said else ""
        if case.tag.text:
            return ""  # chance does not spell the marker that ends the text before the calls
    return f"no answer came to its end, as {text!r} did not"


def _ask(base_url: str, case: Case) -> tuple[int, Any]:
    format_ = calls_format(case.tag, case.tools, required=True, parallel=False)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "How is the weather?"}],
        "response_format": {"type": "structural_tag", "format": format_},
        "chat_template_kwargs": {"enable_thinking": False},
        "skip_special_tokens": False,
        "logit_bias": _NO_SPACES,
        "max_tokens": 400,
    }
    request = urllib.request.Request(  # noqa: S310  # the router that was named
        base_url + CHAT, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as reply:  # noqa: S310  # same
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def _misread(case: Case, text: str) -> str:
    tools, reasoning = answer_formats(case.parser.name)
    reader = Reader(tools=forced(tools), reasoning=reasoning, signatures=case.tools)
    message = collect(reader.read(by_character(text, frozenset())))
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    read = len(calls) == 1 and calls[0][0] == _TOOL.name and json.loads(calls[0][1]) in _ALLOWED
    return "" if read else repr(calls)


def main() -> int:
    """Ask for every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", required=True, help="base URL of the router")
    arguments = parser.parse_args()
    known = list(cases())
    wrong = 0
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = threads.map(partial(problem, arguments.router), known)
        for case, wrongs in zip(known, found, strict=True):
            wrong += bool(wrongs)
            print(
                f"{'WRONG' if wrongs else 'right':6} {case}{': ' if wrongs else ''}{wrongs}",
                flush=True,
            )
    print(f"{len(known)} grammars, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
