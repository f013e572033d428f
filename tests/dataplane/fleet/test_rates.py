"""Rates and keys: what a minute allows, and who may come."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing
from pathlib import Path

import pytest

from sglr_dataplane.errors import TooManyRequestsError
from sglr_dataplane.fleet.caller import Caller
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.keys import Keys, KeysFileError
from sglr_dataplane.fleet.rates import Meter, Rates
from sglr_proto.backend import RateLimit, RateScope
from support.engines import HI, FakeClock, ScriptedEngine
from support.fleets import KEY, a_backend, a_job, a_registry
from support.router import eventually


def used(meter: Meter, rates: Rates, tokens: int = 1, owner: str = "a") -> bool:
    """Return whether *meter* admits a request."""
    try:
        meter.admit(owner, rates, tokens)
    except TooManyRequestsError:
        return False
    return True


def test_a_minutes_worth_may_come_at_once_and_then_as_it_comes_back() -> None:
    """Sixty requests a minute: sixty at once, then one a second."""
    clock, rates = FakeClock(), Rates(requests=60)
    meter = Meter(clock)
    at_once = sum(used(meter, rates) for _ in range(100))
    clock.pass_by(2)
    later = sum(used(meter, rates) for _ in range(100))

    assert (at_once, later) == (60, 2)


def test_what_is_refused_is_not_counted_and_says_when() -> None:
    """A prompt that is too long now costs nothing; Retry-After is when it fits."""
    clock, rates = FakeClock(), Rates(requests=60, input_tokens=600)
    meter = Meter(clock)
    meter.admit("a", rates, 500)
    with pytest.raises(TooManyRequestsError) as failure:
        meter.admit("a", rates, 300)
    told = dict(meter.headers("a", rates))

    assert failure.value.status == 429
    assert failure.value.retry_after == 20
    assert told["x-ratelimit-remaining-requests"] == "59"
    assert told["x-ratelimit-remaining-tokens"] == "100"
    assert told["x-ratelimit-limit-tokens"] == "600"
    assert told["x-ratelimit-reset-tokens"] == "50.000s"


def test_a_prompt_larger_than_a_minutes_worth_is_let_through_when_all_is_there() -> None:
    """Else it never could be: it takes everything, and more."""
    clock, rates = FakeClock(), Rates(input_tokens=100)
    meter = Meter(clock)

    assert used(meter, rates, 250)
    assert not used(meter, rates, 1)
    clock.pass_by(60)
    assert not used(meter, rates, 1)
    clock.pass_by(60)
    assert used(meter, rates, 1)


def test_answers_are_counted_at_their_end_and_worked_off() -> None:
    """An answer of three minutes' worth makes the next wait for two, and a bit."""
    clock, rates = FakeClock(), Rates(output_tokens=100)
    meter = Meter(clock)
    first = used(meter, rates)
    meter.answered("a", rates, 300)
    clock.pass_by(119)
    early = used(meter, rates)
    clock.pass_by(2)

    assert (first, early, used(meter, rates)) == (True, False, True)


def test_owners_do_not_share_and_new_rates_are_in_force_at_once() -> None:
    """What one has used is not another's; a changed limit starts anew."""
    meter = Meter(FakeClock())
    one = Rates(requests=1)

    assert used(meter, one)
    assert not used(meter, one)
    assert used(meter, one, owner="b")
    assert used(meter, Rates(requests=2))


@pytest.mark.parametrize(("per", "expected"), [(RateScope.ROUTER, 2), (RateScope.API_KEY, 4)])
async def test_a_backends_rate_limit_counts_everybody_or_each(
    per: RateScope, expected: int
) -> None:
    """Two requests a minute, of two callers together or of each."""
    backend = a_backend(rate_limit=RateLimit(requests_per_minute=2, per=per))
    clock = FakeClock()
    registry = a_registry({"w1": ScriptedEngine(HI)}, backend=backend, clock=clock)
    dispatcher = Dispatcher(registry, clock=clock)
    served = 0
    for name in "ababab":
        try:
            stream = await dispatcher.dispatch(KEY, a_job(), Caller(name=name))
        except TooManyRequestsError:
            continue
        async with aclosing(stream):
            served += len([chunk async for chunk in stream]) == 3

    assert served == expected


async def test_the_tokens_of_answers_are_counted_by_the_workers_count() -> None:
    """Two tokens were generated; of three a minute one is left, after it none."""
    clock = FakeClock()
    registry = a_registry({"w1": ScriptedEngine(HI)}, clock=clock)
    meter = Meter(clock)
    caller = Caller(name="a", rates=Rates(output_tokens=3))
    async with aclosing(
        await Dispatcher(registry, meter=meter, clock=clock).dispatch(KEY, a_job(), caller)
    ) as stream:
        tokens = [chunk.usage.completion_tokens async for chunk in stream]

    assert max(tokens) == 2
    assert dict(meter.headers("a", caller.rates))["x-ratelimit-remaining-output-tokens"] == str(
        3 - tokens[-1]
    )


SECRET = "sk-SECRET123"


def a_file(folder: Path, text: str) -> Keys:
    """Return the keys of a file that says *text*."""
    path = folder / "keys.yaml"
    path.write_text(text)
    return Keys(str(path))


def test_keys_are_found_by_hash_or_by_themselves_and_never_shown(tmp_path: Path) -> None:
    """A file may hold either; memory holds hashes, and no repr holds a key."""
    digest = hashlib.sha256(b"other").hexdigest()
    keys = a_file(
        tmp_path,
        f"keys:\n- {{name: a, key: {SECRET}, models: [m], priority: high}}\n"
        f"- {{name: b, sha256: {digest}, requestsPerMinute: 5}}\n",
    )
    keys.load()
    first, second = keys.find(SECRET), keys.find("other")

    assert first is not None
    assert second is not None
    assert (first.name, first.models, first.priority) == ("a", frozenset({"m"}), Priority.HIGH)
    assert (second.name, second.rates.requests) == ("b", 5)
    assert keys.find("sk-SECRET12") is None
    assert keys.find("é\udcff") is None
    assert SECRET not in repr(keys) + repr(first) + str(vars(keys))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("keys: [{name: a}]", "'a' needs either key or sha256"),
        (f"keys: [{{name: a, key: {SECRET}, sha256: '{'0' * 64}'}}]", "needs either"),
        (f"keys: [{{name: a, kye: {SECRET}}}]", "unknown field `kye`"),
        (f"keys: [{{name: 'a b', key: {SECRET}}}]", "name"),
        (f"keys: [{{name: a, key: {SECRET}", "it is no YAML"),
        (f"{SECRET}", "not usable"),
        ("", "not usable"),
        ("keys: 2001-99-99", "not usable"),
        (f"keys: !!int {SECRET}", "not usable"),
        ("[" * 5000, "not usable"),
        (f"keys: [{{name: a, key: {SECRET}, key: {SECRET}}}]", "it is no YAML"),
        ("keys: []\n---\nkeys: []", "several documents"),
        ("keys: [{name: a, key: ''}]", "length >= 1"),
        (f"keys: [{{name: a, key: {SECRET}, maxInflight: 0}}]", ">= 1"),
        (f"keys: [{{name: a, key: {SECRET}}}, {{name: b, key: {SECRET}}}]", "'a' and 'b' have one"),
    ],
)
def test_a42_a_wrong_file_is_told_without_its_keys(tmp_path: Path, text: str, problem: str) -> None:
    """A42: the sentence says what is wrong, and quotes nothing."""
    with pytest.raises(KeysFileError) as failure:
        a_file(tmp_path, text).load()

    assert problem in str(failure.value)
    assert SECRET not in str(failure.value)


async def test_keys_are_rotated_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed file is in force in a moment; a broken one changes nothing."""
    keys = a_file(tmp_path, "keys: [{name: a, key: old}]")
    keys.load()
    task = asyncio.ensure_future(keys.follow(0.01))
    path = tmp_path / "keys.yaml"
    try:
        path.write_text("keys: [{name: a, key: old}, {name: a, key: new}]")
        await eventually(lambda: keys.find("new"))
        both = keys.find("old")
        path.write_text("keys: [")
        await eventually(lambda: "keys not usable" in caplog.text)
        after_broken = keys.find("new")
    finally:
        task.cancel()
        await asyncio.wait({task})

    assert both is not None
    assert after_broken is not None
