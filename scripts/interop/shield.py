"""Sends what ends or hangs a real SGLang through the router, and sees that the engine lives.

Run with ``--router``, the base URL of one whose worker takes eight requests at once and queues
eight more, while the router was told to send it more than that. Prints one line an input and ends
with 1 when an answer is not the expected one, or the engine does not answer afterwards.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from interop.cases import CHAT, COMPLETIONS, MODEL

GENERATE: Final = "/generate"
SECONDS: Final = 90.0
"""For any answer; the router under test gives a worker 20 s for a first token."""
OUTSIDE: Final = 99_999_999
BURST: Final = 60
_CHAT: Final[dict[str, Any]] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
_TEXT: Final[dict[str, Any]] = {"model": MODEL, "prompt": "Hi"}
_NATIVE: Final[dict[str, Any]] = {"text": "Hi"}
_LONG: Final[dict[str, Any]] = {**_CHAT, "max_tokens": 4000, "ignore_eos": True, "stream": True}
_NAN: Final = float("nan")


def killers(size: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the name, path and body of what ends an engine whose vocabulary has *size* ids."""
    for name, of_chat, of_text, of_native in (
        ("an empty prompt", {"messages": []}, {"prompt": ""}, {"text": ""}),
        ("an id at the vocabulary's end", None, {"prompt": [size]}, {"input_ids": [size]}),
        ("an id far outside", None, {"prompt": [OUTSIDE]}, {"input_ids": [OUTSIDE]}),
        ("temperature NaN", *_sampling(temperature=_NAN)),
        ("a bias of no id", *_sampling(logit_bias={"abc": 1})),
        ("a bias outside", *_sampling(logit_bias={str(OUTSIDE): 1})),
        ("token_ids_logprob outside", None, None,
         {"return_logprob": True, "token_ids_logprob": [OUTSIDE]}),
        ("more alternatives than tokens", {"logprobs": True, "top_logprobs": size + 1},
         {"logprobs": size + 1}, {"return_logprob": True, "top_logprobs_num": size + 1}),
        ("logprob_start_len -5", None, None, {"return_logprob": True, "logprob_start_len": -5}),
        ("a negative repetition penalty, which hangs", *_sampling(repetition_penalty=-1)),
    ):  # fmt: skip
        for path, base, fields in (
            (CHAT, _CHAT, of_chat),
            (COMPLETIONS, _TEXT, of_text),
            (GENERATE, _NATIVE, of_native),
        ):
            if fields is not None:
                kept = {} if "input_ids" in fields else base
                yield name, path, {**kept, **fields}


def _sampling(**fields: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    return fields, fields, {"sampling_params": fields}


def ask(router: str, path: str, body: dict[str, Any], request_id: str = "") -> tuple[int, str]:
    """Return the status and the body of the answer; status 0 when there was none."""
    headers = {"Content-Type": "application/json"}
    if request_id:
        headers["x-request-id"] = request_id
    request = urllib.request.Request(router + path, json.dumps(body).encode(), headers)  # noqa: S310  # the router that was named
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:  # noqa: S310  # same
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)


def is_alive(router: str) -> bool:
    """Return whether the engine answers a plain request within the time that a probe may take."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        status, _ = ask(router, CHAT, {**_CHAT, "max_tokens": 2, "temperature": 0})
        if status == http.HTTPStatus.OK:
            return True
        time.sleep(1)
    return False


def hang_up(router: str) -> str:
    """Return what is wrong after clients left in the middle of long streams: nothing should be.

    An ``Abort`` would leave the engine's stream open for ever; a cancelled call does not.
    """
    parts = urllib.parse.urlsplit(router)
    for _ in range(8):
        connection = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
        connection.request("POST", CHAT, json.dumps(_LONG), {"Content-Type": "application/json"})
        connection.getresponse().read(200)
        connection.close()
    # All eight places of the engine must be free again, long before 4,000 tokens are written.
    begin = time.monotonic()
    status, text = ask(router, CHAT, {**_CHAT, "max_tokens": 2})
    seconds = time.monotonic() - begin
    return "" if status == http.HTTPStatus.OK and seconds < SECONDS / 3 else f"{status} {text[:80]}"


def same_id(router: str) -> str:
    """Return what is wrong when two requests of one id run at once: each has its own answer."""
    bodies = [{**_CHAT, "temperature": 0, "max_tokens": count} for count in (40, 20)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda body: ask(router, CHAT, body, "twice"), bodies))
    counts = [
        json.loads(text)["usage"]["completion_tokens"] if status == http.HTTPStatus.OK else status
        for status, text in answers
    ]
    return "" if counts == [40, 20] else f"tokens {counts}"


def overflow(router: str) -> str:
    """Return what is wrong when more is sent than the engine queues: whoever has no answer.

    SGLang drops what is above its queue without a word to the caller; the router's deadline, or
    its own queue, has to end such a request.
    """
    body = {**_CHAT, "max_tokens": 16, "ignore_eos": True}
    with ThreadPoolExecutor(BURST) as pool:
        statuses = Counter(pool.map(lambda _: ask(router, CHAT, body)[0], range(BURST)))
    print(f"           {BURST} at once: {dict(sorted(statuses.items()))}")
    expected = {200, 429, 503, 504}
    return "" if set(statuses) <= expected and statuses[200] else f"statuses {dict(statuses)}"


def vocabulary_size(router: str) -> int:
    """Return how many ids the router takes, by what its refusal of a huge one says."""
    _, text = ask(router, COMPLETIONS, {**_TEXT, "prompt": [OUTSIDE]})
    words = json.loads(text)["error"]["message"].split()
    return int(words[words.index("to") + 1].rstrip(",")) + 1


def main() -> int:
    """Send everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", required=True, help="base URL of the router")
    router: str = parser.parse_args().router
    if not is_alive(router):
        print("the engine does not answer to begin with")
        return 1
    failed = sent = 0

    def judge(name: str, wrong: str) -> None:
        nonlocal failed, sent
        if not wrong and not is_alive(router):
            wrong = "the engine does not answer any more"
        sent, failed = sent + 1, failed + bool(wrong)
        print(f"{'WRONG' if wrong else 'alive':10} {name}{': ' if wrong else ''}{wrong}")

    for name, path, body in killers(vocabulary_size(router)):
        status, text = ask(router, path, body)
        judge(
            f"{path}: {name}", "" if status == http.HTTPStatus.BAD_REQUEST else f"{status} {text}"
        )
    hangs: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("clients that leave", hang_up),
        ("one request id twice", same_id),
        ("a full queue", overflow),
    )
    for name, send in hangs:
        judge(name, send(router))
    print(f"{sent} inputs, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
