"""How a router reaches the operator: address, certificates, token and the limits of the channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from sglr_dataplane.fleet.intake_config import IntakeConfig

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes; both ends say so, because gRPC's 4 MiB refuse a backend of 30,000 endpoints."""


@asynccontextmanager
async def operator_channel(config: IntakeConfig) -> AsyncGenerator[grpc.aio.Channel]:
    """Open a channel to the operator for as long as the block lasts."""
    options = [
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        ("grpc.max_send_message_length", MAX_MESSAGE),
        # Only the leader listens: the next address is tried, never two at once.
        ("grpc.lb_policy_name", "pick_first"),
    ]
    if config.ca is None:
        channel = grpc.aio.insecure_channel(config.operator, options=options)
    else:
        credentials = await asyncio.to_thread(_credentials, config)
        channel = grpc.aio.secure_channel(config.operator, credentials, options=options)
    try:
        yield channel
    finally:
        await channel.close()


def _credentials(config: IntakeConfig) -> grpc.ChannelCredentials:
    """Return the TLS material, read anew: certificates are renewed under a running router."""
    certificate, key = config.certificate, config.key
    return grpc.ssl_channel_credentials(
        root_certificates=config.ca.read_bytes() if config.ca else None,
        private_key=key.read_bytes() if key else None,
        certificate_chain=certificate.read_bytes() if certificate else None,
    )


def authorization(config: IntakeConfig) -> tuple[tuple[str, str], ...]:
    """Return the token's header; a token is never sent in the clear."""
    if config.token is None or config.ca is None:
        return ()
    token = config.token.read_text("ascii").strip()
    return (("authorization", f"Bearer {token}"),)
