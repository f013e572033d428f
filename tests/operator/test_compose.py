"""Versions rise exactly when content changes, and names have one owner."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_operator.compose import Ledger, conflicts, lost_most
from sglr_operator.objects import ObjectMeta
from sglr_proto.backend import SGLangBackend
from sglr_proto.snapshot import BackendSnapshot, Endpoint, EndpointState
from support.kube_objects import a_backend


def an_endpoint(number: int, state: EndpointState = EndpointState.READY) -> Endpoint:
    """Return the endpoint of pod *number*."""
    return Endpoint(id=f"u{number}:1", host=f"10.0.0.{number}", port=1, state=state)


def aged(backend: SGLangBackend, created: str) -> tuple[ObjectMeta, SGLangBackend]:
    """Return *backend* as an object made at *created*."""
    meta = ObjectMeta(
        name=backend.metadata.name,
        namespace=backend.metadata.namespace,
        creation_timestamp=created,
    )
    return meta, backend


def test_k28_the_same_content_is_entered_once() -> None:
    """No-op events make no version, whatever order endpoints come in."""
    ledger = Ledger()
    one, two = an_endpoint(1), an_endpoint(2)

    first = ledger.enter(a_backend(), (one, two))
    assert first is not None
    assert first.version == first.snapshot.version == 1
    assert ledger.enter(a_backend(), (two, one)) is None


@given(st.lists(st.sets(st.integers(1, 4)), max_size=12))
def test_versions_rise_by_one_with_each_change(contents: list[set[int]]) -> None:
    """A version is the number of changes so far."""
    ledger, last, version = Ledger(), None, 0
    for content in contents:
        composed = ledger.enter(a_backend(), tuple(map(an_endpoint, sorted(content))))
        if content == last:
            assert composed is None
        else:
            version += 1
            assert composed is not None
            assert composed.version == version
        last = content


def test_a_backend_that_comes_back_goes_on_counting() -> None:
    """Nothing said about the old object is newer than what is said about the new one."""
    ledger = Ledger()
    ledger.enter(a_backend(), ())
    removed = ledger.remove("inference/chat")
    again = ledger.enter(a_backend(), ())

    assert removed is not None
    assert again is not None
    assert (removed.version, again.version) == (2, 3)
    assert ledger.remove("inference/other") is None


def test_hashes_are_the_same_in_every_process() -> None:
    """A restarted operator with another hash seed finds the same content unchanged."""
    code = (
        "from support.kube_objects import a_backend;"
        "from sglr_operator.compose import Ledger;"
        "import json;"
        "backend = a_backend({'selector': {'matchLabels': {'b': '1', 'a': '2', 'c': '3'}}});"
        "print(json.dumps(Ledger().enter(backend, ()).hash))"
    )
    found = {
        json.loads(
            subprocess.run(  # this interpreter
                [sys.executable, "-c", code],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": "tests"},
                check=True,
                capture_output=True,
                timeout=15,
            ).stdout
        )
        for seed in ("1", "2")
    }

    assert len(found) == 1


@pytest.mark.parametrize(
    "model",
    [
        {"name": "qwen"},
        {"name": "other", "aliases": ["qwen"]},
        {"name": "other", "adapters": [{"name": "qwen"}]},
    ],
)
def test_the_older_backend_keeps_a_model_name_from_other_namespaces(model: dict[str, Any]) -> None:
    """The younger claimant is told who has the name; aliases and adapters count as names."""
    old = aged(a_backend(name="b-old"), "2026-01-01T00:00:00Z")
    young = aged(a_backend(name="a-young", namespace="team", model=model), "2026-01-02T00:00:00Z")

    for order in ([old, young], [young, old]):
        lost = conflicts(order)
        assert list(lost) == ["team/a-young"]
        assert (
            "'inference/b-old' of another namespace is older and already serves 'qwen'"
            in lost["team/a-young"]
        )


def test_backends_of_one_namespace_share_a_model_name() -> None:
    """That is how a canary, a split or a fallback is declared."""
    pair = [aged(a_backend(name=name), "2026-01-01T00:00:00Z") for name in ("b", "a")]

    assert not conflicts(pair)


def test_equally_old_backends_are_told_apart_by_name() -> None:
    """Every replica of the operator decides alike."""
    pair = [
        aged(a_backend(name="chat", namespace=namespace), "2026-01-01T00:00:00Z")
        for namespace in ("b", "a")
    ]

    assert list(conflicts(pair)) == ["b/chat"]


def test_a_backend_that_lost_one_name_claims_no_other() -> None:
    """A refused backend does not take names from others on the side."""
    first = aged(a_backend(name="a"), "1")
    both = {"name": "qwen", "aliases": ["spare"]}
    refused = aged(a_backend(name="b", namespace="team", model=both), "2")
    third = aged(a_backend(name="c", model={"name": "spare"}), "3")

    assert list(conflicts([first, refused, third])) == ["team/b"]


def test_a_mass_loss_is_more_than_half_of_several() -> None:
    """Losing one of two is a rollout; losing three of four is worth a warning."""

    def having(ready: int) -> BackendSnapshot:
        return BackendSnapshot(
            backend=a_backend(), endpoints=tuple(map(an_endpoint, range(1, ready + 1)))
        )

    assert not lost_most(None, having(0))
    assert not lost_most(having(1), having(0))
    assert not lost_most(having(2), having(1))
    assert not lost_most(having(4), having(2))
    assert lost_most(having(4), having(1))
    assert lost_most(having(2), having(0))
