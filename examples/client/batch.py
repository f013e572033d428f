"""Many chats at once: answers in the order of the questions, errors as values."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import sys

from sglr_client import Client, ClientError


def main(base_url: str, model: str) -> None:
    """Print each question's answer."""
    questions = [f"What is {n} times {n}?" for n in range(1, 6)]
    requests = [
        {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 50}
        for question in questions
    ]
    with Client(base_url) as client:
        answers = client.batch_chat(
            requests,
            concurrency=3,
            on_progress=lambda done, total: print(f"{done} of {total}"),
        )
    for question, answer in zip(questions, answers, strict=True):
        print(question, "→", answer.kind if isinstance(answer, ClientError) else answer.text)


if __name__ == "__main__":
    main(*sys.argv[1:3])
