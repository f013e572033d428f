"""Engines that play what a test wrote down, without a network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from sglr_dataplane.engine import EngineFacts, TokenizerBundle
from sglr_dataplane.errors import RouterError, WorkerError, WorkerUnavailableError
from sglr_dataplane.job import Chunk, Finish, Job, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HANG: Final = "hang"
"""A step that never comes."""

Step = int | Chunk | RouterError | str
"""A token id, a whole chunk, a failure, or HANG. After the last step the stream ends."""


def a_finish(index: int = 0) -> Chunk:
    """Return the chunk that ends choice *index*."""
    return Chunk((), Usage(), index, Finish("stop"))


HI: Final[tuple[Step, ...]] = (1, 2, a_finish())
"""Two tokens and a finish."""


def some_facts(name: str = "m", *, max_req_input_len: int | None = 100) -> EngineFacts:
    """Return what a worker that serves *name* says."""
    return EngineFacts(
        served_model_name=name,
        model_path=f"/models/{name}",
        tokenizer_path=f"/models/{name}",
        max_req_input_len=max_req_input_len,
        context_length=106,
        max_running_requests=8,
        version="1",
        default_sampling_params="",
    )


NO_BUNDLE: Final = WorkerError("The worker does not offer its tokenizer.")


class ScriptedEngine:
    """An engine whose n-th job plays its n-th act; the last act is played again and again."""

    def __init__(
        self,
        *acts: Sequence[Step],
        health: Sequence[bool | RouterError] = (True,),
        facts: Sequence[EngineFacts | RouterError] = (some_facts(),),
        bundles: Sequence[TokenizerBundle | RouterError] = (NO_BUNDLE,),
    ) -> None:
        """Answer probes and questions with *health*, *facts* and *bundles* in turn; the last stays."""
        self._acts = list(acts) or [HI]
        self.health = list(health)
        self.told = list(facts)
        self.bundles = list(bundles)
        self.jobs: list[Job] = []
        """The jobs that were sent, in order."""
        self.streams: list[ScriptedStream] = []
        self.probes = 0
        self.generations: list[bool | RouterError] = [True]
        """What it says when it is asked for a token, in turn; the last stays."""
        self.generated = 0
        """How often it was asked for one."""
        self.asked = 0
        """How often facts were asked for."""
        self.sent = 0
        """How often the tokenizer was asked for."""
        self.closed = asyncio.Event()
        self.on_lost: Callable[[], None] = _unheard
        """Call it to say that the connection was lost."""

    def __repr__(self) -> str:
        return f"<ScriptedEngine jobs={len(self.jobs)} running={self.running}>"

    @property
    def running(self) -> int:
        """How many streams are neither over nor closed."""
        return sum(not stream.over for stream in self.streams if stream.started)

    def generate(self, job: Job) -> ScriptedStream:
        """Start the next act."""
        act = self._acts[min(len(self.streams), len(self._acts) - 1)]
        stream = ScriptedStream(self, job, act)
        self.streams.append(stream)
        return stream

    def embed(self, job: Job) -> ScriptedStream:
        """Start the next act: scripts do not care what a job is for."""
        return self.generate(job)

    async def is_serving(self) -> bool:
        """Return the next word on health."""
        self.probes += 1
        answer = self.health.pop(0) if len(self.health) > 1 else self.health[0]
        if isinstance(answer, RouterError):
            raise answer
        return answer

    async def generates(self) -> bool:
        """Return the next word on generating."""
        self.generated += 1
        said = self.generations
        answer = said.pop(0) if len(said) > 1 else said[0]
        if isinstance(answer, RouterError):
            raise answer
        return answer

    async def facts(self) -> EngineFacts:
        """Return the next facts."""
        self.asked += 1
        answer = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if isinstance(answer, RouterError):
            raise answer
        return answer

    async def tokenizer_bundle(self) -> TokenizerBundle:
        """Return the next bundle."""
        self.sent += 1
        answer = self.bundles.pop(0) if len(self.bundles) > 1 else self.bundles[0]
        if isinstance(answer, RouterError):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.closed.set()


class ScriptedStream:
    """One act."""

    def __init__(self, engine: ScriptedEngine, job: Job, act: Sequence[Step]) -> None:
        """Play *act* for *job*."""
        self._engine = engine
        self._job = job
        self._steps = list(act)
        self._tokens = 0
        self.started = False
        self.over = False
        self.waiting = asyncio.Event()
        """Set when a HANG is reached."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        """Play the next step."""
        if not self.started:
            self.started = True
            self._engine.jobs.append(self._job)
        if self.over or not self._steps:
            self.over = True
            raise StopAsyncIteration
        try:
            return await self._play(self._steps.pop(0))
        except BaseException:
            self.over = True
            raise

    async def aclose(self) -> None:
        """End at once."""
        self.over = True

    async def _play(self, step: Step) -> Chunk:
        if isinstance(step, RouterError):
            raise step
        if isinstance(step, Chunk):
            return step
        if isinstance(step, int):
            self._tokens += 1
            return Chunk((step,), Usage(completion_tokens=self._tokens))
        self.waiting.set()
        await asyncio.Event().wait()
        raise WorkerUnavailableError("Nobody wakes a hanging stream.")


class FakeClock:
    """A clock that moves when told."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Let *seconds* go by."""
        self.now += seconds


def _unheard() -> None:
    """Be the listener when there is none."""
