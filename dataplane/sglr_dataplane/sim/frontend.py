"""The simulated servicer's way with a Generate call: refuse, cast, run, collect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sglr_dataplane.sim import assistant, killers
from sglr_dataplane.sim.cache import PrefixCache
from sglr_dataplane.sim.casting import Casting
from sglr_dataplane.sim.kv_events import KvEvents
from sglr_dataplane.sim.messages import Writer
from sglr_dataplane.sim.playback import actions, compose
from sglr_dataplane.sim.refusals import refusal_of
from sglr_dataplane.sim.sampling import choices_of, limits_of
from sglr_dataplane.sim.scheduler import CONNECTION_LOST, Output, Run, Scheduler
from sglr_dataplane.sim.script import Incident, Play, Script, Status
from sglr_proto.sglang import common_pb2
from sglr_proto.sglang import scheduler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglr_dataplane.sim.playback import Action
    from sglr_dataplane.sim.recorder import Recorder
    from sglr_dataplane.sim.settings import WorkerSettings
    from sglr_dataplane.sim.text import Text

_SILENCE = Play(chunks=((),), finish="length")
_HANG = Play(incidents=(Incident(hang=True),))


Send = Callable[[pb.GenerateResponse], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call:
    """The RPC behind a request."""

    number: int
    """Counts the worker's Generate calls from 1."""
    send: Send
    strike: Callable[[Incident, str], None]
    """Called with a death, a reset or a change of health, and the reason for it."""


class CallEndedError(Exception):
    """The stream of a call ends with *status*."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class Frontend:
    """Turns Generate calls into runs, and the runs' outputs into answers."""

    def __init__(
        self,
        settings: WorkerSettings,
        script: Script,
        text: Text,
        scheduler: Scheduler,
        recorder: Recorder,
    ) -> None:
        self.kv_events = KvEvents(settings.page_size, self._load)
        """The news of the cache; told when the settings say so."""
        self.cache = PrefixCache(self.kv_events if settings.kv_events else None)
        self._settings = settings
        self._text = text
        self._scheduler = scheduler
        self._recorder = recorder
        self._casting = Casting(script)

    def use(self, script: Script) -> None:
        """Play *script* from the next call on."""
        self._casting = Casting(script)

    async def answer(self, request: pb.GenerateRequest, call: Call) -> None:
        """Answer *request*; ending this early ends its runs.

        Raises:
            CallEndedError: The stream ends with a status.
        """
        refusal = refusal_of(request, self._settings.max_req_input_len)
        if refusal is not None:
            raise CallEndedError(Status(code="INVALID_ARGUMENT", message=refusal))
        self._kill_if_deadly(request, call)
        if choices_of(request) > 1:
            await self._stream([self._prefill(request, call)], _drop)
        runs = self._choices(request, call)
        await (self._stream if request.stream else self._collect)(runs, call.send)

    async def probe(self, rid: str, call: Call) -> None:
        """Generate one token for HealthCheck under *rid*."""
        request = pb.GenerateRequest(request_id=rid, tokenized=pb.TokenizedInput(input_ids=[0]))
        await self._stream([self._planned(rid, request, Play(ids=(0,)), call)], _drop)

    def uncached_tokens(self, request: pb.GenerateRequest) -> int:
        """Return how many tokens of *request*'s prompt are still to be computed."""
        ids = tuple(request.tokenized.input_ids)
        return len(ids) - self.cache.match(ids)

    def _load(self) -> common_pb2.EngineLoad:
        return common_pb2.EngineLoad(
            running_requests=len(self._scheduler.running),
            waiting_requests=len(self._scheduler.waiting),
            max_running_requests=self._settings.max_running_requests,
        )

    def _kill_if_deadly(self, request: pb.GenerateRequest, call: Call) -> None:
        death = killers.death_of(request, self._text.vocab_size)
        if death is not None:
            call.strike(Incident(die="exit"), death)
            raise CallEndedError(CONNECTION_LOST)

    def _prefill(self, request: pb.GenerateRequest, call: Call) -> Run:
        """Return the hidden run that fills the prefix cache before n > 1 choices."""
        return self._planned(f"{request.request_id}-prefix", request, _SILENCE, call)

    def _choices(self, request: pb.GenerateRequest, call: Call) -> list[Run]:
        """Return the runs of *request*, ``<rid>-0`` and so on when there are several."""
        cast = self._casting.cast(request, call.number, self._text)
        hangs = killers.hangs(request)
        count = choices_of(request)
        return [
            self._planned(
                f"{request.request_id}-{index}" if count > 1 else request.request_id,
                request,
                _HANG if hangs else cast.play_of(index),
                call,
                # smg-grpc-servicer 0.14.1 leaves index 0 on every choice that is not streamed.
                index=index if request.stream else 0,
                prompt=cast.prompt,
            )
            for index in range(count)
        ]

    def _planned(
        self,
        rid: str,
        request: pb.GenerateRequest,
        play: Play,
        call: Call,
        *,
        index: int = 0,
        prompt: str = "",
    ) -> Run:
        """Return a run that composes its answer when it gets its slot."""

        def begin() -> Iterator[Action]:
            ids = tuple(request.tokenized.input_ids)
            cached = 0 if _wants_prompt_logprobs(request) else self.cache.match(ids)
            self.cache.add(ids)
            words = "" if _has_content(play) else self._assistant(prompt, request)
            limits = limits_of(request, self._settings, self._text.eos_ids)
            interval = max(request.sampling_params.stream_interval, 1)
            answer = compose(play, words, limits, self._text, interval=interval)
            self.cache.add(ids + answer.ids)
            thought = self._thought_length(answer.ids) if request.require_reasoning else 0
            writer = Writer(request, self._text.vocab_size, cached, index, thought)
            return actions(answer, play, writer, self._settings.token_delay)

        return Run(rid, request, begin, call.strike)

    def _assistant(self, prompt: str, request: pb.GenerateRequest) -> str:
        thinks = self._settings.thinks and self._text.chooses_thinking
        return assistant.answer(prompt, request, chooses_thinking=thinks)

    def _thought_length(self, ids: tuple[int, ...]) -> int:
        """Return the number of *ids* up to the end of the thought; all of them without an end."""
        end = self._text.encode("</think>")[-1]
        return ids.index(end) + 1 if end in ids else len(ids)

    async def _stream(self, runs: list[Run], send: Send) -> None:
        """Send the outputs of *runs* as they come; return when every run has ended."""
        outputs: asyncio.Queue[Output] = asyncio.Queue()
        unfinished = len(runs)
        try:
            for run in runs:
                self._submit(run, outputs)
            while unfinished:
                output = await outputs.get()
                if isinstance(output, Status):
                    raise CallEndedError(output)
                if output is None:
                    unfinished -= 1
                else:
                    await send(output)
        finally:
            for run in runs:
                if unfinished:
                    self._scheduler.abort(run.rid)
                self._scheduler.close(run.rid)

    async def _collect(self, runs: list[Run], send: Send) -> None:
        """Send one complete per run, in the runs' order, when all have ended; they run together."""
        completes: list[list[pb.GenerateResponse]] = [[] for _ in runs]

        async def keep(kept: list[pb.GenerateResponse], message: pb.GenerateResponse) -> None:
            kept.append(message)

        running = [
            asyncio.ensure_future(self._stream([run], partial(keep, kept)))
            for run, kept in zip(runs, completes, strict=True)
        ]
        try:
            await asyncio.gather(*running)
        finally:
            for each in running:
                each.cancel()
        for kept in completes:
            for complete in kept:
                await send(complete)

    def _submit(self, run: Run, outputs: asyncio.Queue[Output]) -> None:
        self._scheduler.open(run.rid, outputs)
        self._recorder.schedule(run.rid)
        self._scheduler.submit(run)


async def _drop(message: pb.GenerateResponse) -> None:
    """Take *message* and do nothing with it."""


def _has_content(play: Play) -> bool:
    contents = (play.text, play.pieces, play.ids, play.chunks)
    return any(content is not None for content in contents)


def _wants_prompt_logprobs(request: pb.GenerateRequest) -> bool:
    """Return whether the whole prompt is computed again, past the prefix cache."""
    return request.return_logprob and request.logprob_start_len >= 0
