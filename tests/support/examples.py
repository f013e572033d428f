"""Running the examples as their readers would."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "client"


async def run_example(name: str, *arguments: str, seconds: float = 18.0) -> str:
    """Return what the example *name* prints; fails with its stderr unless it ends well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, failed = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode == 0, failed.decode()
    return printed.decode()
