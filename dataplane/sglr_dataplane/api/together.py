"""Several jobs as one: their chunks in one stream, as choices of one answer."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol, Self

from sglr_dataplane.errors import RouterError
from sglr_dataplane.fleet.caller import NOBODY, Caller
from sglr_dataplane.job import Chunk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from sglr_dataplane.api.follow import Batches
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.job import Job


class Chunks(Protocol):
    """Chunks whose stream must be closed."""

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        ...

    async def __anext__(self) -> Chunk:
        """Return the next chunk; raises RouterError when a worker failed."""
        ...

    @property
    def batches(self) -> Batches | None:
        """What is still to come, by batches; None where it has to be iterated."""
        ...

    async def aclose(self) -> None:
        """End every call that still runs."""
        ...


def dispatch_all(
    dispatcher: Dispatcher, backend_key: str, jobs: Sequence[Job], caller: Caller = NOBODY
) -> Awaitable[Chunks]:
    """Return what waits for the first of the chunks of *caller*'s *jobs* and gives all; to be closed.

    Choice *i* of job *j* is choice ``j * n + i`` of the stream. Raises as ``dispatch`` does.
    """
    if len(jobs) == 1:
        return dispatcher.dispatch(backend_key, jobs[0], caller)
    return _opened(Together(dispatcher, backend_key, jobs, caller))


async def _opened(together: Together) -> Together:
    """Return *together*, the first chunk of which has come; closed when that fails."""
    try:
        await together.open()
    except BaseException:
        await together.aclose()
        raise
    return together


class Together:
    """The chunks of several jobs as they come; the failure of one ends them all."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        backend_key: str,
        jobs: Sequence[Job],
        caller: Caller = NOBODY,
    ) -> None:
        """Prepare *caller*'s *jobs*; nothing is sent before ``open``."""
        self._caller = caller
        self._dispatcher = dispatcher
        self._backend_key = backend_key
        self._jobs = jobs
        # One place each: a client that does not read stops every worker.
        self._news: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue(len(jobs))
        self._running = len(jobs)
        self._tasks: list[asyncio.Task[None]] = []
        self._first: Chunk | None = None

    def __repr__(self) -> str:
        return f"<Together jobs={len(self._jobs)} running={self._running}>"

    async def open(self) -> None:
        """Send the jobs and wait for the first chunk of any; raises as ``__anext__`` does."""
        self._tasks = [
            asyncio.create_task(self._follow(job, at * job.sampling.n))
            for at, job in enumerate(self._jobs)
        ]
        self._first = await anext(self, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        """Return the next chunk of any job; raises what a job's stream raises."""
        if self._first is not None:
            chunk, self._first = self._first, None
            return chunk
        while self._running:
            news = await self._news.get()
            if isinstance(news, BaseException):
                raise news
            if news is not None:
                return news
            self._running -= 1
        raise StopAsyncIteration

    @property
    def batches(self) -> None:
        """None: each job has a task of its own."""
        return

    async def aclose(self) -> None:
        """Cancel every job that still runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, job: Job, offset: int) -> None:
        try:
            stream = await self._dispatcher.dispatch(self._backend_key, job, self._caller)
            async with aclosing(stream):
                async for chunk in stream:
                    await self._news.put(_moved(chunk, offset))
        except RouterError as failure:
            await self._news.put(failure)
        except Exception as fault:  # noqa: BLE001  # the top of a task: the walk hears of it
            await self._news.put(fault)
        else:
            await self._news.put(None)


def _moved(chunk: Chunk, offset: int) -> Chunk:
    """Return *chunk* as one of the choice *offset* further on."""
    index = offset + chunk.index
    return Chunk(chunk.token_ids, chunk.usage, index, chunk.finish, chunk.extras)
