"""Keys that one backend asks for: who gets in, and into what."""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from sglr_dataplane.api.auth import Guard, caller_of
from sglr_dataplane.errors import InvalidKeyError, UnknownModelError
from sglr_dataplane.fleet.backend_keys import BackendKeys
from sglr_dataplane.fleet.caller import NOBODY, Caller
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.keys import Keys
from sglr_dataplane.fleet.rates import Meter
from sglr_proto.resolved import CallerKey, Resolved
from sglr_proto.snapshot import BackendSnapshot, Snapshot
from sglr_proto.spec_refs import Auth, CallerKeysRef
from support.engines import HI, FakeClock, ScriptedEngine
from support.exchanges import an_exchange
from support.fleets import KEY, a_backend, a_job, a_registry

LOCKED = a_backend(auth=Auth(key_secret_refs=(CallerKeysRef(name="callers"),)))
OPEN = a_backend("open", model="o")
FILE = "keys:\n- {name: team, key: sk-file}\n"


def callers(*keys: str) -> Resolved:
    """Return what the operator tells of a Secret with *keys*."""
    return Resolved(
        callers=tuple(
            CallerKey(name=f"callers/{key}", sha256=hashlib.sha256(key.encode()).hexdigest())
            for key in keys
        )
    )


def told(resolved: Resolved | None) -> Snapshot:
    """Return a snapshot of a locked and an open backend."""
    return Snapshot(
        backends=(
            BackendSnapshot(backend=LOCKED, resolved=resolved),
            BackendSnapshot(backend=OPEN),
        )
    )


def known(*keys: str) -> BackendKeys:
    """Return what a router knows after a snapshot with *keys*."""
    found = BackendKeys()
    found.tell(told(callers(*keys)))
    return found


async def admitted(presented: str, keys_file: Path | None = None) -> Caller | None:
    """Return who a request with *presented* comes from; None when it is refused."""
    keys = Keys(str(keys_file) if keys_file is not None else None)
    keys.load()
    guard = Guard(keys=keys, backend_keys=known("sk-one"), meter=Meter(FakeClock()))
    headers = [(b"authorization", f"Bearer {presented}".encode())] if presented else []
    exchange = an_exchange(headers=headers)
    try:
        guard.admit(exchange)
    except InvalidKeyError:
        return None
    assert exchange.headers == []
    return caller_of(exchange)


@pytest.mark.parametrize(
    ("presented", "has_file", "enters"),
    [
        ("", False, {"open"}),
        ("sk-wrong", False, {"open"}),
        ("sk-one", False, {"open", "locked"}),
        ("sk-one", True, {"locked"}),
        ("sk-file", True, {"open", "locked"}),
        ("sk-wrong", True, None),
        ("", True, None),
    ],
)
async def test_a_key_opens_what_it_belongs_to(
    presented: str,
    has_file: bool,  # the table's column
    enters: set[str] | None,
    tmp_path: Path,
) -> None:
    """A backend's key opens it; the router's file opens everything, and closes the rest."""
    file = tmp_path / "keys.yaml"
    file.write_text(FILE)
    caller = await admitted(presented, file if has_file else None)

    names = {"open": OPEN, "locked": LOCKED}
    found = None if caller is None else {n for n, b in names.items() if caller.may_enter(b)}
    assert found == enters


async def test_a_caller_is_called_by_namespace_secret_and_key() -> None:
    """Fairness and logs know whose request it is, and no key."""
    caller = await admitted("sk-one")

    assert caller is not None
    assert caller.name == "default/callers/sk-one"


def test_a_rotated_key_counts_at_once_and_the_old_one_no_more() -> None:
    """Each snapshot's keys replace the ones before."""
    keys = known("old")
    keys.tell(told(callers("new")))

    assert keys.find("old") is None
    assert keys.find("new") == ("default/callers/new", frozenset({LOCKED.key}))


def test_a_key_of_two_backends_opens_both() -> None:
    """The same Secret may be named twice."""
    other = replace(OPEN, spec=replace(OPEN.spec, auth=LOCKED.spec.auth))
    keys = BackendKeys()
    keys.tell(
        Snapshot(
            backends=tuple(
                BackendSnapshot(backend=each, resolved=callers("k")) for each in (LOCKED, other)
            )
        )
    )

    found = keys.find("k")
    assert found is not None
    assert found[1] == {LOCKED.key, other.key}


def test_a_backend_whose_keys_nobody_resolved_is_closed() -> None:
    """A list that came without its secrets opens nothing."""
    keys = BackendKeys()
    keys.tell(told(None))

    assert keys.find("sk-one") is None
    assert not NOBODY.may_enter(LOCKED)


async def test_dispatch_refuses_whoever_has_no_key() -> None:
    """The answer is that of a model that does not exist: nobody learns what is there."""
    registry = a_registry({"w1": ScriptedEngine(HI)}, backend=LOCKED)
    dispatcher = Dispatcher(registry)
    with pytest.raises(UnknownModelError, match="not for this key"):
        await dispatcher.dispatch(KEY, a_job())
    async with aclosing(
        await dispatcher.dispatch(KEY, a_job(), Caller(opens=frozenset({KEY})))
    ) as stream:
        assert (await anext(stream)).token_ids == (1,)
