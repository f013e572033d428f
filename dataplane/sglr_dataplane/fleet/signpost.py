"""The signpost: says which backend a request goes to, by its model's name and how things stand."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sglr_dataplane.errors import (
    InvalidRequestError,
    NoAvailableWorkersError,
    UnknownModelError,
)
from sglr_dataplane.fleet import selection
from sglr_dataplane.fleet.caller import NOBODY, Caller
from sglr_dataplane.fleet.routes import Target, Way, WayState, choose

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.fleet.registry import Registry


def _always(_backend_key: str) -> bool:
    """Be true of every backend."""
    return True


class Signpost:
    """Chooses among the backends of a registry that serve a name."""

    def __init__(self, registry: Registry, *, chance: Callable[[], float] = random.random) -> None:
        """Choose among those of *registry*; *chance* is a number in ``[0, 1)``, for weights."""
        self._registry = registry
        self._chance = chance
        self.is_prepared: Callable[[str], bool] = _always
        """Whether this process has what a backend needs beside its workers."""

    def target(
        self,
        model: str | None,
        caller: Caller = NOBODY,
        among: Callable[[str], bool] = _always,
    ) -> Target:
        """Return where *caller*'s request for *model* goes.

        Args:
            model: A name that clients send; None: the only model there is.
            caller: Who asks.
            among: Whether a backend, by its key, is to be chosen from at all.

        Raises:
            InvalidRequestError: None is named, and there are several.
            UnknownModelError: Nobody serves that name, no worker has that adapter, or the caller
                may not use it.
            NoAvailableWorkersError: Every backend of that name wants no requests like this one.
        """
        name = model if model is not None else self._only_model()
        ways = [
            way
            for way in self._registry.routes.ways(name)
            if among(way.backend_key) and self._is_open(way, caller)
        ]
        if not ways or not caller.may_use(name):
            # One sentence for both: nobody learns what others may use.
            raise UnknownModelError(
                f"The model {name!r} does not exist here, or not for this key; GET /v1/models "
                "lists those that do.",
                param="model",
            )
        way = choose(ways, caller.headers, self._state, self._chance())
        if way is None:
            raise NoAvailableWorkersError(
                f"No backend of model {name!r} takes requests like this one: each has weight 0."
            )
        return Target(way.backend_key, way.adapter)

    def spare(
        self, model: str | None, caller: Caller, among: Callable[[str], bool]
    ) -> Target | None:
        """Return where else *caller*'s request for *model* may go; None: nobody there can take it.

        Args:
            model: A name that clients send; None: the only model there is.
            caller: Who asks.
            among: Whether a backend, by its key, is to be chosen from at all.
        """
        try:
            target = self.target(model, caller, among)
        except (UnknownModelError, NoAvailableWorkersError):
            return None
        spec = self._registry.backend(target.backend_key).spec
        way = Way(target.backend_key, target.adapter, spec.traffic)
        return target if self._state(way) is WayState.OPEN else None

    def _only_model(self) -> str:
        name = self._registry.routes.only_model
        if name is None:
            raise InvalidRequestError(
                "Missing required parameter: 'model'; this router serves several, and GET /v1/models"
                " lists them.",
                param="model",
                code="missing_required_parameter",
            )
        return name

    def _is_open(self, way: Way, caller: Caller) -> bool:
        """Return whether there is *way* for *caller*: its adapter is listed, its backend open."""
        if not caller.may_enter(self._registry.by_key[way.backend_key].backend):
            return False
        return not way.adapter or way.adapter in self._registry.abilities(way.backend_key).adapters

    def _state(self, way: Way) -> WayState:
        pool = self._registry.pool(way.backend_key)
        if pool is None or not self.is_prepared(way.backend_key):
            return WayState.DOWN
        if not selection.usable(selection.having(way.adapter, pool.workers.values())):
            return WayState.DOWN
        return WayState.FULL if pool.gate.is_full else WayState.OPEN
