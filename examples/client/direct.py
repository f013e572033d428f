"""The same client in process: straight to SGLang's gRPC workers, with no router to start."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import asyncio
import sys

from sglr_dataplane.direct import direct_async_client


async def main(manifest: str, model: str) -> None:
    """Print an answer of one of the workers in *manifest*, a file with SGLangBackend documents."""
    async with direct_async_client(manifest) as client:
        await client.wait_for_model(model, timeout=30)
        answer = await client.chat(model, [{"role": "user", "content": "Hello"}])
        print(answer.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
