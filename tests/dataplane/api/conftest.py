"""A router that tests share where they only look at what is refused."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from sglr_dataplane.sim.script import Play
from support.router import RunningRouter, a_worker, manifest, running_router


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncGenerator[RunningRouter]:
    """A ready router over one worker that says ``ok``."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        yield router
