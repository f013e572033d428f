"""Workers of one backend have one vocabulary: the first decides, and others are not used."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sglr_dataplane.errors import WorkerError, WorkerUnavailableError
from sglr_dataplane.fleet.worker import Worker
from sglr_dataplane.recipe.worker_bundles import WorkerBundles
from support.bundles import a_bundle
from support.engines import ScriptedEngine, some_facts
from support.fleets import KEY, a_registry
from support.tokenizers import DEMO_MODEL

OURS = a_bundle()
OTHERS = a_bundle(tokenizer__json=(DEMO_MODEL / "tokenizer.json").read_text() + "\n")
DIFFERS = "The worker's vocabulary differs from the one that other workers of its backend have"


class Fleet:
    """Workers that send tokenizers, and what becomes of them."""

    def __init__(self, cache: Path, *engines: ScriptedEngine) -> None:
        names = {f"w{number}": engine for number, engine in enumerate(engines)}
        self.workers = a_registry(names, ready=False).workers()
        self.adopted: list[str] = []
        self.bundles = WorkerBundles(cache, self.adopted.append)

    async def inspect(self, number: int, *, again: bool = False) -> str | None:
        """Inspect a worker, and have it used if nothing speaks against it, as the prober does."""
        worker = self.workers[number]
        problem = await self.bundles.inspect(worker, again=again)
        if problem is None:
            worker.became_ready(some_facts())
        else:
            worker.refused(problem)
        return problem

    @property
    def folder(self) -> Path | None:
        """What the backend uses."""
        folder = self.bundles.folder(KEY)
        return folder.path if folder is not None else None


def fall(worker: Worker) -> None:
    """Have *worker* be down."""
    worker.doubted("The worker cannot be reached.")
    worker.became_unhealthy("The worker cannot be reached.")


async def test_the_first_workers_tokenizer_is_adopted(tmp_path: Path) -> None:
    """Its files are unpacked below the cache, and whoever loads hears of it once."""
    fleet = Fleet(tmp_path, ScriptedEngine(bundles=[OURS]), ScriptedEngine(bundles=[OURS]))
    before = fleet.folder

    problems = [await fleet.inspect(0), await fleet.inspect(1), await fleet.inspect(0)]

    assert (before, problems, fleet.adopted) == (None, [None] * 3, [KEY])
    assert fleet.folder == tmp_path / OURS.sha256
    assert (tmp_path / OURS.sha256 / "tokenizer.json").read_bytes() == (
        DEMO_MODEL / "tokenizer.json"
    ).read_bytes()


async def test_a_worker_with_another_vocabulary_is_not_used(tmp_path: Path) -> None:
    """It says why, at each look, without sending everything again; the backend keeps its own."""
    stranger = ScriptedEngine(bundles=[OTHERS])
    fleet = Fleet(tmp_path, ScriptedEngine(bundles=[OURS]), stranger)
    await fleet.inspect(0)

    problems = [await fleet.inspect(1), await fleet.inspect(1)]

    assert all(problem is not None and problem.startswith(DIFFERS) for problem in problems)
    assert stranger.sent == 1
    assert (fleet.adopted, fleet.folder) == ([KEY], tmp_path / OURS.sha256)


async def test_another_template_is_no_other_vocabulary(tmp_path: Path) -> None:
    """The router renders: only what the ids mean must be the same."""
    fleet = Fleet(
        tmp_path,
        ScriptedEngine(bundles=[OURS]),
        ScriptedEngine(bundles=[a_bundle(chat_template__jinja="{{ 1 }}")]),
    )

    assert [await fleet.inspect(0), await fleet.inspect(1)] == [None, None]
    assert fleet.folder == tmp_path / OURS.sha256


@pytest.mark.parametrize("how", ["down", "suspect", "left"])
async def test_when_nobody_has_the_old_vocabulary_the_next_is_adopted(
    tmp_path: Path, how: str
) -> None:
    """As after an upgrade: the workers that could still take jobs are all of the new kind."""
    fleet = Fleet(tmp_path, ScriptedEngine(bundles=[OURS]), ScriptedEngine(bundles=[OTHERS]))
    await fleet.inspect(0)
    first = await fleet.inspect(1)
    match how:
        case "down":
            fall(fleet.workers[0])
        case "suspect":
            fleet.workers[0].suspected()
        case _:
            fleet.workers[0].left()

    assert first is not None
    assert await fleet.inspect(1) is None
    assert (fleet.adopted, fleet.folder) == ([KEY, KEY], tmp_path / OTHERS.sha256)


async def test_a_worker_that_may_be_another_is_asked_again(tmp_path: Path) -> None:
    """What a process sent says nothing of the one that came up in its place."""
    engine = ScriptedEngine(bundles=[OURS, OTHERS])
    fleet = Fleet(tmp_path, ScriptedEngine(bundles=[OURS]), engine)
    await fleet.inspect(0)

    same = await fleet.inspect(1)
    restarted = await fleet.inspect(1, again=True)

    assert same is None
    assert restarted is not None
    assert engine.sent == 2


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (WorkerError("The worker does not offer its tokenizer."), "does not offer"),
        (WorkerUnavailableError("The worker went away."), "went away"),
    ],
)
async def test_what_cannot_be_had_is_asked_for_again(
    tmp_path: Path, failure: WorkerError | WorkerUnavailableError, sentence: str
) -> None:
    """The engine's own sentence, and the next look asks again until it works."""
    fleet = Fleet(tmp_path, ScriptedEngine(bundles=[failure, OURS]))

    with pytest.raises(type(failure), match=sentence):
        await fleet.inspect(0)
    assert fleet.folder is None
    assert await fleet.inspect(0) is None


async def test_a_bundle_that_lies_about_its_digest_is_no_tokenizer(tmp_path: Path) -> None:
    """Nothing of it is unpacked, and nothing adopted."""
    fleet = Fleet(tmp_path, ScriptedEngine(bundles=[replace(OURS, sha256=OTHERS.sha256)]))

    with pytest.raises(WorkerError, match="does not have the digest"):
        await fleet.inspect(0)
    assert fleet.folder is None
    assert os.listdir(tmp_path) == []  # noqa: PTH208  # a coroutine: pathlib is refused here


async def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The reason is the system's; the path stays in the log of whoever set it."""
    place = tmp_path / "a file"
    place.touch()
    fleet = Fleet(place / "below", ScriptedEngine(bundles=[OURS]))

    with pytest.raises(WorkerError, match=r"cannot be kept in the cache directory: Not a direc"):
        await fleet.inspect(0)
