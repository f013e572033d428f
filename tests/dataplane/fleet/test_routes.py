"""Routes: which of several backends a request goes to, by name, header, priority and weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.fleet.routes import Routes, Way, WayState, adapter_names, choose
from sglr_proto.backend import Adapter, AdapterDiscovery, HeaderMatch, Model, Traffic
from support.fleets import a_backend

CANARY = HeaderMatch(name="X-Canary", value="on")
ADAPTERS = (Adapter(name="sql"), Adapter(name="chat-fr", served_name="fr"))


def a_way(name: str, weight: int = 1, priority: int = 0, header: HeaderMatch | None = None) -> Way:
    """Return the way to the backend *name*."""
    return Way(name, "", Traffic(weight=weight, priority=priority, header=header))


def chosen(
    *ways: Way,
    chance: float = 0.0,
    headers: Mapping[str, str] | None = None,
    **states: WayState,
) -> str | None:
    """Return the name of the chosen backend; each is open unless *states* say otherwise."""
    way = choose(
        ways, headers or {}, lambda way: states.get(way.backend_key, WayState.OPEN), chance
    )
    return way.backend_key if way is not None else None


def test_requests_are_split_by_weight() -> None:
    """Nine to one, as the numbers say; weight 0 gets nothing."""
    ways = (a_way("stable", 9), a_way("canary", 1), a_way("dark", 0))
    found = Counter(chosen(*ways, chance=n / 1000) for n in range(1000))

    assert found == {"stable": 900, "canary": 100}


def test_a_header_brings_requests_to_the_canary() -> None:
    """The exact value does, in any case of the name; another value, or none, does not."""
    ways = (a_way("stable", 9), a_way("canary", 0, header=CANARY))
    found = [
        chosen(*ways, headers=headers) for headers in ({"x-canary": "on"}, {"x-canary": "off"}, {})
    ]

    assert found == ["canary", "stable", "stable"]


def test_a_header_without_a_value_takes_any() -> None:
    """That the header is there is enough."""
    canary = a_way("canary", 0, header=HeaderMatch(name="x-canary"))

    assert chosen(a_way("stable"), canary, headers={"x-canary": ""}) == "canary"


@pytest.mark.parametrize("state", [WayState.FULL, WayState.DOWN])
def test_a_canary_that_cannot_take_a_request_does_not_fail_it(state: WayState) -> None:
    """Whoever asks for it is served by the others meanwhile."""
    ways = (a_way("stable"), a_way("canary", 0, header=CANARY))

    assert chosen(*ways, headers={"x-canary": "on"}, canary=state) == "stable"


def test_the_next_priority_is_used_only_when_the_first_cannot_be() -> None:
    """Down or full: the fallback; open again: no longer."""
    ways = (a_way("main"), a_way("fallback", 100, priority=1), a_way("last", priority=2))

    assert chosen(*ways, chance=0.99) == "main"
    assert chosen(*ways, main=WayState.DOWN) == "fallback"
    assert chosen(*ways, main=WayState.FULL) == "fallback"
    assert chosen(*ways, main=WayState.DOWN, fallback=WayState.DOWN) == "last"


def test_a_full_backend_is_better_than_none_and_worse_than_any() -> None:
    """Of those that are full, the first priority says so; nobody who is down does."""
    ways = (a_way("main"), a_way("fallback", priority=1))

    assert chosen(*ways, main=WayState.FULL, fallback=WayState.FULL) == "main"
    assert chosen(*ways, main=WayState.DOWN, fallback=WayState.FULL) == "fallback"


def test_with_everybody_down_the_first_priority_says_so() -> None:
    """There a request may wait for a backend that is scaled to zero."""
    ways = (a_way("fallback", priority=1), a_way("main"))

    assert chosen(*ways, main=WayState.DOWN, fallback=WayState.DOWN) == "main"


def test_within_a_priority_the_share_of_who_is_down_goes_to_the_others() -> None:
    """By their weights."""
    ways = (a_way("a", 5), a_way("b", 3), a_way("c", 1))
    found = Counter(chosen(*ways, chance=n / 400, a=WayState.DOWN) for n in range(400))

    assert found == {"b": 300, "c": 100}


def test_nobody_is_found_where_every_weight_is_zero() -> None:
    """But the header still brings requests there."""
    ways = (a_way("a", 0), a_way("b", 0, header=CANARY))

    assert chosen(*ways) is None
    assert chosen(*ways, headers={"x-canary": "on"}) == "b"
    assert chosen(*ways, headers={"x-canary": "on"}, b=WayState.DOWN) == "b"


WAYS = st.lists(
    st.builds(
        a_way,
        st.sampled_from("abcdef"),
        st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from([None, CANARY]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda way: way.backend_key,
)


@given(
    WAYS,
    st.fixed_dictionaries(dict.fromkeys("abcdef", st.sampled_from(WayState))),
    st.booleans(),
    st.floats(0, 1, exclude_max=True),
)
def test_whoever_is_chosen_is_never_worse_than_another(
    ways: list[Way], states: dict[str, WayState], marked: bool, chance: float
) -> None:
    """Nobody of a later priority, or in a worse state, is taken while a better one is there."""
    found = chosen(*ways, chance=chance, headers={"x-canary": "on"} if marked else {}, **states)

    common = [way for way in ways if way.traffic.weight]
    canaries = [way for way in ways if marked and way.traffic.header is not None]
    open_canaries = {w.backend_key for w in canaries if states[w.backend_key] is WayState.OPEN}
    if open_canaries:
        assert found in open_canaries
    elif common:
        best = min((-states[way.backend_key], way.traffic.priority) for way in common)
        taken = next(way for way in common if way.backend_key == found)
        assert (-states[taken.backend_key], taken.traffic.priority) == best
    else:
        assert (found is None) == (not canaries)


def test_names_lead_to_models_aliases_and_adapters() -> None:
    """An adapter is found by its own name and behind its model's; at the workers by theirs."""
    routes = Routes([a_backend("a", model="qwen", aliases=("org/q:7b",), adapters=ADAPTERS)])

    def adapters(name: str) -> list[str]:
        return [way.adapter for way in routes.ways(name)]

    assert adapters("qwen") == [""]
    assert adapters("org/q:7b") == [""]
    assert adapters("sql") == ["sql"]
    assert adapters("chat-fr") == ["fr"]
    assert adapters("qwen:chat-fr") == ["fr"]
    assert adapters("org/q:7b:sql") == ["sql"]
    assert adapters("fr") == adapters("qwen:fr") == adapters("sql:sql") == adapters("") == []


def test_with_discovery_any_name_may_be_an_adapter() -> None:
    """Whether one is, the workers' lists say; without discovery only declared ones may be."""
    model = Model(name="qwen", adapter_discovery=AdapterDiscovery.WORKER, adapters=ADAPTERS)
    routes = Routes([a_backend("a", model="llama"), a_backend("b", model=model)])

    assert [(way.backend_key, way.adapter) for way in routes.ways("new")] == [("default/b", "new")]
    assert [way.adapter for way in routes.ways("qwen:new")] == ["new"]
    assert routes.ways("llama:new") == ()
    assert adapter_names(model, {"new", "fr", "qwen"}) == ("chat-fr", "fr", "new")
    assert adapter_names(Model(name="m", adapters=ADAPTERS), {"new", "sql"}) == ("sql",)


def test_the_only_model_is_known_while_there_is_one() -> None:
    """Two backends of one model are one model; adapters and aliases are not counted."""
    one = a_backend("a", model="qwen", aliases=("q",), adapters=ADAPTERS)

    assert Routes([one, a_backend("b", model="qwen")]).only_model == "qwen"
    assert Routes([one, a_backend("b", model="llama")]).only_model is None
    assert Routes().only_model is None
