"""The kopf side: "this backend may have changed".

kopf runs in a thread with a loop of its own: at its end it cancels every task of the loop it runs
in, its own or not. What it hears only marks backends as dirty in the main loop; the truth is in the
reflectors. No handler here diffs, returns a value, or needs a finalizer or an annotation.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import kopf

from sglr_operator.reflector import Key
from sglr_operator.schema import PLURAL
from sglr_proto.backend import GROUP, VERSION

logger = logging.getLogger(__name__)

_TOKEN = "BearerToken"  # noqa: S105  # the client's name for the setting
_EXIT = 10.0
"""Seconds kopf gets to end; its own exit timeout is 5."""


def settle(settings: kopf.OperatorSettings, *, namespaced: bool) -> None:
    """Set what kopf must not leave at its defaults; each line says why."""
    # Every log line of a handler would be an Event; ours are posted one by one, without repeats.
    settings.posting.loggers = False
    settings.posting.level = logging.WARNING
    settings.posting.reporting_component = "sglr-operator"
    settings.posting.event_name_prefix = "sglr-"
    # Streams end by themselves before a load balancer forgets them in silence.
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    # Bookmarks come every 60 s: silence beyond is a dead connection.
    settings.watching.inactivity_timeout = 70
    # The default of 0.1 s hammers an API server that is down.
    settings.watching.reconnect_backoff = 1.0
    # An unpaged list of thousands of objects peaks in memory on both ends.
    settings.watching.chunk_size = 500
    # Five minutes for one request would block a worker for as long.
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = (0.5, 1, 2, 4, 8, 15)
    settings.queueing.worker_limit = 100
    settings.queueing.exit_timeout = 5
    # Other operators on the cluster use kopf's own names; two writers of one annotation fight.
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.execution.max_workers = 4
    # A ClusterKopfPeering named "default" that another operator installed would pause this one.
    settings.peering.standalone = True
    # Scanning lists namespaces and CRDs of the whole cluster, which a namespaced install may not.
    settings.scanning.disabled = namespaced
    # Stays below the 30 s after which Kubernetes kills the pod.
    settings.process.ultimate_exiting_timeout = 25


def registry_for(
    mark: Callable[[Key], None], login: Callable[[], Awaitable[kopf.ConnectionInfo]]
) -> kopf.OperatorRegistry:
    """Return the handlers: each event of a backend calls *mark* in kopf's own thread."""
    registry = kopf.OperatorRegistry()

    async def on_login(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    seen: dict[Key, tuple[str, int]] = {}

    async def on_event(type: str | None, meta: Any, **_: Any) -> None:  # noqa: A002  # kopf's name
        key = (str(meta.get("namespace", "")), str(meta.get("name", "")))
        state = (str(meta.get("uid", "")), int(meta.get("generation", 0)))
        if type == "DELETED":
            seen.pop(key, None)
        elif seen.get(key) == state:
            # A status was written, most likely by us: the generation says what was asked for.
            return
        else:
            seen[key] = state
        mark(key)

    cast("Any", kopf.on.login)(registry=registry)(on_login)
    cast("Any", kopf.on.event)(GROUP, VERSION, PLURAL, registry=registry)(on_event)
    return registry


class KopfThread:
    """kopf at work in its own thread and loop, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        mark: Callable[[Key], None],
        login: Callable[[], Awaitable[kopf.ConnectionInfo]],
        namespaces: tuple[str, ...],
    ) -> None:
        """Prepare; *mark* is called in the loop that calls :meth:`start`."""
        self._mark = mark
        self._login = login
        self._namespaces = namespaces
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.ready = threading.Event()
        """Set once kopf watches."""

    @property
    def is_alive(self) -> bool:
        """Whether kopf still runs; it ends by itself only on an error it cannot survive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start kopf; its events come to the running loop."""
        loop = asyncio.get_running_loop()

        def mark(key: Key) -> None:
            loop.call_soon_threadsafe(self._mark, key)

        self._thread = threading.Thread(target=self._run, args=(mark,), name="kopf", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Tell kopf to end, and wait for nothing: with the API server away it takes its time."""
        self._stop.set()

    async def stop(self) -> None:
        """Tell kopf to end and wait for its thread."""
        self.end()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _EXIT)
            if self._thread.is_alive():
                logger.warning("kopf did not end in time", extra={"after": _EXIT})

    def _run(self, mark: Callable[[Key], None]) -> None:
        settings = kopf.OperatorSettings()
        settle(settings, namespaced=bool(self._namespaces))
        try:
            asyncio.run(
                kopf.operator(
                    registry=registry_for(mark, self._login),
                    settings=settings,
                    standalone=True,
                    clusterwide=not self._namespaces,
                    namespaces=self._namespaces,
                    stop_flag=self._stop,
                    ready_flag=self.ready,
                )
            )
        except Exception:
            # The top of a thread. The owner sees that it is dead and ends the process.
            logger.exception("kopf failed")


async def login_with(configuration: Any) -> kopf.ConnectionInfo:
    """Return the same credentials for kopf."""
    if configuration.refresh_api_key_hook is not None:
        refreshed = configuration.refresh_api_key_hook(configuration)
        # A command or an identity provider is asked in a coroutine, a token file is just read.
        if inspect.isawaitable(refreshed):
            await refreshed
    scheme, _, token = str(configuration.api_key.get(_TOKEN, "")).rpartition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        token=token or None,
        scheme=scheme or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
