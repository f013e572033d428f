"""Backends of HTTP workers: manifests over mock servers, and a router in front of them."""

from __future__ import annotations

from typing import Any

import yaml

from sglr_client.testing import MockServer

MODEL = "m"


def an_http_backend(
    *workers: MockServer, model: str = MODEL, name: str = "http", **sections: Any
) -> str:
    """Return a manifest with one backend over *workers*; *sections* are more of its spec's."""
    endpoints = [{"host": "127.0.0.1", "port": worker.port} for worker in workers]
    spec: dict[str, Any] = {
        "model": {"name": model, "aliases": ["alias"]},
        "workers": {
            "protocol": "HTTP",
            "static": {"endpoints": endpoints},
            # A connection each: a reset then never looks like one that was idle for too long.
            "http": {"idleTimeout": "0s"},
        },
        "routing": {"policy": "RoundRobin"},
        "healthCheck": {"interval": "50ms", "timeout": "2s"},
        "retry": {"initialBackoff": "1ms"},
    }
    for section, fields in sections.items():
        spec[section] = {**spec.get(section, {}), **fields}
    return yaml.safe_dump(
        {
            "apiVersion": "sglr.dev/v1alpha1",
            "kind": "SGLangBackend",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def a_chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    """Return the body of a chat."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
