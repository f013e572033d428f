"""Hundreds of streams at once: say how many connections there may be."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import asyncio
import sys

from sglr_client import AsyncClient, Limits

STREAMS = 50


async def main(base_url: str, model: str) -> None:
    """Print how many streams were whole."""
    texts: list[str] = []

    async def listen(client: AsyncClient, number: int) -> None:
        messages = [{"role": "user", "content": f"Tell me about the number {number}."}]
        async with client.chat_stream(model, messages) as stream:
            texts.append("".join([chunk.text async for chunk in stream]))

    async with (
        AsyncClient(base_url, limits=Limits(connections=STREAMS)) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(STREAMS):
            group.create_task(listen(client, number))
    print(f"{len(texts)} streams, {sum(bool(text) for text in texts)} with text")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
