"""Which answer a request gets: the first rule that matches, else the assistant's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglr_dataplane.sim.conversation import read_prompt
from sglr_dataplane.sim.script import Play, Rule, Script, When

if TYPE_CHECKING:
    from sglr_dataplane.sim.text import Text
    from sglr_proto.sglang import scheduler_pb2 as pb


@dataclass(frozen=True, slots=True)
class Cast:
    """The answers of one request's choices."""

    plays: tuple[Play, ...]
    prompt: str
    """The decoded prompt."""

    def play_of(self, index: int) -> Play:
        """Return what choice *index* plays."""
        return self.plays[index % len(self.plays)]


class Casting:
    """A script's rules and how often each has answered."""

    def __init__(self, script: Script) -> None:
        self._rules = script.rules
        self._answered = [0] * len(script.rules)

    def __repr__(self) -> str:
        return f"Casting(answered={self._answered})"

    def cast(self, request: pb.GenerateRequest, number: int, text: Text) -> Cast:
        """Return the answer for *request*, the *number*-th the worker received, and count it."""
        prompt = text.decode(request.tokenized.input_ids)
        for position, rule in enumerate(self._rules):
            if self._is_free(position, rule) and _matches(rule.when, request, number, prompt):
                self._answered[position] += 1
                plays = rule.play if isinstance(rule.play, tuple) else (rule.play,)
                return Cast(plays or (Play(),), prompt)
        return Cast((Play(),), prompt)

    def _is_free(self, position: int, rule: Rule) -> bool:
        return rule.times is None or self._answered[position] < rule.times


def _matches(when: When, request: pb.GenerateRequest, number: int, prompt: str) -> bool:
    return (
        (when.request is None or when.request == number)
        and (when.rid is None or when.rid == request.request_id)
        and (when.prompt is None or when.prompt in prompt)
        and (when.user is None or when.user in read_prompt(prompt).user)
    )
