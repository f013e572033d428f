"""HTTP errors as gRPC statuses."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import (  # type: ignore[import-untyped]  # its stubs have no marker
    error_details_pb2,
)

from sglr_dataplane.errors import RouterError
from sglr_dataplane.inference.failures import Fault, read_fault, status_of


@pytest.mark.parametrize(
    ("http", "grpc_code"),
    [
        (400, grpc.StatusCode.INVALID_ARGUMENT),
        (401, grpc.StatusCode.UNAUTHENTICATED),
        (403, grpc.StatusCode.PERMISSION_DENIED),
        (404, grpc.StatusCode.NOT_FOUND),
        (413, grpc.StatusCode.INVALID_ARGUMENT),
        (429, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (500, grpc.StatusCode.INTERNAL),
        (501, grpc.StatusCode.UNIMPLEMENTED),
        (502, grpc.StatusCode.UNAVAILABLE),
        (503, grpc.StatusCode.UNAVAILABLE),
        (504, grpc.StatusCode.DEADLINE_EXCEEDED),
        (418, grpc.StatusCode.UNKNOWN),
    ],
)
def test_a_status_has_the_nearest_code(http: int, grpc_code: grpc.StatusCode) -> None:
    """Clients decide by the code whether to try again."""
    assert status_of(Fault("No."), http).code == grpc_code.value[0]


def test_every_error_of_the_router_has_a_code_of_its_own_kind() -> None:
    """None is UNKNOWN, whether it comes before a stream or in it."""

    def classes(of: type[RouterError]) -> list[type[RouterError]]:
        return [of, *(each for sub in of.__subclasses__() for each in classes(sub))]

    for each in classes(RouterError):
        fault = Fault("No.", each.type, None, each.code)
        assert status_of(fault, each.status).code != grpc.StatusCode.UNKNOWN.value[0]
        assert status_of(fault, None).code != grpc.StatusCode.UNKNOWN.value[0]


def test_details_say_what_a_machine_needs() -> None:
    """ErrorInfo with the code, BadRequest with the field, RetryInfo with the pause."""
    fault = Fault("Too hot.", "invalid_request_error", "temperature", "invalid_value")
    status = status_of(fault, 400, retry_after="3")
    info, bad, retry = (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.BadRequest(),
        error_details_pb2.RetryInfo(),
    )
    for packed, into in zip(status.details, (info, bad, retry), strict=True):
        assert packed.Unpack(into)

    assert status.message == "Too hot."
    assert (info.reason, info.domain) == ("invalid_value", "sglr.dev")
    assert dict(info.metadata) == {"type": "invalid_request_error", "param": "temperature"}
    assert [(v.field, v.description) for v in bad.field_violations] == [("temperature", "Too hot.")]
    assert retry.retry_delay.seconds == 3


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error":"flat"}', b"\xff"])
def test_an_answer_without_an_error_object_is_still_an_error(body: bytes) -> None:
    """A proxy's page does not end in an exception."""
    assert read_fault(body) == Fault()
