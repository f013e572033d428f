"""Stream an answer: by iterating, by a callback that stops it, and as raw JSON."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import sys
from dataclasses import dataclass

from sglr_client import ChatChunk, Client

MESSAGES = [{"role": "user", "content": "Count to ten."}]


@dataclass
class FewWords:
    """A callback that stops the stream, and with it the server, after some words."""

    left: int

    def __call__(self, chunk: ChatChunk) -> bool:
        """Return False to stop."""
        self.left -= len(chunk.text.split())
        return self.left > 0


def main(base_url: str, model: str) -> None:
    """Print three streams."""
    with Client(base_url) as client:
        options = {"include_usage": True}
        with client.chat_stream(model, MESSAGES, stream_options=options) as stream:
            for chunk in stream:
                print(chunk.text, end="", flush=True)
        print("\nUsage:", stream.usage.completion_tokens if stream.usage else "not told")

        with client.chat_stream(model, MESSAGES, raw=True) as raw:
            print("Raw bytes:", sum(len(data) for data in raw))

        print("Ran to its end:", client.chat_stream(model, MESSAGES).run(FewWords(5)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
