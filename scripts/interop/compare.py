"""Compares the router with SGLang's own HTTP server, case by case.

Run with ``--reference`` and ``--router`` base URLs; prints one line a case and ends with 1 when an
unexplained difference was found.
"""

from __future__ import annotations

import argparse
import http
import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interop.cases import CASES, Case

_SECONDS = 120.0
_PAUSE = 5.0
_SAME_LOGPROB = 0.02
"""Kernels batch differently from run to run; bfloat16 has three digits."""
_ENDS = "its process ends"
"""What a case says that the reference does not survive."""
_DRAWN = frozenset({"text", "finish", "logprobs", "usage"})
"""What of an answer is drawn."""


@dataclass(frozen=True)
class Answer:
    """What is compared of an answer."""

    status: int
    aspects: Mapping[str, Any]
    text: str


def ask(base_url: str, case: Case, *, tries: int = 3) -> Answer:
    """Return the answer of the server at *base_url*; a 503 is asked again, as SDKs do.

    On a machine that is busy with other things an engine that compiles its first kernel of a kind
    reports for a while that it is not serving.
    """
    answer = _ask(base_url, case)
    if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE and tries > 1:
        time.sleep(_PAUSE)
        return ask(base_url, case, tries=tries - 1)
    return answer


def _ask(base_url: str, case: Case) -> Answer:
    request = urllib.request.Request(  # noqa: S310  # the two servers that were named
        base_url + case.path,
        data=json.dumps(case.body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as reply:  # noqa: S310  # same
            status, body = reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, {}, f"no answer: {error}")
    if status >= http.HTTPStatus.BAD_REQUEST:
        return Answer(status, {}, body)
    frames = _frames(body) if case.body.get("stream") else [json.loads(body)]
    return Answer(status, _aspects(frames), body)


def _frames(body: str) -> list[Any]:
    data = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def _aspects(frames: list[Any]) -> dict[str, Any]:
    """Return what *frames*, one answer or the chunks of a stream, say in all."""
    if isinstance(frames[0], list) or "meta_info" in frames[0]:
        return _native_aspects(frames)
    if "choices" not in frames[0]:
        return {name: frames[0].get(name) for name in ("tokens", "count", "text")}
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    logprobs: dict[int, list[float]] = {}
    usage: Any = None
    for frame in frames:
        usage = frame.get("usage") or usage
        for choice in frame["choices"]:
            index = choice["index"]
            said = choice.get("message") or choice.get("delta") or {}
            parts = (said.get("reasoning_content"), said.get("content"), choice.get("text"))
            texts[index] = texts.get(index, "") + "".join(part or "" for part in parts)
            if choice.get("finish_reason"):
                reasons[index] = choice["finish_reason"]
            logprobs.setdefault(index, []).extend(_values(choice.get("logprobs")))
    counted = usage and {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
    return {"text": texts, "finish": reasons, "logprobs": logprobs, "usage": counted}


def _native_aspects(frames: list[Any]) -> dict[str, Any]:
    """Return what the answers of SGLang's own API say; events may repeat all so far, or not."""
    items: dict[int, list[Any]] = {}
    for frame in frames:
        for at, item in enumerate(frame if isinstance(frame, list) else [frame]):
            items.setdefault(item.get("index", at), []).append(item)
    ends = {index: told[-1]["meta_info"] for index, told in items.items()}
    return {
        "text": {index: _said(told) for index, told in items.items()},
        "finish": {index: end["finish_reason"]["type"] for index, end in ends.items()},
        "usage": {
            index: {name: end[name] for name in ("prompt_tokens", "completion_tokens")}
            for index, end in ends.items()
        },
        "logprobs": {
            index: [row[0] for kind in ("input", "output")
                    for row in end.get(f"{kind}_token_logprobs") or () if row[0] is not None]
            for index, end in ends.items()
        },
    }  # fmt: skip


def _said(told: list[Any]) -> str:
    last = told[-1]
    if len(last["output_ids"]) == last["meta_info"]["completion_tokens"]:
        return str(last["text"])
    return "".join(item["text"] for item in told)


def _values(logprobs: Any) -> list[float]:
    if not logprobs:
        return []
    if "content" in logprobs:
        return [entry["logprob"] for entry in logprobs["content"] or ()]
    return [value for value in logprobs["token_logprobs"] if value is not None]


def differences(reference: Answer, router: Answer, ignored: frozenset[str]) -> list[str]:
    """Return the names of what differs; logarithms may differ a little."""
    if reference.status != router.status:
        return [f"status {reference.status} and {router.status}"]
    found: list[str] = []
    for name, value in reference.aspects.items():
        other = router.aspects[name]
        same = _close(value, other) if name == "logprobs" else value == other
        if not same and name not in ignored:
            found.append(f"{name} {value!r} and {other!r}")
    return found


def _is_drawn(case: Case) -> bool:
    """Return whether the answer depends on chance, so that no two are alike."""
    return float(case.body.get("temperature") or 0) > 0 and case.body.get("top_k") != 1


def _close(one: dict[int, list[float]], other: dict[int, list[float]]) -> bool:
    return one.keys() == other.keys() and all(
        len(one[index]) == len(other[index])
        and all(abs(a - b) < _SAME_LOGPROB for a, b in zip(one[index], other[index], strict=True))
        for index in one
    )


def main() -> int:
    """Compare every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", required=True, help="base URL of SGLang's HTTP server")
    parser.add_argument("--router", required=True, help="base URL of the router")
    parser.add_argument(
        "--forwarded",
        action="store_true",
        help="the router forwards to the reference itself: nothing may differ",
    )
    arguments = parser.parse_args()
    unexplained = 0
    # Some would end the process that both answers come from.
    cases = [case for case in CASES if not (arguments.forwarded and _ENDS in case.differs)]
    for case in cases:
        ignored = case.ignored | (_DRAWN if arguments.forwarded and _is_drawn(case) else set())
        found = differences(ask(arguments.reference, case), ask(arguments.router, case), ignored)
        is_explained = case.differs and not arguments.forwarded
        verdict = "same" if not found else "explained" if is_explained else "DIFFERENT"
        unexplained += verdict == "DIFFERENT"
        print(f"{verdict:10} {case.name}{': ' if found else ''}{'; '.join(found)}")
    print(f"{len(cases)} cases, {unexplained} unexplained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
