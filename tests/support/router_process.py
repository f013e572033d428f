"""`sglr sim-worker` and `sglr serve --operator` as processes, and a chat through them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

REPO = Path(__file__).resolve().parents[2]
MODEL = REPO / "dataplane" / "sglr_dataplane" / "demo_model"


@asynccontextmanager
async def sglr(*arguments: str) -> AsyncGenerator[str]:
    """Run an ``sglr`` command and yield the address it says it listens on."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sglr_dataplane", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"POD_NAME": "router-0", "POD_UID": "uid-router-0"},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        address: str = json.loads(line)["address"]
        yield address
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


@asynccontextmanager
async def worker_and_router(
    operator: int, folder: Path, model: str, *flags: str
) -> AsyncGenerator[tuple[int, str]]:
    """Run a worker of *model* and a router with *flags* that hears the operator.

    Yields the worker's port and the router's URL.
    """
    async with (
        sglr("sim-worker", "--tokenizer", str(MODEL), "--model-name", model) as worker,
        sglr(
            *("serve", "--operator", f"127.0.0.1:{operator}", "--port", "0"),
            *("--last-known-good", str(folder / "lkg"), "--drain-settle", "0s", *flags),
        ) as router,
    ):
        yield int(worker.rpartition(":")[2]), f"http://{router}"


async def status(url: str) -> int:
    """Return the status of a GET; 0 when nobody answers."""
    with suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status
    return 0


async def chat(url: str, model: str, key: str = "") -> tuple[int, dict[str, Any]]:
    """Return status and body of one short chat, asked with *key* if there is one."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 8,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer,
    ):
        found: dict[str, Any] = await answer.json()
        return answer.status, found


async def answers(url: str, model: str, *, key: str = "", within: float = 30.0) -> dict[str, Any]:
    """Return the first chat that succeeds; fail with the last answer after *within* seconds."""
    last: Any = None
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while True:
                with suppress(aiohttp.ClientError):
                    code, last = await chat(url, model, key)
                    if code == 200:  # HTTP's number
                        return dict(last)
                await asyncio.sleep(0.1)
    raise AssertionError(f"no chat within {within} s: {last}")
