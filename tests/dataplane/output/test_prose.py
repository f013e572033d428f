"""An answer in which nothing is looked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.deltas import Delta
from sglr_dataplane.output.grammar import Grammar
from sglr_dataplane.output.ids import call_ids
from sglr_dataplane.output.machine import Machine
from sglr_dataplane.output.prose import Prose
from sglr_dataplane.output.sink import Sink
from sglr_dataplane.output.source import Source
from sglr_dataplane.output.stop import Cut
from sglr_dataplane.output.stripping import StrippingSink


def step(machine: Machine | Prose, sink: Sink, texts: list[str]) -> list[Delta]:
    """Return what a pipeline would tell of *texts*, the pieces of one chunk."""
    plain = machine.plainly(texts[0]) if len(texts) == 1 else None
    if plain is not None:
        return [plain]
    machine.push([Cut(text) for text in texts])
    return sink.drain()


@given(
    st.lists(st.lists(st.text("a \n<{\u00e9", min_size=1, max_size=5), min_size=1, max_size=3)),
    st.booleans(),
)
def test_prose_is_what_the_machine_reads_by_no_grammar(
    chunks: list[list[str]], strips: bool
) -> None:
    """Step by step the same deltas, and the same may pass as soon as the machine lets any."""
    kind = StrippingSink if strips else Sink
    sink, other, source = kind(holds_space=False), kind(holds_space=False), Source()
    calls = Calls(source, other, {}, call_ids("random", str, 0))
    prose, machine = Prose(sink), Machine(source, other, calls, Grammar(), "off")

    for texts in chunks:
        assert step(prose, sink, texts) == step(machine, other, texts)
        assert prose.passage() == machine.passage()
        assert prose.thinks is machine.thinks is False
    for each in (prose, machine):
        each.finish()

    assert sink.drain() == other.drain()
