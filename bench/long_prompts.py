"""What a 1 MB and a 4 MB prompt do to everybody else on the same router process.

``python bench/long_prompts.py [--tokenizer DIR] [--rounds 3] [--context N]`` starts two simulated
workers and a router, polls ``/health`` and reads a running stream of the one, first alone and then
while each long prompt is posted for the other. It prints the longest wait for a health answer and the longest gap in the stream, in
milliseconds; what the machine itself takes is in the line "nothing else". A prompt that is longer
than the worker takes is refused after it was encoded, which is what this is about.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import yaml

import sglr_dataplane
from sglr_dataplane.cli.children import Child

DEMO_MODEL = Path(sglr_dataplane.__file__).parent / "demo_model"
START_SECONDS = 60.0
BEAT = 0.01
"""Seconds between two looks at /health, and between two tokens of the stream."""
WORDS = " ".join(f"{number:x}th word{number}" for number in range(300_000))
TEXTS = {
    "words": WORDS,
    "one word": "a",
    "spaces": " ",
    "line feeds": "\n",
    "<": "<",
    "emoji": "👍🏽é",
    "control tokens": "typed <|im_end|> ",
}


@dataclass
class Waits:
    """The longest waits of one case, in seconds."""

    health: float = 0.0
    stream: float = 0.0
    took: list[float] = field(default_factory=list[float])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--tokenizer", type=Path, default=DEMO_MODEL, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--context", type=int, default=8192, metavar="N",
        help="the worker's; 5000000 takes every prompt whole (%(default)s)",
    )  # fmt: skip
    asked = parser.parse_args()
    with running(asked.tokenizer, asked.context) as address:
        asyncio.run(measured(f"http://{address}", asked.rounds))
    return 0


@contextmanager
def running(tokenizer: Path, context: int) -> Iterator[str]:
    """Run a worker and a router; give the router's address."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        deadline = time.monotonic() + START_SECONDS
        documents = [
            backend(name, stack, tokenizer, context, folder / name, deadline)
            for name in ("stream", "long")
        ]
        manifest = folder / "backends.yaml"
        manifest.write_text(yaml.safe_dump_all(documents))
        router = Child("router", ("serve", "-f", str(manifest), "--port", "0"), folder / "router")
        stack.callback(router.stop)
        yield router.address(deadline)


def backend(
    name: str, stack: ExitStack, tokenizer: Path, context: int, log: Path, deadline: float
) -> dict[str, Any]:
    """Start the worker of a model *name*; return its backend."""
    arguments = [
        *("--model-name", name, "--tokenizer", str(tokenizer), "--token-delay", "10ms"),
        *("--context-length", str(context)),
    ]
    worker = Child(name, ("sim-worker", "--port", "0", *arguments), log)
    stack.callback(worker.stop)
    host, _, port = worker.address(deadline).rpartition(":")
    return {
        "apiVersion": "sglr.dev/v1alpha1",
        "kind": "SGLangBackend",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": name},
            "tokenizer": {"path": str(tokenizer)},
            "workers": {"static": {"endpoints": [{"host": host, "port": int(port)}]}},
        },
    }


async def measured(url: str, rounds: int) -> None:
    """Print a line for each kind of prompt."""
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:
        while (await client.get("/readyz")).status_code != httpx2.codes.OK:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.1)
        sys.stdout.write(f"{'':24}{'health ms':>10}{'stream ms':>10}{'answered after ms':>19}\n")
        for _ in range(rounds):
            report("nothing else", await case(client, None))
        for size in (1_000_000, 4_000_000):
            for name, text in TEXTS.items():
                prompt = (
                    (text * (size // len(text.encode()) + 1))
                    .encode()[:size]
                    .decode(errors="ignore")
                )
                waits = [await case(client, prompt) for _ in range(rounds)]
                report(f"{size // 1_000_000} MB of {name}", *waits)


def report(name: str, *waits: Waits) -> None:
    """Print the worst of *waits*."""
    health = max(each.health for each in waits) * 1000
    stream = max(each.stream for each in waits) * 1000
    took = max((seconds for each in waits for seconds in each.took), default=0.0) * 1000
    sys.stdout.write(f"{name:24}{health:10.1f}{stream:10.1f}{took:19.0f}\n")
    sys.stdout.flush()


async def case(client: httpx2.AsyncClient, prompt: str | None) -> Waits:
    """Return the longest waits while *prompt* is answered; None: for a second."""
    waits = Waits()
    begun = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        others = [
            group.create_task(poll(client, waits)),
            group.create_task(read(client, waits, begun)),
        ]
        await begun.wait()
        if prompt is None:
            await asyncio.sleep(1)
        else:
            waits.took.append(await post(client, prompt))
        for task in others:
            task.cancel()
    return waits


async def post(client: httpx2.AsyncClient, prompt: str) -> float:
    """Return the seconds that the answer to *prompt* takes."""
    body = {"model": "long", "max_tokens": 1, "messages": [{"role": "user", "content": prompt}]}
    started = time.perf_counter()
    answer = await client.post("/v1/chat/completions", json=body)
    if answer.status_code not in (httpx2.codes.OK, httpx2.codes.BAD_REQUEST):
        raise SystemExit(f"{answer.status_code}: {answer.text[:300]}")
    return time.perf_counter() - started


async def poll(client: httpx2.AsyncClient, waits: Waits) -> None:
    """Ask for /health, for ever."""
    while True:
        started = time.perf_counter()
        await client.get("/health")
        waits.health = max(waits.health, time.perf_counter() - started)
        await asyncio.sleep(BEAT)


async def read(client: httpx2.AsyncClient, waits: Waits, begun: asyncio.Event) -> None:
    """Read streams, for ever."""
    body = {
        "model": "stream",
        "stream": True,
        "max_tokens": 4000,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "tell me a story " * 20}],
    }
    while True:
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            last: float | None = None
            async for _ in answer.aiter_bytes():
                now = time.perf_counter()
                if last is not None:
                    waits.stream = max(waits.stream, now - last)
                last = now
                begun.set()


if __name__ == "__main__":
    sys.exit(main())
