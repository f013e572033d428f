"""THE WALK OF ONE CALL: admit, send, read, decide about the next attempt; pure.

Generators of steps, see `sglr_client.steps`: the blocking and the asyncio client both run these.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final

import msgspec

from sglr_client.breaker import Outcome, outcome_of
from sglr_client.errors import (
    ClientError,
    ConnectionLostError,
    InvalidAnswerError,
    refused_class,
    refused_in_band,
)
from sglr_client.json_values import is_object
from sglr_client.reading import ChunkReader, unexpected_answer
from sglr_client.results import Result
from sglr_client.retry import retry_after
from sglr_client.rules import Account
from sglr_client.steps import Emit, Flow, Head, Read, Send, Sleep, Step

_ERROR_BODY: Final = 64 * 1024
"""Bytes of an error's body that are kept; no server explains itself at more length."""
_DRAIN: Final = 0.25
"""Seconds to wait for the end of a body whose content is complete, to keep the connection."""


def answer(account: Account, decode: Callable[[bytes], Any]) -> Flow:
    """Emit the call's whole answer, decoded."""
    return _call(account, lambda: _answer_once(account, decode))


def stream(account: Account, new_reader: Callable[[], ChunkReader]) -> Flow:
    """Emit the chunks of the call's stream."""
    return _call(account, lambda: _stream_once(account, new_reader()))


def _call(account: Account, attempt: Callable[[], Flow]) -> Flow:
    account.begin()
    sink, call = account.rules.sink, account.call
    sink.begin(call.operation, call.model)
    outcome = "abandoned"
    try:
        account.check_health()
        yield from _attempts(account, attempt)
        outcome = "ok"
    except ClientError as error:
        outcome = error.kind
        raise
    finally:
        sink.end(account.report(outcome))


def _attempts(account: Account, attempt: Callable[[], Flow]) -> Flow:
    while True:
        try:
            yield from _judged(account, attempt())
        except ClientError as error:
            delay = account.delay(error)
            if delay is None:
                raise
        else:
            return
        yield Sleep(delay)


def _judged(account: Account, attempt: Flow) -> Flow:
    """Walk one *attempt* and tell the breaker how it ended."""
    permit = account.admitted()
    outcome = Outcome.ABANDONED
    try:
        yield from attempt
        outcome = Outcome.SUCCEEDED
    except ClientError as error:
        outcome = outcome_of(error)
        raise
    finally:
        if permit is not None:
            permit.end(outcome, account.rules.clock())


def whole(account: Account, decode: Callable[[bytes], Any]) -> Generator[Step, Any, Any]:
    """Return the call's whole answer, decoded, after one attempt."""
    head: Head = yield Send(account.call, account.timeouts, account.left())
    yield from _accepted(account, head)
    body = bytearray()
    yield from _body(account, body, account.rules.limits.answer)
    return _decoded(account, head, bytes(body), decode)


def drain() -> Flow:
    """Read to the body's end, so that the connection can be used again; not for long."""
    try:
        while (yield Read(_DRAIN)):
            pass
    except ClientError:
        return


def _answer_once(account: Account, decode: Callable[[bytes], Any]) -> Flow:
    yield Emit((yield from whole(account, decode)))


def _stream_once(account: Account, reader: ChunkReader) -> Flow:
    account.reader = reader
    head: Head = yield Send(account.call, account.timeouts, account.left())
    yield from _accepted(account, head)
    if head.headers.get("content-type", "").startswith("application/json"):
        yield from _not_a_stream(account, head)
    while not reader.done:
        try:
            part: bytes = yield Read(account.left())
        except ConnectionLostError:
            if not reader.finished:
                raise
            part = b""
        before = reader.chunks
        for item in reader.feed(part) if part else reader.end():
            if reader.chunks > before:
                before = reader.chunks
                account.note_content()
            yield Emit(item)
        if not part:
            return
    yield from drain()


def _accepted(account: Account, head: Head) -> Flow:
    """Raise the answer's error unless its status is 2xx."""
    if 200 <= head.status < 300:  # noqa: PLR2004  # 2xx
        return
    body = bytearray()
    with suppress(ClientError):  # the status is the news; its explanation is a courtesy
        yield from _body(account, body, _ERROR_BODY, cut=True)
    raise refused_class(head.status)(
        head.status,
        bytes(body),
        request_id=head.headers.get("x-request-id"),
        retry_after=retry_after(head.headers, account.rules.wall()),
        may_retry=head.headers.get("x-should-retry") != "false",
    )


def _not_a_stream(account: Account, head: Head) -> Flow:
    body = bytearray()
    yield from _body(account, body, _ERROR_BODY, cut=True)
    if _error_in(_json(bytes(body))):
        raise refused_in_band(bytes(body), request_id=head.headers.get("x-request-id"))
    raise unexpected_answer(bytes(body))


def _body(account: Account, body: bytearray, limit: int, *, cut: bool = False) -> Flow:
    """Read the whole answer into *body*; above *limit* bytes stop there or raise."""
    while len(body) <= limit:
        part: bytes = yield Read(account.left())
        if not part:
            return
        body += part
    if not cut:
        raise InvalidAnswerError(f"The answer is longer than the limit of {limit} bytes.")


def _decoded(account: Account, head: Head, body: bytes, decode: Callable[[bytes], Any]) -> Any:
    try:
        result = decode(body)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswerError(f"The answer is not what the API promises: {error}.") from error
    if _error_in(result.extra if isinstance(result, Result) else result):
        # Some gateways answer 200 with an error inside.
        raise refused_in_band(body, request_id=head.headers.get("x-request-id"))
    account.usage = getattr(result, "usage", None)
    return result


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except ValueError:
        return None


def _error_in(document: Any) -> bool:
    return is_object(document) and bool(document.get("error"))
