"""What the script has against single rpcs, and how a call ends with a status."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from sglr_dataplane.sim.script import RpcFault, RpcName, Script, seconds

if TYPE_CHECKING:
    from sglr_dataplane.sim.recorder import Recorder
    from sglr_dataplane.sim.script import Status

    Context = grpc.aio.ServicerContext[Any, Any]


class Faults:
    """Receives every call first: records it, and lets happen what the script says."""

    def __init__(self, script: Script, recorder: Recorder) -> None:
        self.script = script
        self._recorder = recorder

    async def begin(self, rpc: RpcName, context: Context) -> None:
        """Record a call of *rpc*; wait, hang or end it as the script says."""
        self._recorder.call(rpc)
        fault = self.script.rpcs.get(rpc, RpcFault())
        await asyncio.sleep(seconds(fault.delay))
        if fault.hang:
            await asyncio.Event().wait()
        if fault.status is not None:
            await end(context, fault.status)


async def end(context: Context, status: Status) -> NoReturn:
    """End the call with *status*, its trailers included."""
    code = grpc.StatusCode[status.code]
    await context.abort(code, status.message, tuple(status.trailers.items()))
