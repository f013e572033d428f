"""What a worker's messages mean: each one in, the new tokens out.

The proto says that chunks are increments; some engines send everything so far. The counters tell
which: ``completion_tokens`` is cumulative in both. A choice's ids are therefore never appended
before they were held against its counter, so that no text can come twice or get lost in silence.

No transport is known here: every client of a worker feeds its messages through one
:class:`Answers` per call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from sglr_dataplane.errors import TruncatedStreamError, WorkerError
from sglr_dataplane.job import Chunk, Extras, Finish, Job, Usage

# sglang's finish reasons. "abort" means that the engine gave the generation up: no finish.
_FINISHES: Final[dict[str, Literal["stop", "length"]]] = {
    "stop": "stop",
    "length": "length",
    # `complete` alone says that the choice ended by itself; only the reason is not told.
    "": "stop",
}


class Answers:
    """The answers to one job: turns its messages, in order of arrival, into chunks."""

    def __init__(self, job: Job) -> None:
        """Expect one finish for each of the choices that *job* asks for."""
        count = max(job.sampling.n, 1)
        self._stream = job.stream
        self._has_logprobs = job.logprobs is not None
        self._choices = [*map(ChoiceSoFar, range(count))]
        self._open = dict(enumerate(self._choices))
        """The choices that have no finish yet, by their index."""
        self.finished = False
        """Whether every choice has its finish."""
        self.only = self._choices[0] if count == 1 and not self._has_logprobs else None
        """The only choice, where its tokens may come as runs: its owner then advances it."""

    def __repr__(self) -> str:
        streamed = ", ".join(str(choice.usage.completion_tokens) for choice in self._choices)
        return f"<Answers open={len(self._open)} of {len(self._choices)} tokens=[{streamed}]>"

    def chunk(
        self,
        token_ids: tuple[int, ...],
        usage: Usage,
        index: int = 0,
        extras: Extras | None = None,
    ) -> Chunk | None:
        """Return what a ``GenerateStreamChunk`` adds; None when it adds nothing.

        Args:
            token_ids: The message's ids, new ones only or all so far.
            usage: The message's counters; cumulative.
            index: The choice it belongs to.
            extras: What else the message holds, for as many tokens as it repeats.

        Raises:
            WorkerError: The counters fit neither reading, log probabilities are missing, or the
                choice is unknown or finished.
        """
        choice = self._open.get(index)
        if choice is None:
            raise self._unexpected(index)
        received = choice.received
        new = token_ids
        if received + len(new) != usage.completion_tokens:
            new = choice.new_of_all(token_ids, usage.completion_tokens)
        choice.received = received + len(new)
        choice.usage = usage
        if not new:
            return None
        if self._has_logprobs:
            told = _of_new(extras, len(new), again=received > 0)
            return Chunk(new, usage, index, None, told)
        return Chunk(new, usage, index)

    def complete(
        self,
        output_ids: tuple[int, ...],
        usage: Usage,
        index: int = 0,
        *,
        reason: str,
        matched: int | str | None = None,
        extras: Extras | None = None,
    ) -> Chunk:
        """Return a choice's last chunk: what ``GenerateComplete`` still adds, and the finish.

        Args:
            output_ids: All ids, the last increment once more, only new ones, or none.
            usage: The final counters; zero tokens means "not told" once tokens have come.
            index: The choice; not looked at in a call that does not stream, where the engine
                leaves it 0 and the order of arrival counts.
            reason: The wire's ``finish_reason``.
            matched: The stop token's id or the stop string.
            extras: What else the message holds, for as many tokens as it repeats.

        Raises:
            TruncatedStreamError: The engine aborted the generation.
            WorkerError: Ids or log probabilities were lost on the way, or the choice is unknown or
                finished.
        """
        choice = self._open.get(index if self._stream else len(self._choices) - len(self._open))
        if choice is None:
            raise self._unexpected(index)
        finish = _FINISHES.get(reason)
        if finish is None:
            raise TruncatedStreamError("The worker gave the generation up before it was complete.")
        if not usage.completion_tokens and choice.received:
            usage = choice.usage
        received = choice.received
        new = choice.new_of_complete(output_ids, usage.completion_tokens, whole=not self._stream)
        choice.received = received + len(new)
        choice.usage = usage
        del self._open[choice.index]
        self.finished = not self._open
        if self._has_logprobs:
            told = _of_new(extras, len(new), again=received > 0)
            return Chunk(new, usage, choice.index, _finish(finish, matched), told)
        return Chunk(new, usage, choice.index, _finish(finish, matched))

    def end(self) -> None:
        """Accept that the worker ended the call with status OK.

        Raises:
            TruncatedStreamError: A choice has no finish yet; an end is not a "stop".
        """
        if self._open:
            raise TruncatedStreamError(
                "The worker ended the stream without saying how the generation finished."
            )

    def _unexpected(self, index: int) -> WorkerError:
        """Return what a message of a choice that is not open is."""
        if 0 <= index < len(self._choices):
            return WorkerError(f"The worker sent more of choice {index!r} after its finish.")
        return WorkerError(
            f"The worker answered choice {index!r} of {len(self._choices)} that were asked for."
        )


_finish: Final = lru_cache(64)(Finish)
"""Answers of a model mostly end by the same token."""


class ChoiceSoFar:
    """How far one choice has come."""

    __slots__ = ("index", "received", "usage")

    def __init__(self, index: int) -> None:
        """Start choice *index*."""
        self.index = index
        self.received = 0
        """Ids that were passed on."""
        self.usage = Usage()
        """The counters by then."""

    def new_of_all(self, token_ids: tuple[int, ...], counter: int) -> tuple[int, ...]:
        """Return which ids of a chunk that repeats all so far are new; raises WorkerError if it does not."""
        if len(token_ids) == counter:
            return token_ids[self.received :]
        raise self._contradiction(len(token_ids), counter)

    def new_of_complete(
        self, output_ids: tuple[int, ...], counter: int, *, whole: bool
    ) -> tuple[int, ...]:
        """Return which ids of the last message are new; raises WorkerError when some were lost."""
        if whole and not self.received:
            # Not streamed: the message is the choice, and nothing can come twice. It may hold more
            # than it counts, for a counter is not always told; with less, text was lost.
            if len(output_ids) < counter:
                raise self._contradiction(len(output_ids), counter)
            return output_ids
        missing = counter - self.received
        if not 0 <= missing <= len(output_ids):
            raise self._contradiction(len(output_ids), counter)
        # Whatever the ids repeat, they end where the choice ends.
        return output_ids[len(output_ids) - missing :]

    def advance(self, count: int, usage: Usage) -> None:
        """Note that *count* ids were passed on, with the counters *usage*."""
        self.received += count
        self.usage = usage

    def _contradiction(self, length: int, counter: int) -> WorkerError:
        return WorkerError(
            f"The worker sent {length} token ids and counts {counter}, but {self.received} came "
            "before: they are neither an increment nor everything so far."
        )


def _of_new(extras: Extras | None, count: int, *, again: bool) -> Extras:
    """Return what *extras* say of the last *count* tokens; *again*: the prompt was told before.

    Like ids, log probabilities may repeat what came before, but end where the choice does.
    """
    given = extras or Extras()
    if len(given.logprobs) < count:
        raise WorkerError(
            f"The worker sent {len(given.logprobs)} log probabilities for {count} tokens."
        )
    return Extras(
        logprobs=given.logprobs[len(given.logprobs) - count :],
        prompt_logprobs=() if again else given.prompt_logprobs,
    )
