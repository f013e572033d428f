"""The status tells what is so, why, and since when."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sglr_operator.conditions import Facts, Rejection, RouterView, status_of
from sglr_operator.endpoints import Found
from sglr_operator.schema import root
from sglr_operator.status import CONDITION_TYPES, BackendStatus, RefProblem, condition
from sglr_proto.snapshot import Endpoint, EndpointState

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def endpoints(*states: EndpointState) -> Found:
    """Return what discovery found: one endpoint per state."""
    return Found(
        tuple(
            Endpoint(id=f"u{i}:1", host=f"10.0.0.{i}", port=1, state=state)
            for i, state in enumerate(states)
        ),
        matched=len(states),
    )


GOOD = Facts(
    generation=3,
    found=endpoints(EndpointState.READY, EndpointState.DRAINING),
    routers=RouterView(connected=2, synced=2),
    epoch=(1700000000, 4),
    version=7,
    models=("qwen",),
)


def told(facts: Facts, kind: str, previous: BackendStatus | None = None) -> tuple[str, str, str]:
    """Return status, reason and message of one condition."""
    found = condition(status_of(facts, previous, NOW), kind)
    assert found is not None
    return found.status, found.reason, found.message


def test_k24_all_five_conditions_are_there_with_their_generation() -> None:
    """Kubectl wait finds each of them, about the newest spec."""
    status = status_of(GOOD, None, NOW)

    assert tuple(c.type for c in status.conditions) == CONDITION_TYPES
    assert {c.observed_generation for c in status.conditions} == {3}
    assert {c.status for c in status.conditions} == {"True"}
    assert (status.endpoints.total, status.endpoints.ready, status.endpoints.draining) == (2, 1, 1)
    assert (status.routers.connected, status.routers.synced) == (2, 2)
    assert (status.snapshot.version, status.snapshot.epoch) == (7, "1700000000.4")
    assert status.models == ("qwen",)


@pytest.mark.parametrize(
    ("change", "kind", "status", "reason", "words"),
    [
        ({"spec_problem": "spec.x is y."}, "Accepted", "False", "InvalidSpec", "last good version"),
        ({"conflict": "it is taken."}, "Accepted", "False", "ModelConflict", "it is taken."),
        (
            {"found": Found(problem=RefProblem("ServiceNotFound", "no such Service."))},
            "ResolvedRefs",
            "False",
            "ServiceNotFound",
            "no such Service.",
        ),
        ({"found": Found()}, "EndpointsAvailable", "False", "NoEndpoints", "No pod"),
        (
            {"found": Found(matched=3, obstacles=("Pod x readiness probe failing",))},
            "EndpointsAvailable",
            "False",
            "NoReadyEndpoints",
            "3 pods match, 0 ready: Pod x readiness probe failing.",
        ),
        ({"routers": RouterView()}, "Programmed", "False", "NoRouters", "No router"),
        (
            {"routers": RouterView(connected=2, synced=1)},
            "Programmed",
            "Unknown",
            "Syncing",
            "applying",
        ),
        (
            {"routers": RouterView(connected=2, synced=1, lagging=("r-1",))},
            "Programmed",
            "False",
            "RoutersLagging",
            "r-1",
        ),
        (
            {
                "routers": RouterView(
                    connected=2, synced=1, rejections=(Rejection("r-1", "BadSpec", "no."),)
                )
            },
            "Programmed",
            "False",
            "RouterRejected",
            "Rejected by r-1; r-1 says BadSpec: no.",
        ),
        (
            {"routers": RouterView(connected=2, synced=2, unusable={"u0:1": "It is deaf."})},
            "EndpointsAvailable",
            "False",
            "NoUsableEndpoints",
            "1 ready, but routers cannot use 1: 10.0.0.0:1: It is deaf.",
        ),
        (
            {"routers": RouterView(connected=2, synced=2, unusable={"u0:1": ""})},
            "EndpointsAvailable",
            "False",
            "NoUsableEndpoints",
            "10.0.0.0:1: not usable.",
        ),
        (
            {"routers": RouterView(connected=2, synced=2, unprepared=("r-1: No folder.",))},
            "Programmed",
            "False",
            "RoutersNotPrepared",
            "r-1: No folder.",
        ),
        ({"version": 0}, "Programmed", "Unknown", "Pending", "Nothing was sent"),
        ({"oversize": "9 bytes."}, "Programmed", "False", "TooLarge", "9 bytes."),
    ],
)
def test_each_trouble_has_its_condition_reason_and_words(
    change: dict[str, object], kind: str, status: str, reason: str, words: str
) -> None:
    """What is wrong stands in one condition, and Ready repeats it."""
    facts = replace(GOOD, **change)  # type: ignore[arg-type]  # the table's column

    found = told(facts, kind)
    assert found[:2] == (status, reason)
    assert words in found[2]
    assert told(facts, "Ready")[0] == status


def test_some_usable_workers_are_enough_and_the_others_are_named() -> None:
    """A backend with one good worker serves; what is wrong with the other is said all the same."""
    found = endpoints(EndpointState.READY, EndpointState.READY)
    routers = RouterView(connected=2, synced=2, healthy=1, unusable={"u1:1": "it is deaf"})
    facts = replace(GOOD, found=found, routers=routers)

    assert told(facts, "EndpointsAvailable") == (
        "True",
        "EndpointsReady",
        "2 ready, but routers cannot use 1: 10.0.0.1:1: it is deaf.",
    )
    assert told(facts, "Ready")[0] == "True"
    assert status_of(facts, None, NOW).workers.unhealthy == 1


def test_what_routers_said_of_workers_that_left_does_not_count() -> None:
    """A roll-out from broken workers to good ones is over when the good ones are ready."""
    routers = RouterView(connected=2, synced=2, unusable={"gone:1": "it is deaf"})

    assert told(replace(GOOD, routers=routers), "EndpointsAvailable")[2] == "1 ready."


def test_every_condition_is_a_whole_metav1_condition() -> None:
    """metav1.Condition requires type, status, reason, message and time; ours all say something."""
    written = msgspec.to_builtins(status_of(GOOD, None, NOW))["conditions"]

    fields = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}
    assert all(each.keys() == fields and each["message"] for each in written)
    schema = root()["properties"]["status"]["properties"]["conditions"]["items"]
    assert set(schema["required"]) == fields - {"observedGeneration"}


def test_ready_says_the_worst_reason_first() -> None:
    """A False condition explains Ready before an Unknown one, and causes before effects."""
    facts = replace(GOOD, found=Found(), routers=RouterView(connected=1))

    assert told(facts, "Ready")[:2] == ("False", "NoEndpoints")


def test_times_change_only_with_the_status() -> None:
    """A condition that still holds keeps its time, even when its message changes."""
    before = status_of(GOOD, None, THEN)
    after = status_of(replace(GOOD, found=Found(), generation=4), before, NOW)

    times = {c.type: c.last_transition_time for c in after.conditions}
    assert times["Accepted"] == THEN
    assert times["EndpointsAvailable"] == NOW
    assert times["Ready"] == NOW
    assert status_of(GOOD, before, NOW) == before


def test_long_lists_are_named_in_part() -> None:
    """A thousand unready pods do not fill the condition."""
    obstacles = tuple(f"Pod p{i} is not ready" for i in range(1000))
    message = told(
        replace(GOOD, found=Found(matched=1000, obstacles=obstacles)), "EndpointsAvailable"
    )[2]

    assert message.endswith("; and 997 more.")
    assert len(message) < 200
