"""Ask once, ask with tools, and see what can go wrong."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import sys

from sglr_client import Client, ClientError, NotFoundError, RateLimitedError

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def main(base_url: str, model: str) -> None:
    """Print an answer."""
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    with Client(base_url, timeout=120) as client:
        try:
            answer = client.chat(
                model,
                messages,
                temperature=0.0,
                tools=[WEATHER],
                extra_body={"top_k": 20},  # an engine's extension, sent as it is
            )
        except NotFoundError as error:
            print(f"No such model: {error}")
        except RateLimitedError as error:
            print(f"Too many requests; asked to wait {error.retry_after} s.")
        except ClientError as error:
            print(f"Failed ({error.kind}): {error}")
        else:
            print("Answer:", answer.text)
            for call in answer.choices[0].message.tool_calls:
                print("Calls:", call.function.name, call.function.arguments)
            if answer.usage:
                print("Tokens:", answer.usage.total_tokens)


if __name__ == "__main__":
    main(*sys.argv[1:3])
