# ruff: noqa: N802, ARG002 -- names and signatures of rpcs are the contract's
"""The rpcs of ``sglang.grpc.scheduler.SglangScheduler``, as smg-grpc-servicer 0.14.1 serves them."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from sglr_dataplane.sim import info
from sglr_dataplane.sim.bundle import chunks_of, zip_directory
from sglr_dataplane.sim.faults import Faults, end
from sglr_dataplane.sim.frontend import Call, CallEndedError, Frontend
from sglr_dataplane.sim.recorder import Received
from sglr_dataplane.sim.sampling import effective_sampling
from sglr_proto.sglang import common_pb2, scheduler_pb2_grpc
from sglr_proto.sglang import scheduler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sglr_dataplane.sim.recorder import Recorder
    from sglr_dataplane.sim.scheduler import Scheduler
    from sglr_dataplane.sim.script import Incident, RpcName
    from sglr_dataplane.sim.settings import WorkerSettings

    Context = grpc.aio.ServicerContext[Any, Any]

PROBE_STEP = 0.5
"""Seconds between two looks of HealthCheck at the engine: it takes at least one."""
PROBE_LIMIT = 20.0
"""Seconds after which HealthCheck says unhealthy."""


class SchedulerServicer(scheduler_pb2_grpc.SglangSchedulerServicer):
    """One simulated worker's rpcs."""

    def __init__(
        self,
        settings: WorkerSettings,
        faults: Faults,
        frontend: Frontend,
        scheduler: Scheduler,
        recorder: Recorder,
        *,
        strike: Callable[[Incident, str, str], None],
    ) -> None:
        """Serve.

        Args:
            settings: The worker.
            faults: What the script has against rpcs.
            frontend: Answers Generate.
            scheduler: The engine.
            recorder: Takes down what was asked.
            strike: Called with an incident, its reason and the peer it is to hit.
        """
        self._settings = settings
        self._faults = faults
        self._frontend = frontend
        self._scheduler = scheduler
        self._recorder = recorder
        self._strike = strike
        self._started = time.time()
        self.adapters = {name: secrets.token_hex(16) for name in settings.adapters}
        """The id of each by name: drawn anew by every worker, as the engine does."""
        self.is_stopping = False
        """True while the server stops: calls that end then were not cancelled by their clients."""

    async def Generate(  # type: ignore[override]  # writing through the context is grpc.aio's other style: a cancelled call then unwinds at once, where a generator waits for the collector
        self, request: pb.GenerateRequest, context: Context
    ) -> None:
        """Answer *request*: chunks and a complete for each choice, or completes only."""
        received = Received(
            number=len(self._recorder.received) + 1,
            request=request,
            sampling=effective_sampling(request.sampling_params),
            metadata=_text_metadata(context),
        )
        self._recorder.generate(received)
        await self._faults.begin("Generate", context)
        peer = context.peer()
        call = Call(received.number, context.write, lambda what, why: self._strike(what, why, peer))
        try:
            await self._frontend.answer(request, call)
        except CallEndedError as ended:
            self._recorder.finish(request.request_id)
            await end(context, ended.status)
        except asyncio.CancelledError:
            if not self.is_stopping:
                self._recorder.cancel(request.request_id)
            raise
        else:
            self._recorder.finish(request.request_id)

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        """Return a small vector made of the ids; fail as a generative model does, if it is one."""
        await self._faults.begin("Embed", context)
        if not request.HasField("tokenized"):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "Tokenized input must be provided"
            )
        if self._faults.script.model_info.get("is_generation", True):
            # A generative engine's output has no such key.
            await context.abort(grpc.StatusCode.INTERNAL, "'embedding'")
        ids = request.tokenized.input_ids
        vector = [float(len(ids)), float(sum(ids) % 97), ids[0] / 2, -ids[-1] / 2]
        return pb.EmbedResponse(embedding_dim=len(vector), embedding=vector, prompt_tokens=len(ids))

    async def HealthCheck(
        self, request: pb.HealthCheckRequest, context: Context
    ) -> pb.HealthCheckResponse:
        """Generate one token and look every half second whether the engine said anything."""
        await self._faults.begin("HealthCheck", context)
        loop = asyncio.get_running_loop()
        began = loop.time()
        call = Call(0, context.write, lambda what, why: self._strike(what, why, context.peer()))
        probe = loop.create_task(self._frontend.probe(f"HEALTH_CHECK_{time.time()}", call))
        try:
            while loop.time() - began < PROBE_LIMIT:
                await asyncio.sleep(PROBE_STEP)
                if self._scheduler.last_push > began:
                    return pb.HealthCheckResponse(healthy=True, message="Health check passed")
        finally:
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)
        return pb.HealthCheckResponse(
            healthy=False, message=f"Health check timeout after {PROBE_LIMIT:.0f}s"
        )

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        """Abort by prefix; success whether or not there was anything to abort."""
        await self._faults.begin("Abort", context)
        self._recorder.abort(request.request_id)
        if request.request_id.startswith("HEALTH_CHECK"):
            return pb.AbortResponse(
                success=False, message=f"Request {request.request_id} not found"
            )
        self._scheduler.abort(request.request_id)
        return pb.AbortResponse(success=True, message=f"Request {request.request_id} aborted")

    async def GetModelInfo(
        self, request: pb.GetModelInfoRequest, context: Context
    ) -> pb.GetModelInfoResponse:
        """Return what the worker says its model is."""
        await self._faults.begin("GetModelInfo", context)
        return info.model_info(self._settings, self._faults.script)

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        """Return how the worker was started and how it is."""
        await self._faults.begin("GetServerInfo", context)
        now = time.time()
        silence = asyncio.get_running_loop().time() - self._scheduler.last_push
        vitals = info.Vitals(
            started=self._started,
            uptime=now - self._started,
            active_requests=len(self._scheduler.streams),
            last_push=now - silence,
        )
        return info.server_info(self._settings, self._faults.script, vitals)

    async def GetLoads(self, request: pb.GetLoadsRequest, context: Context) -> pb.GetLoadsResponse:
        """Return the load of the only rank; INVALID_ARGUMENT for an unknown section."""
        await self._faults.begin("GetLoads", context)
        unknown = sorted(set(request.include) - set(info.LOAD_SECTIONS))
        if unknown:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Invalid include sections: {unknown}. Valid options: {list(info.LOAD_SECTIONS)}",
            )
        load = info.loads(
            self._settings,
            list(request.include),
            [len(r.request.tokenized.input_ids) + r.generated for r in self._scheduler.running],
            [self._frontend.uncached_tokens(r.request) for r in self._scheduler.waiting],
        )
        other_rank = request.HasField("dp_rank") and request.dp_rank != 0
        shown = [] if other_rank else [load]
        return pb.GetLoadsResponse(
            timestamp=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            version=info.VERSION,
            dp_rank_count=len(shown),
            loads=shown,
            aggregate=info.aggregate(load) if shown else None,
        )

    async def FlushCache(
        self, request: common_pb2.FlushCacheRequest, context: Context
    ) -> common_pb2.FlushCacheResponse:
        """Empty the prefix cache; refused while anything runs, as the engine does."""
        await self._faults.begin("FlushCache", context)
        if self._scheduler.running or self._scheduler.waiting:
            return common_pb2.FlushCacheResponse(
                success=False, message="Cache not flushed because there are pending requests."
            )
        self._frontend.cache.clear()
        return common_pb2.FlushCacheResponse(success=True, message="Cache flushed successfully")

    async def StartProfile(
        self, request: common_pb2.StartProfileRequest, context: Context
    ) -> common_pb2.ProfileResponse:
        """Say that a profile was started."""
        await self._faults.begin("StartProfile", context)
        return common_pb2.ProfileResponse(success=True, message="Start profiling succeeded")

    async def StopProfile(
        self, request: common_pb2.StopProfileRequest, context: Context
    ) -> common_pb2.ProfileResponse:
        """Say that a profile was stopped."""
        await self._faults.begin("StopProfile", context)
        return common_pb2.ProfileResponse(success=True, message="Stop profiling succeeded")

    async def GetTokenizer(
        self, request: common_pb2.GetTokenizerRequest, context: Context
    ) -> AsyncIterator[common_pb2.GetTokenizerChunk]:
        """Send the tokenizer directory; FAILED_PRECONDITION when there is none."""
        await self._faults.begin("GetTokenizer", context)
        if self._settings.tokenizer is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                "Tokenizer path is not configured on this server.",
            )
        try:
            archive = await asyncio.to_thread(zip_directory, self._settings.tokenizer)
        except OSError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        for chunk in chunks_of(archive):
            yield chunk

    async def SubscribeKvEvents(
        self, request: common_pb2.SubscribeKvEventsRequest, context: Context
    ) -> AsyncIterator[common_pb2.KvEventBatch]:
        """Tell of the prefix cache; refuse when the worker runs without --kv-events-config."""
        await self._faults.begin("SubscribeKvEvents", context)
        if not self._settings.kv_events:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED,
                "KV cache events not enabled. Start SGLang with --kv-events-config"
                ' \'{"publisher": "zmq"}\'',
            )
        with self._frontend.kv_events.listening(request.start_sequence_number) as news:
            while True:
                yield await news.get()

    async def LoadLoRAAdapter(
        self, request: pb.LoadLoRAAdapterRequest, context: Context
    ) -> pb.LoadLoRAAdapterResponse:
        """Refuse: no known servicer implements it."""
        await self._unimplemented("LoadLoRAAdapter", context)

    async def UnloadLoRAAdapter(
        self, request: pb.UnloadLoRAAdapterRequest, context: Context
    ) -> pb.UnloadLoRAAdapterResponse:
        """Refuse: no known servicer implements it."""
        await self._unimplemented("UnloadLoRAAdapter", context)

    async def ListLoadedLoRAAdapters(
        self, request: pb.ListLoadedLoRAAdaptersRequest, context: Context
    ) -> pb.ListLoadedLoRAAdaptersResponse:
        """List the adapters; refuse without any, because no known servicer implements it."""
        if not self.adapters:
            await self._unimplemented("ListLoadedLoRAAdapters", context)
        await self._faults.begin("ListLoadedLoRAAdapters", context)
        return info.adapters(self.adapters)

    async def _unimplemented(self, rpc: RpcName, context: Context) -> NoReturn:
        await self._faults.begin(rpc, context)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not implemented!")


def _text_metadata(context: Context) -> tuple[tuple[str, str], ...]:
    """Return the call's metadata, binary values left out."""
    pairs = context.invocation_metadata() or ()
    return tuple((str(key), value) for key, value in pairs if isinstance(value, str))
