"""An answer taken batch by batch, in the calls that bring its chunks; the task only hears the end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from sglr_dataplane.job import Chunk, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.api.answer import Answer, News
    from sglr_dataplane.engine.lanes import Lane
    from sglr_dataplane.job import Finish, Run


class Batches(Protocol):
    """Chunks as they arrive; see :class:`sglr_dataplane.fleet.stream.Batches`."""

    def follow(self, on_news: Callable[[], None]) -> None:
        """Call *on_news* whenever something arrives, and at the end."""
        ...

    def pull(self) -> tuple[Run | None, list[Chunk] | None]:
        """Return a run, and the chunks behind it, None where there is but the run.

        Raises:
            RouterError: The worker failed.
        """
        ...

    def lay(self, lane: Lane) -> None:
        """Have tokens go by *lane*, where they can, until :meth:`lift`, which comes before a pull."""
        ...

    def lift(self) -> Usage | None:
        """End what :meth:`lay` began; return what tokens that passed came to, None if none did."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether :meth:`pull` will raise, as soon as it has returned everything."""
        ...

    @property
    def are_quiet(self) -> bool:
        """Whether :meth:`pull` would return nothing now; False where that is not known."""
        ...


class Follower(ABC):
    """Takes an answer until every choice has finished; what becomes of it is its subclasses'."""

    def __init__(self, batches: Batches, answer: Answer) -> None:
        """Read *batches*, from whatever comes next, as *answer*."""
        self._batches = batches
        self._answer = answer
        self._end: asyncio.Future[None] | None = None
        """What :meth:`run` waits for."""
        self._has_ended = False
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Take what has arrived by now; what arrives later is taken when it does."""
        if self._answer.told:
            self._take(None, [])
        if self._answer.finished:
            self._has_ended = True
            return
        self.hear()
        if not self._has_ended:
            self._batches.follow(self.hear)

    async def run(self) -> None:
        """Return when the answer is complete; raises RouterError when the worker failed.

        Call after :meth:`begin`.
        """
        if not self._has_ended:
            self._end = asyncio.get_running_loop().create_future()
            try:
                await self._end
            finally:
                self._has_ended = True
        if self._failure is not None:
            raise self._failure

    def hear(self) -> None:
        """Take what has arrived."""
        if not self._has_ended:
            self._hear()

    def _hear(self) -> None:
        try:
            run, chunks = self._batches.pull()
            self._take(run, chunks)
            if self._answer.finished:
                self._finish()
            elif chunks is not None and self._batches.has_failed:
                self._batches.pull()
        except Exception as failure:  # noqa: BLE001  # the task that waits raises it
            self._failure = failure
            self._finish()

    def _finish(self) -> None:
        """Let the task go on."""
        self._has_ended = True
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    @abstractmethod
    def _take(self, run: Run | None, chunks: list[Chunk] | None) -> None:
        """Take *run*, and *chunks* behind it, and what the answer has told and nobody asked for."""


class Gathering(Follower):
    """Keeps an answer's news, as few as it can: tokens are read all at once where that may be."""

    def __init__(self, batches: Batches, answer: Answer) -> None:
        """Read *batches* as *answer*."""
        super().__init__(batches, answer)
        self.news: list[News] = []
        """What the answer has told so far, in order."""
        self._ids: list[int] = []
        """What came and was not read."""
        self._usage = Usage()

    def _take(self, run: Run | None, chunks: list[Chunk] | None) -> None:
        only = self._answer.only
        if only is None or only.reads_singly:
            pieces = [*(run.chunks() if run is not None else ()), *(chunks or ())]
            self.news += self._answer.read(pieces)
            return
        if run is not None:
            self._ids += run.token_ids
            self._usage = run.usage
        for chunk in chunks or ():
            self._ids += chunk.token_ids
            self._usage = chunk.usage
            if chunk.finish is not None:
                self.read_on(chunk.finish)

    def read_on(self, finish: Finish | None = None) -> None:
        """Read what was not; *finish* is the choice's, None while it goes on."""
        if self._ids or finish is not None:
            chunk = Chunk(tuple(self._ids), self._usage, finish=finish)
            self._ids.clear()
            self.news += self._answer.read((chunk,))
