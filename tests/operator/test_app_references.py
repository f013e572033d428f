"""Secrets and ConfigMaps from the API server to files of a router, and back out again."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sglr_dataplane.fleet.credentials import credentials_of
from sglr_dataplane.fleet.intake_config import IntakeConfig
from sglr_dataplane.fleet.intake_file import read
from sglr_operator.config import OperatorConfig
from sglr_proto.backend import SGLangBackend
from support.kube_api import FakeApi, running_api
from support.kube_objects import NAMESPACE
from support.kube_wait import until
from support.operator_objects import is_ready, put_backend, put_service, put_slice, reason
from support.operators import operating, private
from support.push import Router, routing

LABELS = {"sglr.dev/for-routers": "true"}
WORKER_KEY = {"apiKeySecretRef": {"name": "worker", "key": "key"}}


def put_secret(api: FakeApi, value: str, *, labels: dict[str, str] | None = None) -> None:
    """Create or change the Secret with the workers' key."""
    meta = {
        "name": "worker",
        "namespace": NAMESPACE,
        "labels": LABELS if labels is None else labels,
    }
    data = {"key": base64.b64encode(value.encode()).decode()}
    api.put("secrets", {"metadata": meta, "data": data})


def populate(api: FakeApi) -> None:
    """Serve Secrets, and one Service with a ready endpoint."""
    api.served["/api/v1"].append("secrets")
    put_service(api)
    put_slice(api, "10.0.0.1")


def reading(config: OperatorConfig) -> OperatorConfig:
    """Read labelled objects."""
    return replace(config, references=True)


def trusted(folder: Path) -> Callable[[IntakeConfig], IntakeConfig]:
    """Return the change that makes a router prove itself, and keep a file."""

    def change(config: IntakeConfig) -> IntakeConfig:
        return replace(
            config,
            ca=folder / "ca.crt",
            certificate=folder / "router.crt",
            key=folder / "router.key",
            file=folder / "lkg" / "list",
        )

    return change


def backend_of(router: Router) -> SGLangBackend | None:
    """Return the backend that a router has in force."""
    found = router.applied[-1].backends if router.applied else ()
    return found[0].backend if found else None


def worker_key(router: Router) -> str | None:
    """Return the key that a router would show workers."""
    backend = backend_of(router)
    return credentials_of(backend.spec).key if backend is not None else None


async def test_a_template_appears_is_used_and_changes(tmp_path: Path) -> None:
    """ConfigMapNotFound while it is missing; then routers have its text, and each newer one."""
    async with running_api() as api, operating(api, tmp_path, reading) as running:
        populate(api)
        ref = {"name": "templates", "key": "chat"}
        put_backend(api, tokenizer={"path": "/m", "chatTemplate": {"configMapKeyRef": ref}})
        async with routing(await running.serves()) as router:
            await until(lambda: reason(api, "ResolvedRefs") == "ConfigMapNotFound", what="told")
            assert router.table() == {}
            for text in ("{{ one }}", "{{ two }}"):
                meta = {"name": "templates", "namespace": NAMESPACE, "labels": LABELS}
                api.put("configmaps", {"metadata": meta, "data": {"chat": text}})

                def is_used(text: str = text) -> bool:
                    backend = backend_of(router)
                    template = backend.spec.tokenizer.chat_template if backend else None
                    return template is not None and template.inline == text

                await until(is_used, what="used")
            await until(lambda: is_ready(api), what="Ready")


async def test_a_workers_key_appears_rotates_and_survives_its_secret(tmp_path: Path) -> None:
    """It waits for the Secret, follows it, and keeps the last good key when it goes."""
    (tmp_path / "lkg").mkdir()
    async with running_api() as api, operating(api, tmp_path, private(tmp_path)) as running:
        populate(api)
        put_backend(api, workerAuth=WORKER_KEY)
        async with routing(await running.serves(), change=trusted(tmp_path)) as router:
            await until(lambda: reason(api, "ResolvedRefs") == "SecretNotFound", what="told")
            events = api.objects("events").values()
            await until(
                lambda: any(body["reason"] == "SecretNotFound" for body in events), what="an Event"
            )
            put_secret(api, "unlabelled", labels={})
            put_secret(api, "first")
            await until(lambda: worker_key(router) == "first", what="used")
            await until(lambda: is_ready(api), what="Ready")
            put_secret(api, "second")
            await until(lambda: worker_key(router) == "second", what="rotated")
            api.delete("secrets", "worker", NAMESPACE)
            await until(lambda: reason(api, "ResolvedRefs") == "SecretNotFound", what="told again")
            put_slice(api, "10.0.0.2")

            await until(lambda: router.table() == {"chat": ["10.0.0.2"]}, what="endpoints go on")
            assert worker_key(router) == "second"
            # The file starts the next life with it; nobody else can read file or folder.
            kept = tmp_path / "lkg" / "list"
            await until(lambda: kept.exists() and b"10.0.0.2" in kept.read_bytes(), what="kept")
            snapshot = read(kept)
            assert snapshot is not None
            assert snapshot.backends[0].resolved is not None
            assert snapshot.backends[0].resolved.worker_key == "second"
            assert kept.stat().st_mode & 0o777 == 0o600
            # The copy that any pod may mount has none of it.
            await until(lambda: bool(api.objects("configmaps")), what="a copy")
            [copy] = api.objects("configmaps").values()
            (tmp_path / "copy").write_bytes(base64.b64decode(copy["binaryData"]["snapshot"]))
            mounted = read(tmp_path / "copy")
            assert mounted is not None
            assert [each.resolved for each in mounted.backends] == [None]


async def test_a_secret_is_told_to_nobody_on_an_open_port(tmp_path: Path) -> None:
    """Without TLS the backend waits and says why; the others are served."""
    async with running_api() as api, operating(api, tmp_path, reading) as running:
        populate(api)
        put_secret(api, "hush")
        put_backend(api, workerAuth=WORKER_KEY)
        put_backend(api, "other")
        async with routing(await running.serves()) as router:
            await until(lambda: reason(api, "ResolvedRefs") == "RefNotPermitted", what="told")
            await until(lambda: router.table() == {"other": ["10.0.0.1"]}, what="others served")

            assert b"hush" not in b"".join(map(repr_of, router.applied))


def repr_of(snapshot: object) -> bytes:
    """Return everything in *snapshot* as bytes."""
    import msgspec

    return msgspec.json.encode(snapshot)
