"""``sglr serve --processes N``: what is done once, before there are processes, and what each does."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sglr_dataplane import log
from sglr_dataplane.api.admin import admin_token
from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.server import address_of, listen, new_server
from sglr_dataplane.app import Inherited
from sglr_dataplane.cli.processes import Supervisor, counting
from sglr_dataplane.fleet.keys import Keys
from sglr_dataplane.fleet.manifest_file import ManifestFile
from sglr_dataplane.fleet.siblings import Siblings
from sglr_dataplane.recipe import Recipes

if TYPE_CHECKING:
    import socket

    from starlette.types import Receive, Scope, Send

    from sglr_dataplane.config import RouterConfig
    from sglr_dataplane.fleet.intake_config import IntakeConfig

logger = logging.getLogger(__name__)

_LOAD_SECONDS: Final = 10.0
"""How long the start is put off for tokenizers that the processes share; one takes a second or two.
Those that are left are loaded by each process, while it serves the others."""

Listening = Callable[[str, Callable[[], None]], None]
Serve = Callable[["RouterConfig", Listening, "IntakeConfig | None", Inherited], int]
"""Serves until told to end, in a process of its own, and returns the exit status."""


class Prefork:
    """One router of several processes."""

    def __init__(
        self, config: RouterConfig, operator: IntakeConfig | None, processes: int, serve: Serve
    ) -> None:
        """Prepare; nothing is opened or loaded yet."""
        self._config = config
        self._operator = operator
        self._processes = processes
        self._serve = serve
        self._supervisor: Supervisor | None = None

    def run(self) -> int:
        """Serve until a signal ends it; prints one JSON line with the address once it listens.

        Raises what ``serve`` does for what cannot be used: once, and before there are processes.
        """
        _check(self._config)
        recipes = self._recipes()
        with ExitStack() as stack:
            listener = stack.enter_context(listen(self._config.host, self._config.port))
            admin = self._admin(stack)
            counts = stack.enter_context(counting())
            # What is loaded is never collected, so that no page of it is written to and copied.
            gc.collect()
            gc.freeze()

            def work(place: int, replaces: bool) -> int:  # noqa: FBT001  # the supervisor's
                siblings = Siblings(counts.folder, place, self._processes)
                return self._work(Inherited(siblings, listener, admin, recipes, replaces))

            supervisor = self._supervisor = Supervisor(
                self._processes, work, counts, deadline=self._config.drain.deadline
            )
            address = address_of(listener)
            print(json.dumps({"listening": True, "address": address}), flush=True)
            return supervisor.run()

    def _recipes(self) -> Recipes | None:
        """Return the recipes of the manifest, loaded; None where an operator has the list.

        Raises:
            ManifestError: The manifest cannot be used.
        """
        if self._operator is not None:
            return None
        snapshot = ManifestFile(self._config.manifest).load()
        recipes = Recipes(
            self._config.cache_dir, max_prompt_chars=self._config.limits.max_prompt_chars
        )
        recipes.apply(snapshot)
        until = time.monotonic() + _LOAD_SECONDS
        recipes.load_folders(lambda: time.monotonic() < until)
        return recipes

    def _admin(self, stack: ExitStack) -> socket.socket | None:
        if self._config.admin is None:
            return None
        admin = self._config.admin
        listener = stack.enter_context(listen(admin.host, admin.port, "--admin-port"))
        logger.info("admin listening", extra={"address": address_of(listener)})
        return listener

    def _work(self, inherited: Inherited) -> int:
        place, operator = inherited.siblings.index, self._operator
        if operator is not None:
            # One file for the router, and one process that writes it.
            operator = replace(operator, process=place, writes_file=place == 0)
        log.set_up(self._config.log_level, place)
        return self._serve(self._config, self._watch_supervisor, operator, inherited)

    def _watch_supervisor(self, _address: str, stop: Callable[[], None]) -> None:
        """End by *stop* when the supervisor is gone: nobody would replace or end this process."""
        assert self._supervisor is not None  # noqa: S101  # who works was started by one
        loop, life = asyncio.get_running_loop(), self._supervisor.life

        def gone() -> None:
            loop.remove_reader(life)
            logger.error("supervisor gone")
            stop()

        loop.add_reader(life, gone)


def _check(config: RouterConfig) -> None:
    """Raise what every process would raise for *config*."""
    Keys(config.keys).load()
    if config.admin is not None:
        admin_token(config.admin)
    if config.tls is not None:
        new_server(_nothing, Drain(config.drain), config.tls)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Be an application that is never asked."""
