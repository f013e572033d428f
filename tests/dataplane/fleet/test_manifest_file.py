"""The manifest file: read, followed, and never worse than its last good edit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sglr_dataplane.fleet.manifest_file import ManifestFile
from sglr_proto.errors import ManifestError
from sglr_proto.snapshot import Snapshot

MANIFEST = """
apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {{name: chat}}
spec:
  model: {{name: {model}}}
  tokenizer: {{path: /models/m}}
  workers: {{static: {{endpoints: [{{host: 127.0.0.1, port: 30000}}]}}}}
"""


class Followed:
    """What a followed file had applied, in order."""

    def __init__(self, file: ManifestFile) -> None:
        self.file = file
        self.snapshots: asyncio.Queue[Snapshot] = asyncio.Queue()

    async def next(self) -> tuple[str, int]:
        """Return the model and the version of the next snapshot."""
        async with asyncio.timeout(5):
            snapshot = await self.snapshots.get()
        return snapshot.backends[0].backend.spec.model.name, snapshot.version

    async def until(self, holds: Callable[[str], bool]) -> str:
        """Return the problem, ``""`` for none, as soon as it is what *holds* says."""
        async with asyncio.timeout(5):
            while not holds(self.file.problem or ""):  # noqa: ASYNC110  # an attribute, not an event
                await asyncio.sleep(0.005)
        return self.file.problem or ""


@asynccontextmanager
async def following(path: Path) -> AsyncGenerator[Followed]:
    """Load and follow the file at *path*."""
    file = ManifestFile(path)
    file.load()
    followed = Followed(file)
    task = asyncio.ensure_future(file.follow(followed.snapshots.put_nowait, interval=0.01))
    try:
        yield followed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def a_file(folder: Path, model: str = "one") -> Path:
    """Return a manifest in *folder*."""
    path = folder / "backends.yaml"
    path.write_text(MANIFEST.format(model=model))
    return path


def test_loading_gives_the_static_endpoints(tmp_path: Path) -> None:
    """A file's backends come with their workers, at version 1."""
    snapshot = ManifestFile(a_file(tmp_path)).load()

    (backend,) = snapshot.backends
    assert backend.backend.key == "default/chat"
    assert [endpoint.address for endpoint in backend.endpoints] == ["127.0.0.1:30000"]
    assert snapshot.version == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"kind: SGLangBackend", "apiVersion"),
        (b"", "holds no SGLangBackend"),
        (b"# nothing yet\n", "holds no SGLangBackend"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a: [", "backends.yaml|YAML|document"),
    ],
)
def test_a_file_that_is_wrong_from_the_start_says_why(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    """The first load raises one sentence for the person who wrote the file."""
    path = tmp_path / "backends.yaml"
    path.write_bytes(content)

    with pytest.raises(ManifestError, match=expected):
        ManifestFile(path).load()


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    """A wrong path is named, with the reason."""
    with pytest.raises(ManifestError, match=r"nowhere.yaml' cannot be read: No such file"):
        ManifestFile(tmp_path / "nowhere.yaml").load()


async def test_an_edit_is_applied_with_a_higher_version(tmp_path: Path) -> None:
    """Each edit becomes a snapshot; what was loaded before is not applied again."""
    path = a_file(tmp_path)
    async with following(path) as followed:
        path.write_text(MANIFEST.format(model="second"))
        first = await followed.next()
        path.write_text(MANIFEST.format(model="third-model"))
        second = await followed.next()

    assert (first, second) == (("second", 2), ("third-model", 3))


async def test_a_broken_edit_leaves_the_last_good_one_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake is logged once and shown as a problem; mending it clears the problem."""
    path = a_file(tmp_path)
    async with following(path) as followed:
        path.write_text(MANIFEST.format(model="one").replace("tokenizer", "tokeniser"))
        problem = await followed.until(bool)
        nothing = followed.snapshots.empty()
        path.write_text(MANIFEST.format(model="two"))
        mended = await followed.next()

    assert "tokeniser" in problem
    assert nothing
    assert mended == ("two", 2)
    assert followed.file.problem is None
    told = [record for record in caplog.records if "last good one" in record.message]
    assert len(told) == 1


async def test_workers_that_only_an_operator_can_find_are_a_problem(tmp_path: Path) -> None:
    """A file may list workers, not select them; saying it again does not make it right."""
    path = a_file(tmp_path)
    selecting = MANIFEST.format(model="one").split("  workers:")[0] + (
        "  workers: {service: {name: llama}}\n"
    )
    file = ManifestFile(path)
    file.load()

    path.write_text(selecting)
    first = (await file.newer(), file.problem)
    os.utime(path, ns=(1, 1))
    again = (await file.newer(), file.problem)

    assert first[0] is None
    assert "operator" in (first[1] or "")
    assert again == first


async def test_undoing_a_broken_edit_is_no_change(tmp_path: Path) -> None:
    """The text that is in force already clears the problem and applies nothing."""
    path = a_file(tmp_path)
    async with following(path) as followed:
        path.write_text("kind: {")
        await followed.until(bool)
        a_file(tmp_path)
        await followed.until(lambda problem: not problem)

        assert followed.snapshots.empty()


def test_a_process_that_takes_anothers_place_starts_from_what_was_in_force(
    tmp_path: Path,
) -> None:
    """While the file is broken; the problem is shown, and the next good edit is news."""
    path = tmp_path / "backends.yaml"
    path.write_text("kind: [")
    file = ManifestFile(path)
    snapshot = file.load_or(MANIFEST.format(model="kept"))

    assert snapshot.backends[0].backend.spec.model.name == "kept"
    assert file.problem is not None
    path.write_text(MANIFEST.format(model="next"))
    assert file.load_or("").backends[0].backend.spec.model.name == "next"
    assert file.problem is None


async def test_a_file_that_vanishes_takes_nothing_away(tmp_path: Path) -> None:
    """A missing or an emptied file is a problem, not an order to drop every worker."""
    path = a_file(tmp_path)
    async with following(path) as followed:
        path.unlink()
        missing = await followed.until(bool)
        path.write_text("")
        await followed.until(lambda problem: "holds no" in problem)
        nothing = followed.snapshots.empty()
        path.write_text(MANIFEST.format(model="back"))
        back = await followed.next()

    assert "cannot be read" in missing
    assert nothing
    assert back == ("back", 2)


async def test_a_mounted_config_map_is_followed_through_its_symlinks(tmp_path: Path) -> None:
    """Kubernetes swaps a link to a folder; the path itself is never written to."""
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        a_file(tmp_path / name, model=name)
        os.utime(tmp_path / name / "backends.yaml", ns=(1, 1))
    data, link = tmp_path / "..data", tmp_path / "backends.yaml"
    data.symlink_to("v1")
    link.symlink_to("..data/backends.yaml")
    async with following(link) as followed:
        (tmp_path / "..data_tmp").symlink_to("v2")
        (tmp_path / "..data_tmp").rename(data)

        assert await followed.next() == ("v2", 2)
