# ruff: noqa: T201 -- a report prints
"""Measure how many messages a second of CPU the simulated worker and a plain grpcio client pass on.

A worker that is slower than what it tests would be measured instead of it. Both run in one process,
over loopback; the client's share is part of the figure.

python bench/sim_worker.py                       # 4,000 tokens, the best of 5 rounds
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sglr_dataplane.sim.script import Play, Rule, Script
from support.sim import sim_worker  # needs the path above
from support.sim_client import a_request, connected  # same


async def measure(tokens: int, rounds: int) -> float:
    """Return the messages of a stream of *tokens* by its seconds of CPU, the best of *rounds*."""
    script = Script(rules=(Rule(play=Play(ids=tuple(range(tokens)))),))
    best = 0.0
    async with sim_worker(script) as worker, connected(worker.address) as client:
        await client.generate(a_request("warm"))
        for number in range(rounds):
            began = time.process_time()
            messages = len(await client.generate(a_request(f"measured-{number}")))
            best = max(best, messages / (time.process_time() - began))
    return best


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found = asyncio.run(measure(given.tokens, given.rounds))
    print(f"{found:,.0f} messages a second of CPU")


if __name__ == "__main__":
    main()
