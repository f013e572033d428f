"""A simulated worker of OpenAI's HTTP API: SGLang's own server, or vLLM, without a model."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self

from sglr_dataplane.sim import http_messages as messages
from sglr_dataplane.sim.http_server import HttpServer, Reply, Request
from sglr_dataplane.sim.script import Incident, Play, Rule, Script, Status, seconds
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.shapes import object_of

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE: Final = 5.0
"""Seconds running answers get after SIGTERM."""
_GENERATING: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/generate"})
_STATUSES: Final = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""HTTP's statuses for a script's; all others are 500."""
_DONE: Final = b"data: [DONE]\n\n"


class HttpSimWorker:
    """A worker that listens while its context is entered; plays the same scripts as the gRPC one."""

    def __init__(
        self,
        settings: WorkerSettings | None = None,
        script: Script | None = None,
        *,
        flavour: messages.Flavour = "sglang",
        api_key: str | None = None,
        die: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare; nothing listens yet.

        Args:
            settings: The worker: its name, its window, its place; the rest is a gRPC worker's.
            script: What it plays; None: it repeats what it is told.
            flavour: Whose manners it has.
            api_key: What every request must show; None: nothing.
            die: Called with the reason when the process would end; None: it stops answering.
        """
        self.settings = settings or WorkerSettings()
        self.script = script or Script()
        self.flavour: messages.Flavour = flavour
        self.requests: list[Request] = []
        """What came, probes included, in order."""
        self._api_key = api_key
        self._die = die or self._stop_answering
        self._answered = [0] * len(self.script.rules)
        self._count = itertools.count(1)
        self._is_dead = False
        self._ready_at = 0.0
        self._server = HttpServer(self._answer, self.settings.host, self.settings.port)

    def __repr__(self) -> str:
        return f"HttpSimWorker({self.settings.model_name!r} at {self.address}, {self.flavour})"

    @property
    def address(self) -> str:
        """``host:port``; the port is 0 until it listens."""
        return self._server.address

    async def __aenter__(self) -> Self:
        """Listen; raises OSError when the port is taken."""
        self._ready_at = asyncio.get_running_loop().time() + seconds(self.script.warmup)
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop at once."""
        await self.stop(0)

    async def stop(self, grace: float = GRACE) -> None:
        """Take no more connections; running answers have *grace* seconds."""
        await self._server.stop(grace)

    def _stop_answering(self, _reason: str) -> None:
        self._is_dead = True

    # --- answering ------------------------------------------------------------------------------

    async def _answer(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        if self._is_dead:
            reply.reset()
        if self._api_key and request.headers.get("authorization") != f"Bearer {self._api_key}":
            await reply.whole(messages.error(self.flavour, 401, "Unauthorized"), 401)
        elif request.method == "GET":
            await self._tell_facts(request.path, reply)
        elif request.path in self._served:
            await self._generate(request, reply)
        else:
            await reply.whole(b'{"detail":"Not Found"}', HTTPStatus.NOT_FOUND)

    @property
    def _served(self) -> frozenset[str]:
        return _GENERATING if self.flavour == "sglang" else _GENERATING - {"/generate"}

    async def _tell_facts(self, path: str, reply: Reply) -> None:
        settings = self.settings
        if path == "/health":
            is_up = asyncio.get_running_loop().time() >= self._ready_at
            await reply.whole(b"", 200 if is_up else 503)
        elif path == "/v1/models":
            name, length = settings.model_name, settings.context_length
            await reply.whole(messages.models(self.flavour, name, length))
        elif path in {"/server_info", "/get_server_info"} and self.flavour == "sglang":
            room = settings.max_running_requests
            await reply.whole(b'{"version":"0.5.23","max_running_requests":%d}' % room)
        elif path == "/version" and self.flavour == "vllm":
            await reply.whole(b'{"version":"0.11.0"}')
        else:
            await reply.whole(b'{"detail":"Not Found"}', HTTPStatus.NOT_FOUND)

    async def _generate(self, request: Request, reply: Reply) -> None:
        body = request.body()
        if body is None:
            await reply.whole(messages.error(self.flavour, 400, "The body is no JSON object."), 400)
            return
        play = self._play(body)
        answer = self._told(request.path, body, play)
        room = self.settings.context_length
        if answer.prompt_tokens >= room:
            sentence = (
                f"This model's maximum context length is {room} tokens. However, you requested "
                f"{answer.prompt_tokens} tokens."
            )
            await reply.whole(messages.error(self.flavour, 400, sentence), 400)
            return
        await asyncio.sleep(seconds(play.first_delay))
        if body.get("stream"):
            await self._stream(request.path, body, play, answer, reply)
        else:
            await self._say(request.path, play, answer, reply)

    async def _say(self, path: str, play: Play, answer: messages.Answer, reply: Reply) -> None:
        for incident in play.incidents:
            if await self._strikes_at_once(incident, reply):
                return
        await asyncio.sleep(self._pause(play) * len(answer.words))
        await reply.whole(messages.whole(path, answer))

    async def _stream(
        self, path: str, body: dict[str, Any], play: Play, answer: messages.Answer, reply: Reply
    ) -> None:
        due = {each.after: each for each in play.incidents}
        if (first := due.get(0)) is not None and await self._strikes_at_once(first, reply):
            return
        options = object_of(body.get("stream_options"))
        reply.begin_events()
        events = messages.events(path, answer, with_usage=bool(options.get("include_usage")))
        for event in events.opening:
            await reply.event(event)
        for count, event in enumerate(events.words):
            if count and (each := due.get(count)) and await self._strikes(each, reply):
                return
            await reply.event(event)
            await asyncio.sleep(self._pause(play))
        for after in (len(events.words), "complete"):
            if (each := due.get(after)) and await self._strikes(each, reply):
                return
        for event in (*events.closing, _DONE):
            await reply.event(event)
        await reply.end_events()

    async def _strikes_at_once(self, incident: Incident, reply: Reply) -> bool:
        """Let *incident* happen before anything was said; return whether that was the answer."""
        if incident.status is None:
            return await self._strikes(incident, reply)
        status = _STATUSES.get(incident.status.code, 500)
        told = messages.error(self.flavour, status, incident.status.message)
        await reply.whole(told, status, dict(incident.status.trailers))
        return True

    async def _strikes(self, incident: Incident, reply: Reply) -> bool:
        """Let *incident* happen within a stream; return whether that ended it."""
        if incident.hang:
            await asyncio.Event().wait()
        if incident.die == "exit":
            self._die("a script said so")
            reply.reset()
        if incident.die == "reset":
            reply.reset()
        if incident.status is not None:
            await self._fail(incident.status, reply)
        return incident.status is not None

    async def _fail(self, status: Status, reply: Reply) -> None:
        await reply.event(messages.error_event(status.message, _STATUSES.get(status.code, 500)))
        await reply.event(_DONE)
        await reply.end_events()

    # --- what is said ---------------------------------------------------------------------------

    def _pause(self, play: Play) -> float:
        return self.settings.token_delay if play.delay is None else seconds(play.delay)

    def _play(self, body: dict[str, Any]) -> Play:
        """Return what the first rule that matches plays, and count it."""
        number = next(self._count)
        for position, rule in enumerate(self.script.rules):
            is_free = rule.times is None or self._answered[position] < rule.times
            if is_free and _matches(rule, body, number):
                self._answered[position] += 1
                return rule.play if isinstance(rule.play, Play) else rule.play[0]
        return Play()

    def _told(self, path: str, body: dict[str, Any], play: Play) -> messages.Answer:
        text = play.text if play.text is not None else "".join(play.pieces or ())
        if not text:
            text = f"You said: {messages.last_words(body)}\nWhat else?"
        words = play.pieces or messages.words_of(text)
        most = _most_tokens(path, body)
        finish = play.finish or ("stop" if most is None or len(words) <= most else "length")
        return messages.Answer(
            id=f"chatcmpl-{secrets.token_hex(8)}",
            model=str(body.get("model") or self.settings.model_name),
            words=tuple(words[:most]),
            prompt_tokens=len(messages.prompt_of(body).split()) or 1,
            finish=finish,
        )


def _most_tokens(path: str, body: dict[str, Any]) -> int | None:
    fields = object_of(body.get("sampling_params")) if path == "/generate" else body
    for name in ("max_new_tokens", "max_completion_tokens", "max_tokens"):
        most = fields.get(name)
        if isinstance(most, int) and most > 0:
            return most
    return None


def _matches(rule: Rule, body: dict[str, Any], number: int) -> bool:
    when = rule.when
    return (
        (when.request is None or when.request == number)
        and (when.rid is None or when.rid == body.get("rid"))
        and (when.prompt is None or when.prompt in messages.prompt_of(body))
        and (when.user is None or when.user in messages.last_words(body))
    )
