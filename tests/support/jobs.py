"""What the chart's jobs see of an API server."""

from __future__ import annotations

import importlib
import json
import urllib.error
from email.message import Message
from io import BytesIO
from typing import Any

from support.charts import CHART


class FakeApi:
    """Keeps objects by path; the jobs' own client calls :meth:`_call` instead of HTTP."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.writes: list[str] = []
        self.conflicts = 0
        """How many writes somebody else still comes in between."""

    def get(self, path: str) -> dict[str, Any] | None:
        """As the jobs' client has it."""
        found: dict[str, Any] | None = _client().Api.get(self, path)
        return found

    def put(self, collection: str, wanted: dict[str, Any]) -> str:
        """As the jobs' client has it."""
        outcome: str = _client().Api.put(self, collection, wanted)
        return outcome

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.calls.append((method, path))
        if method == "GET":
            if path not in self.objects:
                raise _error(path, 404)
            read: dict[str, Any] = json.loads(json.dumps(self.objects[path]))
            return read
        assert body is not None
        if self.conflicts:
            self.conflicts -= 1
            raise _error(path, 409)
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            assert path not in self.objects
        self.writes.append(path)
        self.objects[path] = json.loads(json.dumps(body))
        return body


def _client() -> Any:
    """Return the jobs' client; the test has their folder on sys.path."""
    module = importlib.import_module("api")
    assert str(CHART) in str(module.__file__)
    return module


def _error(path: str, code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError(path, code, "", Message(), BytesIO(b"{}"))
