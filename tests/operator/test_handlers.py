"""kopf's side: its settings, its credentials, and what it tells the main loop."""

from __future__ import annotations

from typing import Any

import kopf
import pytest
from kubernetes.aio.client import Configuration

from sglr_operator.handlers import login_with, settle


@pytest.mark.parametrize("namespaced", [True, False])
def test_kopf_is_told_what_its_defaults_get_wrong(namespaced: bool) -> None:  # a column
    """No pausing by foreign peers, bounded streams, no Events of log lines, no CRD scan."""
    settings = kopf.OperatorSettings()
    settle(settings, namespaced=namespaced)

    assert settings.peering.standalone is True
    assert settings.scanning.disabled is namespaced
    assert settings.posting.loggers is False
    assert settings.watching.server_timeout == 270
    assert settings.watching.client_timeout == 300
    assert settings.watching.inactivity_timeout == 70
    assert settings.watching.reconnect_backoff == 1.0
    assert settings.networking.request_timeout == 30
    assert settings.persistence.finalizer == "sglr.dev/finalizer"
    assert settings.process.ultimate_exiting_timeout == 25


async def test_kopf_uses_our_credentials_and_reads_renewed_ones() -> None:
    """Token, scheme and certificates are the same, and a renewing hook is awaited."""
    configuration = Configuration(host="https://10.0.0.1:6443")
    configuration.api_key["BearerToken"] = "Bearer old"
    configuration.ssl_ca_cert = "/ca.crt"

    async def refresh(found: Any) -> None:
        found.api_key["BearerToken"] = "Bearer new"

    configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # untyped in the client

    info = await login_with(configuration)
    assert (info.server, info.scheme, info.token) == ("https://10.0.0.1:6443", "Bearer", "new")
    assert info.ca_path == "/ca.crt"


async def test_a_configuration_without_a_token_sends_none() -> None:
    """Client certificates alone are enough."""
    configuration = Configuration(host="https://10.0.0.1:6443")
    configuration.cert_file, configuration.key_file = "/c.crt", "/c.key"

    info = await login_with(configuration)
    assert (info.token, info.scheme) == (None, None)
    assert (info.certificate_path, info.private_key_path) == ("/c.crt", "/c.key")
