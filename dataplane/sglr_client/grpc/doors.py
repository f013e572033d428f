"""Clients that speak gRPC, in one call."""

from __future__ import annotations

from typing import Unpack

import grpc

from sglr_client.async_client import AsyncClient
from sglr_client.client import Client
from sglr_client.grpc.transport import AsyncGrpcTransport, GrpcTransport
from sglr_client.settings import Settings


def grpc_client(
    target: str,
    credentials: grpc.ChannelCredentials | None = None,
    **settings: Unpack[Settings],
) -> Client:
    """Return a client of the inference.v1 server at *target*; close it.

    Args:
        target: ``host:port``.
        credentials: Of TLS, such as ``grpc.ssl_channel_credentials()``; None: plain text.
        settings: See `Settings`; *tls* and *limits.connections* have no part in it.
    """
    return Client(_url(target, credentials), http=GrpcTransport(target, credentials), **settings)


def async_grpc_client(
    target: str,
    credentials: grpc.ChannelCredentials | None = None,
    **settings: Unpack[Settings],
) -> AsyncClient:
    """Return an asyncio client of the inference.v1 server at *target*; see `grpc_client`."""
    transport = AsyncGrpcTransport(target, credentials)
    return AsyncClient(_url(target, credentials), http=transport, **settings)


def _url(target: str, credentials: grpc.ChannelCredentials | None) -> str:
    return f"{'http' if credentials is None else 'https'}://{target}"
