"""Routes: from the name that a client sends as the model to the backend that serves it; pure.

Several backends may answer to one name. Which one gets a request is decided by its headers, then
by priority, then by weight, among those that can take it now.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec

from sglr_proto.backend import AdapterDiscovery, Model, SGLangBackend, Traffic


class WayState(enum.IntEnum):
    """How a way stands at the moment; the greater, the better."""

    DOWN = 0
    """Nobody there can take a request."""
    FULL = 1
    """Somebody could, but no more may wait there."""
    OPEN = 2


@dataclass(frozen=True, slots=True)
class Way:
    """One way to serve a name."""

    backend_key: str
    adapter: str
    """The adapter by its name at the workers; ``""`` for the model itself."""
    traffic: Traffic


class Target(msgspec.Struct, frozen=True, gc=False):
    """Where a request goes."""

    backend_key: str
    adapter: str = ""
    """The adapter by its name at the workers; ``""`` for the model itself."""


class Routes:
    """Every way to serve every name, as the specs of some backends declare it."""

    def __init__(self, backends: Iterable[SGLangBackend] = ()) -> None:
        """Read the specs of *backends*."""
        self._ways: dict[str, tuple[Way, ...]] = {}
        self._models: dict[str, SGLangBackend] = {}
        self._discovering: list[SGLangBackend] = []
        for backend in backends:
            self._models[backend.key] = backend
            for name in backend.spec.model.names:
                self._add(name, _way(backend))
            for adapter in backend.spec.model.adapters:
                self._add(adapter.name, _way(backend, adapter.worker_name))
            if backend.spec.model.adapter_discovery is AdapterDiscovery.WORKER:
                self._discovering.append(backend)

    def __repr__(self) -> str:
        return f"<Routes of {sorted(self._ways)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Every declared name, each once, by backend."""
        return tuple(self._ways)

    @property
    def only_model(self) -> str | None:
        """The name of the model when there is just one; None when there are several, or none."""
        names = {backend.spec.model.name for backend in self._models.values()}
        return names.pop() if len(names) == 1 else None

    def ways(self, name: str) -> tuple[Way, ...]:
        """Return every way to serve *name*; ``()`` when nobody can.

        A name is looked for among models, aliases and adapters; then as ``model:adapter``; then,
        as far as discovery is on, among what workers list. Whether a worker lists the adapter of a
        way is not looked at here.
        """
        if found := self._ways.get(name):
            return found
        base, _, adapter = name.rpartition(":")
        if found := self._ways.get(base):
            backends = (self._models[way.backend_key] for way in found if not way.adapter)
            return tuple(way for each in backends for way in _adapter_ways(each, adapter))
        return tuple(_way(backend, name) for backend in self._discovering)

    def _add(self, name: str, way: Way) -> None:
        self._ways[name] = (*self._ways.get(name, ()), way)


def adapter_names(model: Model, listed: Collection[str]) -> tuple[str, ...]:
    """Return the names by which clients may send the adapters of *model*.

    Args:
        model: As the spec declares it.
        listed: The adapters that its workers have, by their names there.
    """
    declared = [each.name for each in model.adapters if each.worker_name in listed]
    if model.adapter_discovery is not AdapterDiscovery.WORKER:
        return tuple(declared)
    return tuple(dict.fromkeys([*declared, *sorted(set(listed).difference(model.names))]))


def choose(
    ways: Sequence[Way],
    headers: Mapping[str, str],
    state: Callable[[Way], WayState],
    chance: float,
) -> Way | None:
    """Return the way of a request.

    Args:
        ways: Those that serve its model.
        headers: The request's, by their names in lower case.
        state: How a way stands now; asked only where there is a choice.
        chance: A number in ``[0, 1)``: where the request falls among the weights.

    Returns:
        The first of these that there is: an open one that asks for a header of the request; an
        open one of the lowest priority; one of the lowest priority that is full; one of the lowest
        priority, so that the request is told what is wrong there, or waits. None when every way
        has weight 0 and asks for another header.
    """
    only = ways[0].traffic if len(ways) == 1 else None
    if only is not None and only.weight and only.header is None:
        return ways[0]
    wanted = [way for way in ways if _asks_for(way.traffic, headers)]
    common = [way for way in ways if way.traffic.weight]
    if len(common) == 1 and not wanted:
        return common[0]
    states = {way: state(way) for way in dict.fromkeys([*wanted, *common])}
    if marked := [way for way in wanted if states[way] is WayState.OPEN]:
        return _weighted(marked, chance)
    for least in (WayState.OPEN, WayState.FULL, WayState.DOWN):
        good = [way for way in common if states[way] >= least]
        if good:
            first = min(way.traffic.priority for way in good)
            return _weighted([way for way in good if way.traffic.priority == first], chance)
    return _weighted(wanted, chance) if wanted else None


def _weighted(ways: Sequence[Way], chance: float) -> Way:
    """Return the way at *chance* of all weights; ways that have none are equal."""
    weights = [way.traffic.weight for way in ways]
    if not any(weights):
        weights = [1] * len(ways)
    sums = list(accumulate(weights))
    at = chance * sums[-1]
    return next(way for way, total in zip(ways, sums, strict=True) if at < total)


def _asks_for(traffic: Traffic, headers: Mapping[str, str]) -> bool:
    if traffic.header is None:
        return False
    value = headers.get(traffic.header.name.lower())
    return value is not None and traffic.header.value in {None, value}


def _adapter_ways(backend: SGLangBackend, name: str) -> Iterable[Way]:
    """Yield the way to the adapter *name* of *backend*, if it may be asked for."""
    declared = {adapter.name: adapter.worker_name for adapter in backend.spec.model.adapters}
    if name in declared:
        yield _way(backend, declared[name])
    elif backend.spec.model.adapter_discovery is AdapterDiscovery.WORKER:
        yield _way(backend, name)


def _way(backend: SGLangBackend, adapter: str = "") -> Way:
    return Way(backend.key, adapter, backend.spec.traffic)


NO_ROUTES: Final = Routes()
