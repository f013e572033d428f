"""The asyncio shell of one HTTP/2 connection: socket, keepalive, and whom to tell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, cast

from sglr_dataplane.engine.h2.codes import ErrorCode
from sglr_dataplane.engine.h2.errors import H2Error
from sglr_dataplane.engine.h2.events import GoingAway, PingAnswered, SettingsChanged
from sglr_dataplane.engine.h2.machine import Machine
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.engine.h2.stream import Lane, Stream
from sglr_dataplane.engine.sockets import set_socket_options

logger = logging.getLogger(__name__)

_TOO_MANY_PINGS: Final = "too_many_pings"
"""What a gRPC server says when it closes a connection because of its pings."""
_PING: Final = b"sglrping"


@dataclass(frozen=True, slots=True)
class Keepalive:
    """How a dead peer is noticed, in seconds."""

    interval: float = 300.0
    """Silence after which a PING is sent, while calls run. gRPC's servers close a connection that
    pings more often than every 300 s unless told otherwise."""
    timeout: float = 20.0
    """For the answer to a PING, and for the kernel's: unacknowledged data ends the connection after
    it (TCP_USER_TIMEOUT), and so do unanswered TCP keepalive probes, which no gRPC server counts,
    after as long again."""


class Link(asyncio.Protocol):
    """One connection; its owner opens streams on it and hears of their news."""

    def __init__(
        self, limits: Limits, keepalive: Keepalive, on_change: Callable[[Link], None]
    ) -> None:
        """Wait for a transport.

        Args:
            limits: What the peer may do.
            keepalive: How a dead peer is noticed.
            on_change: Called when a stream may have become possible after one was refused, and when
                none is possible any more.
        """
        self._loop = asyncio.get_running_loop()
        self._machine = Machine(limits)
        self.low = limits.stream_window // 2
        """Bytes of room at which a stream's window is filled again."""
        self._keepalive = keepalive
        self._on_change = on_change
        self._transport: asyncio.Transport | None = None
        self._is_reading = False
        """True while a read is worked through: its output leaves in one write at the end."""
        self._has_changed = False
        """Whether the running read, or a cancel in it, ended a stream or changed the connection."""
        self._has_refused = False
        """Whether a stream was refused since the owner last heard of a change."""
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._pinged_at = 0.0
        self._emptied_at = self._loop.time()
        self.settled: asyncio.Future[None] = self._loop.create_future()
        """Done when streams can be opened; fails with H2Error when the connection ends before."""
        self.was_pinged_too_often = False
        """Whether the peer closes the connection because of its pings."""

    def __repr__(self) -> str:
        """Show the state."""
        return f"<Link {self._machine!r}>"

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""
        return self._machine.fault is not None

    @property
    def takes_streams(self) -> bool:
        """Whether a stream may ever be opened again."""
        return self._machine.takes_streams

    @property
    def idle_since(self) -> float | None:
        """When its last stream ended, by the loop's clock; None while it has one."""
        return None if self._machine.streams else self._emptied_at

    def open(self, block: bytes, body: bytes, listener: Callable[[], None]) -> Stream | None:
        """Send a request; return None if no stream may be opened now.

        Args:
            block: Its header block.
            body: All that follows.
            listener: Called after each read that brings the stream news.
        """
        if not self._machine.can_open:
            self._has_refused = True
            return None
        stream = self._machine.open(block, body)
        stream.listener = listener
        self._flush()
        if self._timer is None:
            self._watch()
        return stream

    def refill(self, stream: Stream) -> None:
        """Let the peer fill the window of *stream* again, all of which was taken."""
        self._machine.refill(stream)
        self._flush()

    def cancel(self, stream: Stream) -> None:
        """End *stream*: RST_STREAM is written before this returns."""
        stream.listener = stream.lane = None
        self._machine.cancel(stream)
        self._flush()
        self._has_changed = True
        if not self._is_reading:
            self._settle_change()

    def close(self) -> None:
        """Say goodbye and close the connection; open streams fail, their listeners hear of it."""
        failed = self._machine.close()
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._tell(failed)

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface."""
        self._transport = cast("asyncio.Transport", transport)  # connections are always streams
        set_socket_options(transport.get_extra_info("socket"), self._keepalive.timeout)
        self._heard_at = self._loop.time()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Work through one read."""
        machine = self._machine
        self._heard_at = now = self._loop.time()
        self._is_reading = True
        for event in machine.receive(data):
            if not isinstance(event, Stream):
                self._has_changed = True
                self._take_event(event)
            elif event.ended or event.failure is not None:
                self._has_changed = True
                _call(event)
            elif event.lane is not None and len(event.payloads) == 1:
                self._pass(event, event.lane, now)
            else:
                _call(event)
        self._is_reading = False
        if machine.output:
            self._flush()
        if machine.fault is not None:
            self._give_up(machine.fault)
        elif self._has_changed:
            self._settle_change()

    def eof_received(self) -> bool:
        """Close: a server that sends no more can finish no stream."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is open."""
        if self._timer is not None:
            self._timer.cancel()
        reason = "The peer closed the connection." if exc is None else "The connection broke."
        if self.was_pinged_too_often:
            reason = "The peer closed the connection because of its pings."
        failed = self._machine.lose(reason)
        if not self.settled.done():
            self._fail_settled(self._machine.fault)
        self._tell(failed)
        self._on_change(self)

    def pause_writing(self) -> None:
        """Keep bodies back until the socket takes more; control frames still go out."""
        self._machine.hold(held=True)

    def resume_writing(self) -> None:
        """Send bodies again."""
        self._machine.hold(held=False)
        self._flush()

    # --- what the above share -----------------------------------------------------------------

    def _take_event(self, event: SettingsChanged | GoingAway | PingAnswered) -> None:
        """Note what befell the whole connection."""
        match event:
            case SettingsChanged():
                if not self.settled.done():
                    self.settled.set_result(None)
            case GoingAway(code=code, reason=reason):
                self.was_pinged_too_often = (
                    code == ErrorCode.ENHANCE_YOUR_CALM and reason == _TOO_MANY_PINGS
                )
            case PingAnswered():
                return

    def _pass(self, stream: Stream, lane: Lane, now: float) -> None:
        """Let what has come for *stream* go by its *lane*; tell the listener if it does not."""
        try:
            has_passed = lane(stream.payloads[0], now)
        except Exception:
            logger.exception("lane of a stream failed", extra={"stream": stream.id})
            has_passed = False
        if not has_passed:
            _call(stream)
            return
        stream.payloads.clear()
        if stream.room <= self.low:
            self._machine.refill(stream)

    def _flush(self) -> None:
        """Write what the machine has to say, unless the end of the running read will."""
        if self._is_reading or self._transport is None:
            return
        output = self._machine.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(output)

    def _give_up(self, fault: H2Error) -> None:
        """Close after the peer broke a rule; GOAWAY has been written."""
        logger.warning("worker broke the protocol", extra={"fault": str(fault)})
        if not self.settled.done():
            self._fail_settled(fault)
        if self._transport is not None:
            self._transport.close()
        self._on_change(self)

    def _fail_settled(self, fault: H2Error | None) -> None:
        """Tell who waits for SETTINGS; nobody may be waiting."""
        if fault is not None:
            self.settled.set_exception(fault)
            self.settled.exception()  # marks it as seen

    def _settle_change(self) -> None:
        """Close a connection that takes no streams and has none; tell the owner what changed."""
        self._has_changed = False
        machine = self._machine
        if not machine.streams:
            self._emptied_at = self._loop.time()
        if not machine.takes_streams and not machine.streams:
            self.close()
        if self._has_refused or not machine.takes_streams:
            self._has_refused = False
            self._on_change(self)

    def _tell(self, streams: Iterable[Stream]) -> None:
        """Call the listeners of *streams*."""
        for stream in streams:
            _call(stream)

    # --- keepalive ----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Start the keepalive timer, which does not run: without calls no PING is sent."""
        self._heard_at = max(self._heard_at, self._loop.time())
        self._arm(self._keepalive.interval)

    def _arm(self, delay: float) -> None:
        """Look again in *delay* seconds."""
        self._timer = self._loop.call_later(max(delay, 0.001), self._check)

    def _check(self) -> None:
        """Ping a silent peer, or end the connection when it did not answer."""
        self._timer = None
        now = self._loop.time()
        silence = now - self._heard_at
        if not self._machine.streams or self._machine.fault is not None:
            return
        if self._pinged_at > self._heard_at:
            self._abort()  # whatever comes proves life, an answer or not
        elif silence < self._keepalive.interval:
            self._arm(self._keepalive.interval - silence)
        else:
            self._pinged_at = now
            self._machine.ping(_PING)
            self._flush()
            self._arm(self._keepalive.timeout)

    def _abort(self) -> None:
        """End a connection whose peer is dead, without waiting for its socket."""
        logger.warning("worker does not answer pings", extra={"after": self._keepalive.timeout})
        failed = self._machine.lose("The peer did not answer a ping.")
        if self._transport is not None:
            self._transport.abort()
        self._tell(failed)


def _call(stream: Stream) -> None:
    """Call the listener of *stream*; what it raises must not end the other streams."""
    if stream.listener is None:
        return
    try:
        stream.listener()
    except Exception:
        logger.exception("listener of a stream failed", extra={"stream": stream.id})
