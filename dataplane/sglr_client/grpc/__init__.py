"""The same clients over gRPC: `inference.v1` behind ``Client`` and ``AsyncClient``.

Retries, breaker, health, deadlines, batches and metrics are those of HTTP: only what carries the
calls differs. Needs ``grpcio`` and ``googleapis-common-protos``.
"""

from sglr_client.grpc.doors import async_grpc_client, grpc_client
from sglr_client.grpc.transport import AsyncGrpcTransport, GrpcTransport

__all__ = ["AsyncGrpcTransport", "GrpcTransport", "async_grpc_client", "grpc_client"]
