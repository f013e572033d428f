"""The gRPC port: inference.v1, health and reflection on one server."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sglr_dataplane.api.server import AddressInUseError, TlsFilesError
from sglr_dataplane.inference.health import HealthServicer
from sglr_dataplane.inference.servicer import InferenceServicer
from sglr_proto.inference import inference_pb2, inference_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

    from sglr_dataplane.config import GrpcConfig, ServerTls

logger = logging.getLogger(__name__)

_CLOSING_SECONDS: Final = 3.0
"""For calls that are left after the drain: they were told to end."""


@asynccontextmanager
async def serving_inference(
    config: GrpcConfig, app: ASGIApp, *, tls: ServerTls | None = None, max_body_bytes: int
) -> AsyncGenerator[str]:
    """Serve inference.v1 within the block, as another way in to *app*.

    Args:
        config: Where to listen.
        app: The router's HTTP application, the front door included.
        tls: What the HTTP port shows too; None serves plain text.
        max_body_bytes: Longest request message.

    Yields:
        ``host:port`` that is listened on.

    Raises:
        AddressInUseError: It cannot be listened on.
        TlsFilesError: The certificate or its key cannot be read.
    """
    server = grpc.aio.server(
        options=(
            # Two routers would share a port in silence; the processes of one mean to.
            ("grpc.so_reuseport", int(config.shared)),
            ("grpc.max_receive_message_length", max_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
        )
    )
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(InferenceServicer(app), server)
    health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(app), server)
    names = (
        inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name,
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
        reflection.SERVICE_NAME,
    )
    reflection.enable_server_reflection(names, server)
    address = _listen(server, config, tls)
    await server.start()
    logger.info("listening for grpc", extra={"address": address})
    try:
        yield address
    finally:
        await server.stop(_CLOSING_SECONDS)


def _listen(server: grpc.aio.Server, config: GrpcConfig, tls: ServerTls | None) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    wanted = f"{host}:{config.port}"
    try:
        if tls is None:
            port = server.add_insecure_port(wanted)
        else:
            port = server.add_secure_port(wanted, _Certificate(tls).credentials())
    except RuntimeError as error:
        raise AddressInUseError(
            f"Cannot listen on {wanted}. Choose another --grpc-port; 0 takes any free one."
        ) from error
    return f"{host}:{port}"


class _Certificate:
    """What the server shows; read again at a handshake after its files changed."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._stamp: tuple[int, ...] = ()

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials that follow the files.

        Raises:
            TlsFilesError: They cannot be read at the start.
        """
        try:
            self._stamp = self._stamps()
            first = self._read()
        except OSError as error:
            raise TlsFilesError(f"The TLS files cannot be used: {error}.") from error
        return grpc.dynamic_ssl_server_credentials(
            first,
            self._changed,  # type: ignore[arg-type]  # the stubs leave out that None keeps the old
            require_client_authentication=self._tls.client_ca is not None,
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the new certificate; None keeps the old one. Called by gRPC at each handshake."""
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return None
            found = self._read()
        except OSError as error:
            # The pair may be half-way through its change: the next handshake sees both.
            logger.warning("certificate not usable yet", extra={"problem": str(error)})
            return None
        self._stamp = stamp
        return found

    def _read(self) -> grpc.ServerCertificateConfiguration:
        ca = self._tls.client_ca
        return grpc.ssl_server_certificate_configuration(
            [(Path(self._tls.key).read_bytes(), Path(self._tls.certificate).read_bytes())],
            root_certificates=Path(ca).read_bytes() if ca is not None else None,
        )

    def _stamps(self) -> tuple[int, ...]:
        paths = (self._tls.certificate, self._tls.key, self._tls.client_ca)
        return tuple(Path(path).stat().st_mtime_ns for path in paths if path is not None)
