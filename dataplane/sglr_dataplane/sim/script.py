"""What a simulated worker plays: the script file, and the same values as a Python API.

Decoding is validation: an unknown key, a wrong type or a bad duration is an error that names its
path. ``docs/sim-worker.md`` is the user's page of everything here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

Duration = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?(ms|s)$")]
"""A length of time with its unit, such as ``20ms`` or ``1.5s``."""

Count = Annotated[int, msgspec.Meta(ge=0)]

StatusCode = Literal[
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]

RpcName = Literal[
    "Generate",
    "Embed",
    "HealthCheck",
    "Abort",
    "GetModelInfo",
    "GetServerInfo",
    "GetLoads",
    "FlushCache",
    "StartProfile",
    "StopProfile",
    "GetTokenizer",
    "SubscribeKvEvents",
    "LoadLoRAAdapter",
    "UnloadLoRAAdapter",
    "ListLoadedLoRAAdapters",
    "Check",
    "Watch",
]
"""The worker's rpcs; the last two are grpc.health.v1's."""

CompleteStyle = Literal[
    "repeat_last", "all", "only", "last_only", "last_and_all", "empty", "missing"
]


class ScriptError(ValueError):
    """A script file does not say what a worker can play; the message names the path."""


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests a rule is for: every given condition must hold; none given holds always."""

    prompt: str | None = None
    """A piece of the decoded prompt."""
    user: str | None = None
    """A piece of the last user message."""
    rid: str | None = None
    """The whole request id."""
    request: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The n-th Generate call this worker received, from 1."""


class Status(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A gRPC status, with trailing metadata."""

    code: StatusCode
    message: str = ""
    trailers: dict[str, str] = {}


class Incident(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens instead of the next message; exactly one of the four kinds."""

    after: Count | Literal["complete"] = 0
    """How many chunks are sent before; ``complete``: when everything was said."""
    status: Status | None = None
    """End the stream with this status."""
    die: Literal["exit", "reset"] | None = None
    """``exit``: the process ends. ``reset``: the connection is reset, the process stays."""
    hang: bool = False
    """Say nothing more, for ever."""
    serving: bool | None = None
    """Set the health of both service names; the stream goes on."""

    def __post_init__(self) -> None:
        """Refuse an incident of no kind, or of two."""
        kinds = (self.status is not None, self.die is not None, self.hang, self.serving is not None)
        if sum(kinds) != 1:
            raise ValueError("An incident needs exactly one of 'status', 'die', 'hang', 'serving'.")


class Play(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer. Without ``text``, ``pieces``, ``ids`` or ``chunks`` the assistant answers."""

    text: str | None = None
    """What is generated; EOS follows, and the request's limits and stops end it, as in an engine."""
    pieces: tuple[str, ...] | None = None
    """As *text*, each piece encoded alone and sent as one chunk."""
    ids: tuple[Count, ...] | None = None
    """Exact token ids: nothing is added, no limit or stop of the request is applied."""
    chunks: tuple[tuple[Count, ...], ...] | None = None
    """As *ids*, one chunk each."""
    obey: bool | None = None
    """Whether the request's limits and stops apply; None: yes for words, no for ids."""
    eos: bool | None = None
    """Whether EOS follows; None: yes for words, no for ids."""

    chunk_size: Count | None = None
    """Tokens of one chunk; 0: all in one; None: the request's ``stream_interval``, else 1. Not for
    *pieces* and *chunks*."""
    first_delay: Duration = "0s"
    """Pause before the first message."""
    delay: Duration | None = None
    """Pause before each later message; None: the worker's own token delay."""
    delays: tuple[Duration, ...] = ()
    """Pauses before the first messages, one each; the rest follow *delay*."""

    complete: CompleteStyle = "repeat_last"
    """What the last message holds; the default is the real worker's way."""
    cumulative: bool = False
    """Each chunk repeats everything said before, as some engines in the field do."""
    count_offset: int = 0
    """Added to ``completion_tokens`` of every message, to make counters that fit nothing."""
    finish: Literal["stop", "length", "abort", ""] | None = None
    """The finish reason of ``complete``; None: what ended the generation."""
    matched: Count | str | None = None
    """``matched_stop`` of ``complete``; None: what ended the generation."""
    incidents: tuple[Incident, ...] = ()

    def __post_init__(self) -> None:
        """Refuse two contents for one answer."""
        contents = (self.text, self.pieces, self.ids, self.chunks)
        if sum(content is not None for content in contents) > 1:
            raise ValueError("Only one of 'text', 'pieces', 'ids' and 'chunks' may be given.")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer and the requests it is for."""

    play: Play | tuple[Play, ...]
    """A list is for ``n > 1``: choice *i* plays entry *i*, counted round."""
    when: When = When()
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """How many requests it answers before the next rule gets its chance; None: all."""


class HealthChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of health at a time."""

    after: Duration
    """Since the worker listens."""
    serving: bool
    service: Literal["", "sglang.grpc.scheduler.SglangScheduler"] | None = None
    """None: both."""


class RpcFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wrong with one rpc."""

    delay: Duration = "0s"
    status: Status | None = None
    """None: it answers as always, after *delay*."""
    hang: bool = False
    """Never answers."""


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything one worker plays; the empty script is a healthy worker with a small assistant."""

    rules: tuple[Rule, ...] = ()
    """The first that matches answers; without a match the assistant does."""
    warmup: Duration = "0s"
    """How long health says NOT_SERVING at first, while Generate is served already."""
    health: tuple[HealthChange, ...] = ()
    queue_full: Literal["hang", "unavailable"] = "hang"
    """``hang`` is the real worker's way: it loses the scheduler's refusal, the stream stays open."""
    model_info: dict[str, Any] = {}
    """Fields of GetModelInfoResponse, by their proto names."""
    server_args: dict[str, Any] = {}
    """Entries of GetServerInfoResponse.server_args; null is kept as null."""
    rpcs: dict[RpcName, RpcFault] = {}
    """What is wrong with rpcs, by name."""


def seconds(duration: str) -> float:
    """Return *duration*, such as ``20ms`` or ``1.5s``, in seconds.

    Raises:
        ScriptError: It is no number with a unit.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s)", duration)
    if found is None:
        raise ScriptError(f"Duration {duration!r} is not a number with 'ms' or 's'.")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def parse_script(text: str) -> Script:
    """Return the script that YAML (or JSON) *text* describes; empty text is the empty script.

    Raises:
        ScriptError: It is not YAML, or a value is not what its place takes; the path is named.
    """
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScriptError(f"The script is not YAML: {error}") from error
    try:
        return msgspec.convert({} if loaded is None else loaded, Script)
    except msgspec.ValidationError as error:
        raise ScriptError(f"The script is wrong: {error}") from error


def load_script(path: Path) -> Script:
    """Return the script in the file at *path*; raises ScriptError naming the file."""
    try:
        return parse_script(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ScriptError) as error:
        raise ScriptError(f"{path}: {error}") from error
