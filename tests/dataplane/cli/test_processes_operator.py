"""``sglr serve --processes`` under an operator: one router, with one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sglr_dataplane.fleet import intake_file
from sglr_proto.snapshot import Snapshot
from support.processes import kill, starting
from support.push import CONFIG, an_operator, listening
from support.router import eventually

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def hosts(snapshot: Snapshot | None) -> dict[str, list[str]]:
    """Return the hosts of each backend of *snapshot*."""
    backends = snapshot.backends if snapshot is not None else ()
    return {each.backend.metadata.name: [e.host for e in each.endpoints] for each in backends}


async def test_each_process_hears_the_operator_and_one_writes_the_file(tmp_path: Path) -> None:
    """Whichever dies: a replacement hears the list again, and the file is as it was."""
    kept = tmp_path / "kept" / "list"
    kept.parent.mkdir()
    # Slow to miss: the machine may be busy with as many processes as it likes.
    config = replace(CONFIG, heartbeat=5.0)
    async with listening(an_operator(config=config)) as operator:
        operator.say("a", "127.0.0.1")
        operator.publisher.complete(frozenset({"inference/a"}))
        async with starting(
            tmp_path, "--operator", f"127.0.0.1:{operator.port}", "--last-known-good", str(kept)
        ) as served:
            await eventually(lambda: len(served.logged("list complete")) == 2)
            await eventually(kept.exists)
            heard = {line["process"] for line in served.logged("list complete")}
            kill(served.pids()[0])
            await eventually(lambda: len(served.logged("list complete")) == 3)
            found = hosts(intake_file.read(kept))
            files = [place.name for place in kept.parent.iterdir()]

    assert heard == {0, 1}
    assert found == {"a": ["127.0.0.1"]}
    assert files == ["list"]
