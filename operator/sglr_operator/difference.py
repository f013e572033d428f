"""How backends in a file differ from those in the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from kubernetes.aio.client import ApiClient

from sglr_operator.cluster import credentials
from sglr_operator.errors import NotFoundError
from sglr_operator.kube import Kube
from sglr_operator.resources import BACKENDS
from sglr_operator.verdict import with_defaults
from sglr_proto.backend import KIND, ManifestError
from sglr_proto.documents import read_documents


class _Live(msgspec.Struct, frozen=True):
    spec: dict[str, Any] = {}


async def differences(text: str, kubeconfig: str | None) -> list[str]:
    """Return one line for each field that applying *text* would change.

    Raises:
        ManifestError: The text is no YAML, or a backend in it has no name.
        OperatorError: The API server cannot be found, or did not answer.
    """
    documents = [
        cast("dict[str, Any]", document)
        for _, document in read_documents(text)
        if isinstance(document, dict) and cast("dict[str, Any]", document).get("kind") == KIND
    ]
    lines: list[str] = []
    async with ApiClient(await credentials(kubeconfig)) as client:
        kube = Kube(client)
        for document in documents:
            meta: Mapping[str, Any] = document.get("metadata") or {}
            name, namespace = meta.get("name"), meta.get("namespace") or "default"
            if not name:
                raise ManifestError("metadata.name is missing.", path="metadata.name")
            live = await _live(kube, str(namespace), str(name))
            wanted = cast("dict[str, Any]", with_defaults(document).get("spec") or {})
            lines += [f"{namespace}/{name}: {line}" for line in compare(live, wanted)]
    return lines


def compare(live: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield how *wanted* differs from *live*, the spec in the cluster; None when there is none."""
    if live is None:
        yield "new"
        return
    before, after = dict(_fields(live, "spec")), dict(_fields(wanted, "spec"))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield f"{path}: {_shown(before, path)} -> {_shown(after, path)}"


async def _live(kube: Kube, namespace: str, name: str) -> Mapping[str, Any] | None:
    try:
        body = await kube.get(BACKENDS.path(namespace, name))
    except NotFoundError:
        return None
    return msgspec.json.decode(body, type=_Live).spec


def _fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every scalar in *value* with its path."""
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            yield from _fields(inner, f"{path}.{name}")
    elif isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]  # JSON's values
        for index, inner in enumerate(items):
            yield from _fields(inner, f"{path}[{index}]")
    else:
        yield path, value


def _shown(fields: Mapping[str, Any], path: str) -> str:
    return repr(fields[path]) if path in fields else "absent"
