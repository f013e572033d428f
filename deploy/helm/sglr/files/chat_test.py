"""Ask the router what `helm test` promises: it answers, and a demo's model chats.

Usage: chat_test.py BASE_URL PATH [MODEL]
"""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request

_SECONDS = 30
# The question is whether the release answers; whom its certificate is for is the clients' matter.
_TRUSTING = ssl.create_default_context()
_TRUSTING.check_hostname = False
_TRUSTING.verify_mode = ssl.CERT_NONE


def asked(url: str, body: dict[str, object] | None = None) -> dict[str, object]:
    """Return the JSON that *url* answers."""
    request = urllib.request.Request(  # noqa: S310  # the release's own Service
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_SECONDS, context=_TRUSTING) as answer:  # noqa: S310  # same
        read: dict[str, object] = json.load(answer)
        return read


def main() -> None:
    """Get the path; with a model, chat with it."""
    base, path, *models = sys.argv[1:]
    print(json.dumps(asked(f"{base}{path}")))  # noqa: T201  # shown by `helm test --logs`
    for model in models:
        question = {"role": "user", "content": "Are you there?"}
        answer = asked(f"{base}/v1/chat/completions", {"model": model, "messages": [question]})
        print(json.dumps(answer))  # noqa: T201  # same


if __name__ == "__main__":
    main()
