"""What workers sent is kept as long as somebody uses it, and not for ever."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sglr_dataplane.engine import TokenizerBundle
from sglr_dataplane.vocab import TokenizerLoadError
from sglr_dataplane.vocab.bundle_cache import BundleCache
from support.bundles import a_bundle

DAY = 86_400.0
ONE, OTHER, THIRD = (a_bundle(tokenizer_config__json=f'{{"n": "{n}"}}') for n in range(3))


class Clock:
    """The time, as the test has it."""

    def __init__(self) -> None:
        self.seconds = 1_900_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


def kept(directory: Path) -> set[str]:
    """Return the digests of what is in *directory*."""
    return {path.name for path in directory.iterdir() if not path.name.startswith(".")}


def used(bundle: TokenizerBundle, directory: Path, clock: Clock) -> None:
    """Have a process that has ended since unpack *bundle* at the time of *clock*."""
    cache = BundleCache(directory, now=clock)
    cache.unpacked(bundle.archive, bundle.sha256)
    os.utime(directory / f".{bundle.sha256}.lock", (clock(), clock()))
    cache.close()


def test_what_nobody_used_for_a_month_makes_room(tmp_path: Path, clock: Clock) -> None:
    """By when it was last asked for, not by when it was unpacked."""
    used(ONE, tmp_path, clock)
    used(OTHER, tmp_path, clock)
    clock.seconds += 20 * DAY
    used(OTHER, tmp_path, clock)
    clock.seconds += 20 * DAY
    used(THIRD, tmp_path, clock)

    assert kept(tmp_path) == {OTHER.sha256, THIRD.sha256}
    assert {path.name for path in tmp_path.glob(".*")} == {
        f".{OTHER.sha256}.lock", f".{THIRD.sha256}.lock",
    }  # fmt: skip


def test_what_is_too_much_goes_the_longest_unused_first(tmp_path: Path, clock: Clock) -> None:
    """As much of it as has to, and never what has just come."""
    for bundle in (ONE, OTHER):
        used(bundle, tmp_path, clock)
        clock.seconds += 60
    size = sum(each.stat().st_size for each in (tmp_path / ONE.sha256).rglob("*"))

    roomy, narrow = (BundleCache(tmp_path, now=clock, most_bytes=n) for n in (size + 1, 0))
    roomy.unpacked(THIRD.archive, THIRD.sha256)
    one_went = kept(tmp_path)
    narrow.unpacked(ONE.archive, ONE.sha256)
    both_are_held = kept(tmp_path)
    roomy.close()
    narrow.close()

    assert one_went == {OTHER.sha256, THIRD.sha256}
    assert both_are_held == {ONE.sha256, THIRD.sha256}


def test_what_another_router_uses_is_never_removed(tmp_path: Path, clock: Clock) -> None:
    """However old it is and however full the place; once that router has ended, it goes."""
    first, second = (BundleCache(tmp_path, now=clock, most_bytes=0) for _ in range(2))
    path = first.unpacked(ONE.archive, ONE.sha256)
    clock.seconds += 400 * DAY
    second.unpacked(OTHER.archive, OTHER.sha256)
    beside = kept(tmp_path)
    again = first.unpacked(ONE.archive, ONE.sha256)
    first.close()
    second.unpacked(THIRD.archive, THIRD.sha256)
    second.close()

    assert beside == {ONE.sha256, OTHER.sha256}
    assert again == path
    assert kept(tmp_path) == {OTHER.sha256, THIRD.sha256}


def test_what_a_process_left_half_unpacked_is_cleared_away(tmp_path: Path, clock: Clock) -> None:
    """After an hour, in which nobody can still be at it."""
    for name, age in ((".unpacking-old", 2 * 3600), (".unpacking-new", 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (clock() - age, clock() - age))
    used(ONE, tmp_path, clock)

    assert {path.name for path in tmp_path.glob(".unpacking-*")} == {".unpacking-new"}


def test_what_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    """No lock is made from a digest that nobody has checked."""
    with pytest.raises(TokenizerLoadError):
        BundleCache(tmp_path / "cache").unpacked(ONE.archive, "../" + OTHER.sha256)

    assert list(tmp_path.rglob("*")) == []


def test_who_comes_late_to_remove_a_bundle_leaves_the_one_that_came_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look and its lock somebody else removed it, and a third one holds it again."""
    before = BundleCache(tmp_path)
    before.unpacked(ONE.archive, ONE.sha256)
    before.close()
    remover, holder = BundleCache(tmp_path, most_bytes=0), BundleCache(tmp_path)
    paths: list[Path] = []

    def flock(file: int, how: int) -> None:
        if how & fcntl.LOCK_EX and not paths:
            monkeypatch.undo()
            remover.unpacked(OTHER.archive, OTHER.sha256)
            paths.append(holder.unpacked(ONE.archive, ONE.sha256))
        lock(file, how)

    lock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", flock)
    BundleCache(tmp_path, most_bytes=0).unpacked(THIRD.archive, THIRD.sha256)

    assert [(path / "tokenizer.json").is_file() for path in paths] == [True]


def test_routers_that_start_and_end_together_have_what_they_asked_for(tmp_path: Path) -> None:
    """Whoever removes and whoever unpacks at the same moment: a bundle that is held is whole."""

    def restless(number: int) -> bool:
        bundle = (ONE, OTHER, THIRD)[number % 3]
        cache = BundleCache(tmp_path, most_bytes=0)
        path = cache.unpacked(bundle.archive, bundle.sha256)
        whole = (path / "tokenizer.json").is_file() and (path / "tokenizer_config.json").is_file()
        cache.close()
        return whole

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(restless, range(60)))
