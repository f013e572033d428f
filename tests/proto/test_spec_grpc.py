"""Settings of the connections to gRPC workers: bounds, and where they may stand."""

from __future__ import annotations

import pytest

from sglr_proto.backend import ManifestError, decode_backend
from sglr_proto.spec_grpc import GrpcWorkers
from support.manifests import a_document, changed


def test_the_defaults_are_those_of_a_backend_that_says_nothing() -> None:
    """20 s of keepalive, 32 KiB a stream, 256 MiB a message."""
    section = GrpcWorkers()

    assert (section.keepalive, section.keepalive_timeout) == ("20s", "20s")
    assert section.stream_buffer_bytes == 32 * 1024
    assert section.max_message_bytes == 256 * 1024 * 1024


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("keepalive", "500ms", "keepalive is '500ms'; expected 1 to 3600 seconds"),
        ("keepaliveTimeout", "11m", "keepaliveTimeout is '11m'; expected 1 to 600 seconds"),
        ("closeTimeout", "0s", "closeTimeout is '0s'; expected 0.1 to 60 seconds"),
        ("idleTimeout", "2h", "idleTimeout is '2h'; expected 1 to 3600 seconds"),
        ("maxConnections", 0, "maxConnections is 0"),
        ("streamBufferBytes", 1, "streamBufferBytes is 1"),
    ],
)
def test_values_outside_their_bounds_are_refused(field: str, value: object, problem: str) -> None:
    """With the field and what was expected."""
    with pytest.raises(ManifestError) as refusal:
        decode_backend(changed("spec.workers.grpc", {field: value}), lenient=False)

    assert problem in str(refusal.value)


def test_they_are_refused_beside_workers_of_http() -> None:
    """Which have none of it."""
    document = changed(
        "spec.workers.protocol", "HTTP", changed("spec.workers.grpc", {}, a_document())
    )

    with pytest.raises(ManifestError, match="grpc is set with protocol HTTP"):
        decode_backend(document, lenient=False)
