"""Wait for a model, then call with your own retries, breaker, deadlines and metrics."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import asyncio
import sys

from prometheus_client import CollectorRegistry, generate_latest

from sglr_client import AsyncClient, BreakerPolicy, RetryPolicy, Timeouts
from sglr_client.prometheus import PrometheusSink


async def main(base_url: str, model: str) -> None:
    """Print an answer and a few of the metrics."""
    registry = CollectorRegistry()
    async with AsyncClient(
        base_url,
        timeout=Timeouts(total=30.0, idle=20.0, stream_total=600.0),
        retry=RetryPolicy(attempts=5, initial=0.2),
        breaker=BreakerPolicy(threshold=10, cooldown=5.0),
        metrics=PrometheusSink(registry),
    ) as client:
        await client.wait_for_model(model, timeout=60.0)
        async with client.checking_health(every=5.0):  # calls fail at once while it is down
            answer = await client.chat(model, [{"role": "user", "content": "Hello"}])
    print("Answer:", answer.text)
    for line in generate_latest(registry).decode().splitlines():
        if line.startswith(("sglr_client_requests_ended_total", "sglr_client_tokens_total")):
            print(line)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
