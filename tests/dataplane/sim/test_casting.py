"""Which rule answers: the first that matches and has not answered often enough."""

from __future__ import annotations

import pytest

from sglr_dataplane.sim.casting import Casting
from sglr_dataplane.sim.script import Play, Rule, Script, When
from sglr_dataplane.sim.text import DirectoryText
from support.sim import DEMO_TOKENIZER, sim_worker
from support.sim_client import a_request, chunks_of, connected

TEXT = DirectoryText(DEMO_TOKENIZER)
CHAT = (
    "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nfirst<|im_end|>\n"
    "<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\nlast question<|im_end|>\n"
    "<|im_start|>assistant\n"
)
HIT = Play(text="hit")


def cast(when: When, *, rid: str = "rid", number: int = 1) -> Play:
    """Return what a rule with *when* lets a chat be answered with."""
    casting = Casting(Script(rules=(Rule(when=when, play=HIT),)))
    return casting.cast(a_request(rid, ids=TEXT.encode(CHAT)), number, TEXT).play_of(0)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(), HIT),
        (When(prompt="Be kind"), HIT),
        (When(prompt="<|im_start|>system"), HIT),
        (When(prompt="absent"), Play()),
        (When(user="last"), HIT),
        (When(user="first"), Play()),
        (When(rid="rid"), HIT),
        (When(rid="ri"), Play()),
        (When(request=1), HIT),
        (When(request=2), Play()),
        (When(user="last", request=2), Play()),
    ],
)
def test_conditions(when: When, expected: Play) -> None:
    """All given conditions must hold; control tokens are part of the prompt."""
    assert cast(when) == expected


def test_rules_are_tried_in_order_and_used_up() -> None:
    """``times`` counts answers; afterwards the next rule has its chance, then the assistant."""
    rules = (Rule(play=Play(text="a"), times=2), Rule(play=Play(text="b"), times=1))
    casting = Casting(Script(rules=rules))
    request = a_request(ids=TEXT.encode(CHAT))
    texts = [casting.cast(request, number, TEXT).play_of(0).text for number in range(1, 5)]

    assert texts == ["a", "a", "b", None]


def test_choices_go_round_the_list() -> None:
    """Choice 2 of two plays is the first again."""
    casting = Casting(Script(rules=(Rule(play=(Play(text="a"), Play(text="b"))),)))
    found = casting.cast(a_request(ids=TEXT.encode(CHAT)), 1, TEXT)

    assert [found.play_of(index).text for index in range(3)] == ["a", "b", "a"]


async def test_the_nth_request_of_a_worker() -> None:
    """Counted over the wire, from 1."""
    script = Script(
        rules=(Rule(when=When(request=2), play=Play(ids=(5,))), Rule(play=Play(ids=(6,))))
    )
    async with sim_worker(script) as worker, connected(worker.address) as client:
        answers = [chunks_of(await client.generate(a_request(f"r{n}"))) for n in range(3)]

    assert answers == [[[6]], [[5]], [[6]]]
