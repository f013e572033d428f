"""The service's two calls, each a request to the router's own application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
import msgspec

from sglr_client.errors import LineTooLongError
from sglr_client.sse import EventParser
from sglr_dataplane.api.bridge import AnswerLostError, AsgiCall, Head, json_headers, read_all
from sglr_dataplane.api.faults import UNEXPECTED
from sglr_dataplane.errors import InvalidRequestError, RouterError, TruncatedStreamError
from sglr_dataplane.inference.failures import Fault, read_fault, status_of
from sglr_dataplane.inference.shapes import Chunks, models_of, request_body, response_of
from sglr_proto.inference import inference_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from google.rpc import status_pb2  # type: ignore[import-untyped]  # its stubs have no marker
    from starlette.types import ASGIApp

    from sglr_proto.inference import inference_pb2 as pb

    Context = grpc.aio.ServicerContext[Any, Any]

PATH: Final = "/v1/chat/completions"
_MODELS: Final = "/v1/models"
_OK: Final = 200
_DETAILS: Final = "grpc-status-details-bin"
"""Where every gRPC library looks for a google.rpc.Status."""
_STATUS_CODES: Final[dict[int, grpc.StatusCode]] = {each.value[0]: each for each in grpc.StatusCode}
_DONE: Final = b"[DONE]"
_NOT_PASSED: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "te",
     "transfer-encoding", "user-agent"}
)  # fmt: skip
"""Metadata that speaks of the connection, or of a body that is not the one sent on."""
_TOLD: Final = ("x-request-id", "x-ratelimit-", "x-sglr-warning")
"""Beginnings of the answer's headers that clients get as initial metadata, or with an error."""


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """Answers inference.v1 by asking *app*, the router's HTTP application."""

    def __init__(self, app: ASGIApp) -> None:
        """Ask *app*."""
        self._app = app

    async def Chat(self, request: pb.ChatRequest, context: Context) -> pb.ChatResponse:  # noqa: N802  # the service's name
        """Return the whole answer."""
        body = await _answer(await self._call(request, context, stream=False), context)
        try:
            return response_of(body)
        except msgspec.DecodeError:
            await _refuse(context, _truncated())

    async def ChatStream(  # noqa: N802  # the service's name
        self, request: pb.ChatRequest, context: Context
    ) -> AsyncIterator[pb.ChatResponseChunk]:
        """Yield the answer as it is generated."""
        async with await self._call(request, context, stream=True) as call:
            head = await _begun(call, context)
            if head.status != _OK:
                await _fail(context, head, await _body(call, context))
            chunks = Chunks()
            async for data in _events(call, context):
                try:
                    told = chunks.read(data)
                except msgspec.DecodeError:
                    await _refuse(context, _truncated())
                if isinstance(told, Fault):
                    await _abort(context, status_of(told, None))
                for chunk in told:
                    yield chunk
            for chunk in chunks.end():
                yield chunk

    async def ListModels(  # noqa: N802  # the service's name
        self,
        request: pb.ListModelsRequest,  # noqa: ARG002  # it has no fields
        context: Context,
    ) -> pb.ListModelsResponse:
        """Return what the caller may use."""
        headers = json_headers(_passed_on(context))
        call = AsgiCall(self._app, method="GET", path=_MODELS, headers=headers, protocol="grpc")
        return models_of(await _answer(call, context))

    async def _call(self, request: pb.ChatRequest, context: Context, *, stream: bool) -> AsgiCall:
        """Return *request* as a call of the application; ends the rpc where it is none."""
        try:
            body = request_body(request, stream=stream)
        except InvalidRequestError as error:
            await _refuse(context, error)
        headers = json_headers(_passed_on(context))
        return AsgiCall(
            self._app, method="POST", path=PATH, headers=headers, body=body, protocol="grpc"
        )


async def _answer(call: AsgiCall, context: Context) -> bytes:
    """Return the whole answer of *call*; ends the rpc with any other status than 200."""
    async with call:
        head = await _begun(call, context)
        body = await _body(call, context)
        if head.status != _OK:
            await _fail(context, head, body)
        return body


async def _begun(call: AsgiCall, context: Context) -> Head:
    """Return how the answer of *call* begins; the client learns the headers of a good one at once."""
    try:
        head = await call.head()
    except AnswerLostError:
        await _unexpected(context)
    if head.status == _OK:
        await context.send_initial_metadata(_told(head))
    return head


def _told(head: Head) -> list[tuple[str, str]]:
    named = ((k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in head.headers)
    return [each for each in named if each[0].startswith(_TOLD)]


async def _body(call: AsgiCall, context: Context) -> bytes:
    """Return the whole answer of *call*."""
    try:
        return await read_all(call.parts())
    except AnswerLostError:
        await _unexpected(context)


async def _events(call: AsgiCall, context: Context) -> AsyncIterator[bytes]:
    """Yield the data of each event of *call* up to the stream's own end; one without is cut off."""
    parser = EventParser()
    try:
        async for part in call.parts():
            for event in parser.feed(part):
                if event.data == _DONE:
                    return
                yield event.data
    except LineTooLongError:
        await _refuse(context, _truncated())
    except AnswerLostError:
        await _unexpected(context)
    await _refuse(context, _truncated())


def _truncated() -> TruncatedStreamError:
    return TruncatedStreamError("The answer ended before it was complete.")


async def _unexpected(context: Context) -> NoReturn:
    await _refuse(context, RouterError(UNEXPECTED))


async def _refuse(context: Context, error: RouterError) -> NoReturn:
    """End the rpc with *error*."""
    fault = Fault(error.message, error.type, error.param, error.code)
    await _abort(context, status_of(fault, error.status))


async def _fail(context: Context, head: Head, body: bytes) -> NoReturn:
    """End the rpc with the error that an answer of *head* and *body* is."""
    retry_after = head.header(b"retry-after")
    status = status_of(read_fault(body), head.status, retry_after=retry_after)
    await _abort(context, status, _told(head))


async def _abort(
    context: Context, status: status_pb2.Status, told: Sequence[tuple[str, str]] = ()
) -> NoReturn:
    trailers = (*told, (_DETAILS, status.SerializeToString()))
    await context.abort(_STATUS_CODES[status.code], status.message, trailers)


def _passed_on(context: Context) -> Iterator[tuple[str, str]]:
    """Yield the call's metadata that is a header over HTTP."""
    for name, value in context.invocation_metadata() or ():
        passed = name not in _NOT_PASSED and not name.startswith(("grpc-", ":"))
        if passed and isinstance(value, str):
            yield name, value
