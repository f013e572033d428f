"""Calls together with their flows: what a client does, before any wire; pure."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from sglr_client import decoding, flows
from sglr_client.calls import Call
from sglr_client.reading import ChunkReader
from sglr_client.results import ChatChunk, ChatCompletion, Completion, Embeddings, Models
from sglr_client.rules import Account, Rules
from sglr_client.steps import Flow

T = TypeVar("T")


class Asked(Generic[T]):
    """A call that emits T's.

    Attributes:
        account: What is kept of it.
        flow: Its steps; walked once.
    """

    def __init__(self, account: Account, flow: Flow) -> None:
        """Pair them."""
        self.account = account
        self.flow = flow

    def __repr__(self) -> str:
        return f"<Asked {self.account!r}>"


def chat(call: Call, rules: Rules) -> Asked[ChatCompletion]:
    """Ask for a chat's whole answer."""
    account = Account(call, rules)
    return Asked(account, flows.answer(account, partial(decoding.decoded, kind=ChatCompletion)))


def completion(call: Call, rules: Rules) -> Asked[Completion]:
    """Ask for a completion's whole answer."""
    account = Account(call, rules)
    return Asked(account, flows.answer(account, partial(decoding.decoded, kind=Completion)))


def embeddings(call: Call, rules: Rules) -> Asked[Embeddings]:
    """Ask for embeddings."""
    account = Account(call, rules)
    return Asked(account, flows.answer(account, decoding.embeddings))


def models(call: Call, rules: Rules) -> Asked[Models]:
    """Ask for the models."""
    account = Account(call, rules)
    return Asked(account, flows.answer(account, partial(decoding.decoded, kind=Models)))


def document(call: Call, rules: Rules) -> Asked[dict[str, Any]]:
    """Ask for an answer as decoded JSON, an object."""
    account = Account(call, rules)
    decode = partial(msgspec.json.decode, type=dict[str, Any])
    return Asked(account, flows.answer(account, decode))


def chunks(
    call: Call,
    rules: Rules,
    kind: type[ChatChunk | Completion],
    *,
    raw: bool,
    skip_invalid: bool,
) -> Asked[Any]:
    """Ask for a stream of *kind*, or with *raw* of its JSON."""
    new_reader = partial(
        ChunkReader,
        kind,
        choices=call.choices,
        cap=rules.limits.line,
        raw=raw,
        skip_invalid=skip_invalid,
    )
    account = Account(call, rules)
    return Asked(account, flows.stream(account, new_reader))
