"""Ask the router what `helm test` promises: it lists models, and a demo's model answers.

Usage: chat_test.py BASE_URL [MODEL]
"""

from __future__ import annotations

import json
import sys
import urllib.request

_SECONDS = 30


def asked(url: str, body: dict[str, object] | None = None) -> dict[str, object]:
    """Return the JSON that *url* answers."""
    request = urllib.request.Request(  # noqa: S310  # the release's own Service
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310  # same
        read: dict[str, object] = json.load(answer)
        return read


def main() -> None:
    """List the models; with a model, chat with it."""
    base = sys.argv[1]
    print(json.dumps(asked(f"{base}/v1/models")))  # noqa: T201  # shown by `helm test --logs`
    for model in sys.argv[2:]:
        question = {"role": "user", "content": "Are you there?"}
        answer = asked(f"{base}/v1/chat/completions", {"model": model, "messages": [question]})
        print(json.dumps(answer))  # noqa: T201  # same


if __name__ == "__main__":
    main()
