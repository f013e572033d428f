# ruff: noqa: S101 -- a measurement stops when it is set up wrongly
"""The pieces of a chaos run: workers that can be killed, proxies that can fall silent, clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from chaos_audit import Attempt

_WORDS = ("one", "two", "three", "four", "five", "six", "seven")
STORIES = {f"story-{n}": " ".join(f"{word}{n}" for word in _WORDS * 6) for n in range(12)}
"""What each client asks for, and what the workers say then: word for word."""
CLIENT_LIMIT = 330.0
"""Seconds after which a client is hung: far above every timeout of the manifest."""


@dataclass
class Worker:
    """A simulated worker in a process of its own, at one port for all its lives."""

    number: int
    arguments: list[str]
    port: int = 0
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it; returns when it listens."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sglr_dataplane", "sim-worker", "--port", str(self.port)),
            *self.arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 30)
        self.port = int(json.loads(line)["address"].rpartition(":")[2])

    async def kill(self) -> None:
        """End it as the kernel would."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def stop(self) -> None:
        """Let it hang: its connections stay, and nothing answers."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """End the hang."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)


JOB = re.compile(rb"\x0a\x20([0-9a-f]{32})\x12")
"""The beginning of a GenerateRequest: its id, and the tag of what comes next."""


class Proxy:
    """A TCP proxy before one worker; silent, it is a half-open connection."""

    def __init__(self, worker: Worker, attempts: dict[str, list[Attempt]]) -> None:
        """Stand before *worker*, and write down which jobs it is sent, and when."""
        self._worker = worker
        self._attempts = attempts
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loud = asyncio.Event()
        self._loud.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def fall_silent(self) -> None:
        """Pass nothing on, close nothing: no FIN, no RST."""
        self._loud.clear()

    def cut(self) -> None:
        """Reset every connection, to both sides."""
        for writer in self._writers:
            writer.transport.abort()

    def speak(self) -> None:
        """Pass everything on again."""
        self._loud.set()

    async def aclose(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._loud.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._worker.port)
        except OSError:
            writer.transport.abort()
            return
        finally:
            self._tasks.discard(task)
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, watch=True)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]
        self._tasks.update(pumps)
        self._writers.update((writer, far_writer))
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
                self._tasks.discard(pump)
            for each in (writer, far_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, watch: bool = False
    ) -> None:
        """Pass on what comes; what comes while silent is seen, and passed on later."""
        kept: asyncio.Queue[bytes] = asyncio.Queue()
        passing = asyncio.create_task(self._pass_on(kept, writer))
        last = b""
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    if watch:
                        last = self._note(last + data)
                    kept.put_nowait(data)
            kept.put_nowait(b"")
            await passing
        finally:
            passing.cancel()

    async def _pass_on(self, kept: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await kept.get():
                await self._loud.wait()
                writer.write(data)
                await writer.drain()

    def _note(self, data: bytes) -> bytes:
        """Write down the jobs that begin in *data*; return the end, where one may have begun."""
        done = 0
        for found in JOB.finditer(data):
            attempt = Attempt(self._worker.number, time.time())
            self._attempts.setdefault(found[1].decode(), []).append(attempt)
            done = found.end()
        return data[max(done, len(data) - _JOB_BYTES + 1) :]


_JOB_BYTES = 35


@dataclass
class Tally:
    """What the clients saw."""

    complete: int = 0
    left: int = 0
    """Streams that the client itself closed half-way."""
    before: Counter[str] = field(default_factory=Counter)
    """Failures before the first content, by code."""
    after: Counter[str] = field(default_factory=Counter)
    """Failures after it: an error frame each."""
    wrong: list[str] = field(default_factory=list)
    """Texts that are not what the worker said, and answers in no known shape."""
    hung: int = 0
    longest: float = 0.0

    @property
    def requests(self) -> int:
        """How many there were."""
        failed = sum(self.before.values()) + sum(self.after.values())
        return self.complete + self.left + failed + len(self.wrong) + self.hung


async def ask(port: int, story: str, tally: Tally, leave_after: int | None) -> None:
    """Stream *story* once and compare every word; *leave_after* closes after so many frames."""
    body = json.dumps(
        {"model": "m", "stream": True, "messages": [{"role": "user", "content": story}]}
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    began = time.monotonic()
    try:
        async with asyncio.timeout(CLIENT_LIMIT):
            await _ask(port, head + body, story, tally, leave_after)
    except TimeoutError:
        tally.hung += 1
    except OSError as error:
        tally.wrong.append(f"connection: {error}")
    tally.longest = max(tally.longest, time.monotonic() - began)


async def _ask(
    port: int, request: bytes, story: str, tally: Tally, leave_after: int | None
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if " 200 " not in head.split("\r\n", 1)[0]:
            answer = await reader.read()
            tally.before[_code(answer, head)] += 1
            return
        await _compare(reader, story, tally, leave_after)
    except asyncio.IncompleteReadError:
        tally.wrong.append("the connection was cut without a last frame")
    finally:
        writer.transport.abort()


async def _compare(
    reader: asyncio.StreamReader, story: str, tally: Tally, leave_after: int | None
) -> None:
    expected, text, frames, finished = STORIES[story], "", 0, False
    while True:
        line = await reader.readuntil(b"\n")
        if not line.startswith(b"data: "):
            continue
        payload = line[6:].strip()
        if payload == b"[DONE]":
            break
        frame = json.loads(payload)
        if "error" in frame:
            if not expected.startswith(text):
                tally.wrong.append(f"{story}: {text!r}")
            (tally.after if text else tally.before)[frame["error"]["code"]] += 1
            return
        for choice in frame["choices"]:
            text += choice["delta"].get("content") or ""
            finished = finished or choice["finish_reason"] is not None
        frames += 1
        if leave_after is not None and frames >= leave_after:
            tally.left += 1
            return
    if text == expected and finished:
        tally.complete += 1
    else:
        tally.wrong.append(f"{story}: {text!r}, finished={finished}")


def _code(answer: bytes, head: str) -> str:
    try:
        code: str = json.loads(answer[answer.index(b"{") : answer.rindex(b"}") + 1])["error"][
            "code"
        ]
    except (ValueError, KeyError):
        return head.split("\r\n", 1)[0]
    return code


def resident(pid: int) -> float:
    """Return the memory of *pid* in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
