"""Where parsers put what they recognised: deltas in order, whitespace decided."""

from __future__ import annotations

from sglr_dataplane.output.deltas import CallArguments, CallStart, Delta, Reasoning, Text
from sglr_dataplane.output.source import WHITESPACE


class Sink:
    """The deltas of one choice, in order.

    Whitespace (R9): a run before a tool block is dropped; a run after one is dropped before another
    block, at the end, or while no content was sent; everything else is passed on as it is.
    """

    __slots__ = ("_after_block", "_deltas", "_holds", "_lead", "_spoke", "_thought", "_trailing")

    def __init__(self, *, holds_space: bool) -> None:
        """Start empty; *holds_space* when something may follow that drops a run of whitespace."""
        self._deltas: list[Delta] = []
        self._holds = holds_space
        self._trailing: list[str] = []
        self._after_block = False
        self._spoke = False
        self._lead: list[str] = []
        self._thought = False

    def text(self, text: str) -> None:
        """More content."""
        if not self._holds:
            if text:
                self._deltas.append(Text(text))
            return
        body = text.rstrip(WHITESPACE)
        if body:
            if self._after_block and not self._spoke:
                self._trailing.clear()
                body = body.lstrip(WHITESPACE)
            self._trailing.append(body)
            self._deltas.append(Text("".join(self._trailing)))
            self._trailing.clear()
            self._after_block = False
            self._spoke = True
        space = text[len(text.rstrip(WHITESPACE)) :]
        if space:
            self._trailing.append(space)

    def reasoning(self, text: str) -> None:
        """More thinking; whitespace alone is none."""
        if not self._thought:
            self._lead.append(text)
            if not text.strip(WHITESPACE):
                return
            text = "".join(self._lead)
            self._thought = True
        self._deltas.append(Reasoning(text))

    def passes(self, *, thought: bool) -> bool:
        """Return whether text, or *thought*, is told as it comes: nothing has to be decided."""
        if self._deltas:
            return False
        return self._thought if thought else not (self._trailing or self._after_block)

    @property
    def holds_space(self) -> bool:
        """Whether a text's last whitespace is held until it is known what follows."""
        return self._holds

    def passed(self) -> None:
        """Note that text was told that did not come by here."""
        self._spoke = True

    def plain_text(self, text: str) -> Text | None:
        """Return the delta of *text* if no whitespace has to be decided; None else, undone."""
        if self._deltas or (
            self._holds and (self._trailing or self._after_block or text[-1] in WHITESPACE)
        ):
            return None
        self._spoke = True
        return Text(text)

    def plain_reasoning(self, text: str) -> Reasoning | None:
        """Return the delta of *text* once thinking has begun; None else, and nothing is done."""
        return Reasoning(text) if self._thought and not self._deltas else None

    def drop_space(self) -> None:
        """Drop the run of whitespace that came last: markup stands around it."""
        self._trailing.clear()

    def wrapped(self) -> None:
        """The answer's closing wrapper stands here: one line break before it belongs to it."""
        kept = "".join(self._trailing).removesuffix("\n")
        if kept:
            self._deltas.append(Text(kept))
        self._trailing.clear()
        self._after_block = True

    def block(self) -> None:
        """A tool block stands here."""
        self._trailing.clear()
        self._after_block = True

    def call(self, delta: CallStart | CallArguments) -> None:
        """More of a call."""
        self._deltas.append(delta)

    def finish(self) -> None:
        """Nothing follows: decide about the whitespace still held."""
        if self._trailing and not self._after_block:
            self._deltas.append(Text("".join(self._trailing)))
        self._trailing.clear()

    def drain(self) -> list[Delta]:
        """Return what came since the last time, neighbours of one kind joined."""
        if len(self._deltas) <= 1:
            deltas, self._deltas = self._deltas, []
            return deltas
        deltas = joined(self._deltas)
        self._deltas.clear()
        return deltas


def joined(deltas: list[Delta]) -> list[Delta]:
    """Return *deltas* with neighbours of one kind joined into one."""
    together: list[Delta] = []
    texts: list[str] = []
    for delta, following in zip(deltas, [*deltas[1:], None], strict=True):
        if not isinstance(delta, Text | Reasoning | CallArguments):
            together.append(delta)
            continue
        texts.append(delta.text)
        if type(following) is type(delta) and _position(following) == _position(delta):
            continue
        text = "".join(texts)
        texts.clear()
        if isinstance(delta, CallArguments):
            together.append(CallArguments(delta.position, text))
        else:
            together.append(type(delta)(text))
    return together


def _position(delta: Delta | None) -> int:
    """Return the call a delta belongs to; -1 for none."""
    return delta.position if isinstance(delta, CallArguments) else -1
