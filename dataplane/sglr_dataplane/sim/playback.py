"""One choice as a sequence of actions: what is sent when, and what goes wrong where. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglr_dataplane.sim.generation import Finish, Generated, exactly, generate
from sglr_dataplane.sim.messages import Told, Writer
from sglr_dataplane.sim.script import Incident, Play, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sglr_dataplane.sim.generation import Limits
    from sglr_dataplane.sim.text import Text
    from sglr_proto.sglang import scheduler_pb2 as pb


@dataclass(frozen=True, slots=True)
class Wait:
    """Let *seconds* pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Send *message*."""

    message: pb.GenerateResponse


Action = Wait | Emit | Incident
"""An incident that ends the choice is the last action; after the last the choice is over."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of one choice and the chunks they are sent in."""

    chunks: tuple[tuple[int, ...], ...]
    """At least one; the only one of an empty answer is empty, as the real worker sends it."""
    finish: Finish

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens, in order."""
        return tuple(token for chunk in self.chunks for token in chunk)


def compose(
    play: Play, assistant_words: str, limits: Limits, text: Text, *, interval: int = 1
) -> Answer:
    """Return what *play* says under *limits*; *assistant_words* where it has no content of its own.

    Args:
        play: The script's answer.
        assistant_words: What the assistant would say; ``""`` when it was not asked.
        limits: What the request allows; applied to words, not to exact ids.
        text: The model's tokenizer.
        interval: Tokens of one chunk where *play* does not say.
    """
    borders = _wished_chunks(play, assistant_words, text)
    by_ids = play.ids is not None or play.chunks is not None
    wish = [token for chunk in borders for token in chunk]
    if (not by_ids if play.eos is None else play.eos) and text.eos_ids:
        wish.append(text.eos_ids[0])
    obeys = not by_ids if play.obey is None else play.obey
    generated = generate(wish, limits, text) if obeys else exactly(wish, text.eos_ids)
    return Answer(_cut(generated, borders, play, interval), _finish(generated.finish, play))


def actions(answer: Answer, play: Play, writer: Writer, token_delay: float) -> Iterator[Action]:
    """Return everything that happens to *answer* on the wire, in order.

    Args:
        answer: The tokens and their chunks.
        play: How they are sent.
        writer: Writes the messages; knows whether the request streams.
        token_delay: Seconds between messages where *play* does not say.
    """
    due = _Incidents(play.incidents)
    pauses = _pauses(play, token_delay)
    spoken: list[int] = []
    streamed = _streamed(answer, play)
    for sent, chunk in enumerate(streamed):
        yield Wait(next(pauses))
        yield from due.at(sent)
        spoken += chunk
        if writer.request.stream:
            told = Told(len(spoken) + play.count_offset, first=sent == 0)
            yield Emit(writer.chunk(spoken if play.cumulative else chunk, told))
    if not streamed:
        yield Wait(next(pauses))
    yield from due.before_complete()
    if play.complete != "missing":
        yield Emit(_complete_message(answer, play, writer))
    yield from due.after_complete()


class _Incidents:
    """The incidents of one play, each taken once."""

    def __init__(self, incidents: Sequence[Incident]) -> None:
        numbered = [(i.after, i) for i in incidents if isinstance(i.after, int)]
        self._waiting = sorted(numbered, key=lambda pair: pair[0])
        self._last = [incident for incident in incidents if incident.after == "complete"]

    def at(self, sent: int) -> Iterator[Incident]:
        """Return what happens after *sent* chunks."""
        while self._waiting and self._waiting[0][0] <= sent:
            yield self._waiting.pop(0)[1]

    def before_complete(self) -> Iterator[Incident]:
        """Return what was to happen after chunks that never came, or after the last."""
        while self._waiting:
            yield self._waiting.pop(0)[1]

    def after_complete(self) -> Iterator[Incident]:
        """Return what happens when everything was said."""
        yield from self._last


def _wished_chunks(play: Play, assistant_words: str, text: Text) -> list[tuple[int, ...]]:
    """Return the content of *play* in the chunks it asks for; one chunk where it asks for none."""
    if play.chunks is not None:
        return list(play.chunks)
    if play.pieces is not None:
        return [text.encode(piece) for piece in play.pieces]
    if play.ids is not None:
        return [play.ids]
    return [text.encode(assistant_words if play.text is None else play.text)]


def _cut(
    generated: Generated, borders: list[tuple[int, ...]], play: Play, interval: int
) -> tuple[tuple[int, ...], ...]:
    """Return the generated ids in chunks: at the script's borders, else by size."""
    ids = generated.ids
    if play.chunks is None and play.pieces is None:
        size = interval if play.chunk_size is None else play.chunk_size or max(len(ids), 1)
        return tuple(ids[i : i + size] for i in range(0, len(ids), size)) or ((),)
    cut: list[tuple[int, ...]] = []
    position = 0
    for border in borders:
        cut.append(ids[position : position + len(border)])
        position += len(border)
    if ids[position:]:  # EOS, or what min_new_tokens and ignore_eos added
        cut.append(ids[position:])
    spoken = [
        chunk for chunk, border in zip(cut, [*borders, ()], strict=False) if chunk or not border
    ]
    return tuple(spoken) or ((),)


def _finish(generated: Finish, play: Play) -> Finish:
    reason = generated.reason if play.finish is None else play.finish
    return Finish(reason, generated.matched if play.matched is None else play.matched)


def _pauses(play: Play, token_delay: float) -> Iterator[float]:
    """Return the seconds before each message."""
    later = token_delay if play.delay is None else seconds(play.delay)
    yield from (
        (seconds(delay) for delay in play.delays) if play.delays else (seconds(play.first_delay),)
    )
    while True:
        yield later


def _streamed(answer: Answer, play: Play) -> tuple[tuple[int, ...], ...]:
    """Return the chunks that are sent before ``complete``."""
    if play.complete == "only":
        return ()
    return answer.chunks[:-1] if play.complete in {"last_only", "last_and_all"} else answer.chunks


def _complete_message(answer: Answer, play: Play, writer: Writer) -> pb.GenerateResponse:
    """Return the message that ends the choice, in the play's style."""
    ids = answer.ids
    repeated = ids
    if writer.request.stream and play.complete in {"repeat_last", "last_only"}:
        # smg-grpc-servicer 0.14.1: the last delta was a chunk already, and is said again here.
        repeated = ids if play.cumulative else answer.chunks[-1]
    elif play.complete == "empty":
        repeated = ()
    only_message = not writer.request.stream or len(answer.chunks) == 1 or play.complete == "only"
    told = Told(len(ids) + play.count_offset, first=only_message)
    return writer.complete(repeated, answer.finish, told, ids)
