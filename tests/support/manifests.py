"""SGLangBackend documents for tests: a right one, and the same with one thing changed."""

from __future__ import annotations

import copy
import re
from typing import Any

_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")

GONE = object()
"""As a value for :func:`changed`: take the field away."""


EXAMPLE = """\
apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {name: qwen}
spec:
  model: {name: qwen}
  tokenizer: {path: DIR}
  workers: {static: {endpoints: [{host: 127.0.0.1, port: 30000}]}}
  routing: {policy: RoundRobin}
"""
"""The manifest of the documentation, as text."""


def a_document(name: str = "qwen", model: str = "qwen") -> dict[str, Any]:
    """Return a decoded document that has every field."""
    return {
        "apiVersion": "sglr.dev/v1alpha1",
        "kind": "SGLangBackend",
        "metadata": {"name": name, "namespace": "inference"},
        "spec": {
            "model": {
                "name": model,
                "aliases": [f"{model}-latest", f"{model}-small"],
                "servedName": f"org/{model}",
                "adapters": [{"name": f"{model}-sql", "servedName": "sql"}],
                "adapterDiscovery": "Worker",
            },
            "traffic": {"weight": 9, "priority": 1, "header": {"name": "x-canary", "value": "on"}},
            "tokenizer": {"path": "tokenizers/qwen"},
            "parsers": {
                "toolCall": "auto",
                "reasoning": "auto",
                "unknownTools": "Forward",
                "reasoningWhitespace": "Keep",
            },
            "workers": {
                "static": {
                    "endpoints": [
                        {
                            "host": "127.0.0.1",
                            "port": 30000,
                            "zone": "a",
                            "weight": 2,
                            "priority": 1,
                        },
                        {
                            "host": "gpu-1.lab",
                            "port": 30001,
                            "zone": "",
                            "weight": 1,
                            "priority": 0,
                        },
                    ]
                }
            },
            "routing": {"policy": "RoundRobin"},
            "admission": {"maxQueueDepth": 50},
            "rateLimit": {"requestsPerMinute": 600, "per": "APIKey"},
            "timeouts": {
                "connect": "2s",
                "firstToken": "120s",
                "streamIdle": "60s",
                "request": "1800s",
            },
            "retry": {
                "attempts": 3,
                "budgetPercent": 20,
                "budgetMinimum": 10,
                "budgetWindow": "10s",
                "initialBackoff": "50ms",
                "maxBackoff": "2s",
                "maxRetryAfter": "10s",
                "hedge": {"after": "500ms"},
            },
            "healthCheck": {
                "interval": "5s",
                "timeout": "2s",
                "healthyThreshold": 1,
                "unhealthyThreshold": 3,
                "generateInterval": "60s",
            },
            "drain": {"timeout": "600s", "onTimeout": "Abort"},
            "tls": {"mode": "TLS", "caFile": "/tls/ca.crt"},
            "workerAuth": {"apiKeyFile": "/keys/worker"},
            "auth": {"keySecretRefs": []},
            "outlierDetection": {
                "consecutiveFailures": 5,
                "failurePercent": 50,
                "minimumRequests": 20,
                "window": "60s",
                "baseEjection": "10s",
                "maxEjection": "300s",
                "maxEjectionPercent": 50,
                "lastResort": "FailOpen",
            },
        },
    }


def changed(path: str, value: object, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return *document* (or :func:`a_document`) with *value* at *path*, such as ``a.b[0].c``."""
    result = copy.deepcopy(document) if document is not None else a_document()
    steps = [int(index) if index else name for index, name in _STEP.findall(path)]
    inner: Any = result
    for step in steps[:-1]:
        inner = inner[step]
    if value is GONE:
        del inner[steps[-1]]
    else:
        inner[steps[-1]] = value
    return result
