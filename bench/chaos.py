# ruff: noqa: T201, S311, S101, PLR2004 -- a report prints, chaos draws lots, its numbers are its own
"""Ten minutes of chaos: six workers, two hundred clients, and everything that goes wrong at once.

python bench/chaos.py                       # ten minutes; exit 1 if anything is not as it must be
python bench/chaos.py --minutes 2 --seed 7
python bench/chaos.py --minutes 1 --sabotage twice   # drop, retry, fail: broken routers, must fail

Faults, one every two or three seconds, each for a while: a worker is killed and comes back, hangs
(SIGSTOP), stalls for a moment, its connections go half-open (a proxy that passes nothing on) or are
reset, it leaves the manifest and returns, the settings are changed. Two workers take fewer requests
than they are sent and answer that they are full, one starts slowly each time. A tenth of the
clients leave half-way.

No criterion is a rate that a slow machine would change. Each failure must have been forced by a
fault that hit the worker that the request ran on (chaos_audit.py), and every text is compared word
for word.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import yaml
from chaos_audit import Attempt, Fault, Verdict, add_unseen, judge, read_log
from chaos_parts import STORIES, Proxy, Tally, Worker, ask, resident

import sglr_dataplane

MODEL = Path(sglr_dataplane.__file__).parent / "demo_model"
SABOTEUR = Path(__file__).with_name("chaos_sabotage.py")
HARMLESS = {"stall", "scale", "reload"}
"""Faults that explain no failure: a pause below every timeout, and what no stream may notice."""
STALL = 2.0
"""Seconds of a pause from which on it is a hang: half of the time between two tokens (4 s)."""
WARM = 300.0
"""Seconds of a run that is long enough to say something about memory: buffers grow for minutes."""
FLAT = 1.05
"""Memory at the end, over what it was after three minutes (or a third of a shorter run)."""


class Chaos:
    """One run."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        """Keep everything in *folder*."""
        self.folder = folder
        self.given = given
        self.chance = random.Random(given.seed)
        self.workers: list[Worker] = []
        self.proxies: list[Proxy] = []
        self.listed: set[int] = set()
        self.tally = Tally()
        self.counted = Counter[str]()
        self.faults: list[Fault] = []
        self.attempts: dict[str, list[Attempt]] = {}
        self.memory: list[tuple[float, float]] = []
        self.port = 0
        self.router: asyncio.subprocess.Process | None = None
        self.reloads = 0

    async def run(self) -> bool:
        """Return whether everything was as it must be."""
        await self._start()
        assert self.router is not None
        began = time.monotonic()
        ends = began + self.given.minutes * 60
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self.given.clients):
                    group.create_task(self._client(number, ends))
                group.create_task(self._break_things(ends))
                group.create_task(self._weigh(began, ends))
            await self._heal()
            idle = await self._idle()
            return self._report(time.monotonic() - began, idle=idle)
        finally:
            self.router.terminate()
            await self.router.wait()
            for worker in self.workers:
                worker.go_on()
                await worker.kill()
            for proxy in self.proxies:
                await proxy.aclose()

    async def _start(self) -> None:
        for number in range(6):
            script = self.folder / f"worker-{number}.yaml"
            script.write_text(yaml.safe_dump(_script(number)))
            short = ["--max-running-requests", "12", "--max-queued-requests", "4"]
            arguments = ["--tokenizer", str(MODEL), "--model-name", "m", "--script", str(script)]
            worker = Worker(number, arguments + (short if number < 2 else []))
            await worker.start()
            proxy = Proxy(worker, self.attempts)
            await proxy.start()
            self.workers.append(worker)
            self.proxies.append(proxy)
        self.listed = set(range(6))
        self._write_manifest()
        program = (
            [str(SABOTEUR), self.given.sabotage]
            if self.given.sabotage
            else ["-m", "sglr_dataplane"]
        )
        serve = ["serve", "-f", str(self.folder / "backends.yaml"), "--port", "0"]
        with (self.folder / "router.log").open("wb") as log:
            self.router = await asyncio.create_subprocess_exec(
                *(sys.executable, *program, *serve, "--drain-settle", "0s"),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self.router.stdout is not None
        line = await asyncio.wait_for(self.router.stdout.readline(), 60)
        self.port = int(json.loads(line)["address"].rpartition(":")[2])
        await self._until(self._is_ready, 60)

    def _write_manifest(self) -> None:
        self.reloads += 1
        endpoints = [
            {"host": "127.0.0.1", "port": self.proxies[number].port}
            for number in sorted(self.listed)
        ]
        text = yaml.safe_dump(_manifest(endpoints, self.reloads))
        (self.folder / "next.yaml").write_text(text)
        (self.folder / "next.yaml").replace(self.folder / "backends.yaml")

    async def _client(self, number: int, ends: float) -> None:
        chance = random.Random(self.given.seed * 1000 + number)
        while time.monotonic() < ends:
            leave = chance.randint(1, 20) if chance.random() < 0.1 else None
            before = self.tally.complete
            await ask(self.port, chance.choice(sorted(STORIES)), self.tally, leave)
            # A client that was refused waits as Retry-After says; all wait a little.
            await asyncio.sleep(chance.random() * (0.5 if self.tally.complete > before else 1.5))

    async def _break_things(self, ends: float) -> None:
        kinds: list[Callable[[int], Awaitable[None]]] = [
            *(self._kill, self._kill, self._hang, self._stall, self._silence, self._cut),
            *(self._scale, self._reload),
        ]
        async with asyncio.TaskGroup() as group:
            busy: set[int] = set()
            while time.monotonic() < ends - 5:
                await asyncio.sleep(self.chance.uniform(1.5, 3.5))
                free = [number for number in range(6) if number not in busy]
                # Three at least stay as they are: chaos is not an outage.
                if len(free) > 3:
                    number, kind = self.chance.choice(free), self.chance.choice(kinds)
                    busy.add(number)
                    task = group.create_task(self._do(kind, number))
                    task.add_done_callback(lambda _, number=number: busy.discard(number))

    async def _do(self, kind: Callable[[int], Awaitable[None]], number: int) -> None:
        """Do it, and write down from when to when."""
        name = kind.__name__.strip("_")
        self.counted[name] += 1
        began = time.time()
        await kind(number)
        ended = time.time()
        if name not in HARMLESS or (name == "stall" and ended - began > STALL):
            self.faults.append(Fault(name, number, began, ended))

    async def _kill(self, number: int) -> None:
        await self.workers[number].kill()
        await asyncio.sleep(self.chance.uniform(0.5, 5))
        await self.workers[number].start()

    async def _hang(self, number: int) -> None:
        self.workers[number].stop()
        await asyncio.sleep(self.chance.uniform(0.5, 8))
        self.workers[number].go_on()

    async def _stall(self, number: int) -> None:
        self.workers[number].stop()
        await asyncio.sleep(self.chance.uniform(0.2, 1))
        self.workers[number].go_on()

    async def _silence(self, number: int) -> None:
        self.proxies[number].fall_silent()
        await asyncio.sleep(self.chance.uniform(1, 8))
        self.proxies[number].speak()

    async def _cut(self, number: int) -> None:
        self.proxies[number].cut()

    async def _scale(self, number: int) -> None:
        self.listed.discard(number)
        self._write_manifest()
        await asyncio.sleep(self.chance.uniform(1, 5))
        self.listed.add(number)
        self._write_manifest()

    async def _reload(self, _number: int) -> None:
        self._write_manifest()

    async def _heal(self) -> None:
        for proxy in self.proxies:
            proxy.speak()
        for worker in self.workers:
            worker.go_on()

    async def _weigh(self, began: float, ends: float) -> None:
        assert self.router is not None
        while time.monotonic() < ends:
            self.memory.append((time.monotonic() - began, resident(self.router.pid)))
            await asyncio.sleep(5)

    async def _is_ready(self) -> bool:
        return await asyncio.to_thread(_status, f"http://127.0.0.1:{self.port}/readyz") == 200

    async def _idle(self) -> dict[str, float]:
        """Return what is still counted as in flight when the clients are gone; {} is right."""

        async def nothing() -> bool:
            return not await asyncio.to_thread(_busy, self.port)

        await self._until(nothing, 30)
        return await asyncio.to_thread(_busy, self.port)

    @staticmethod
    async def _until(claim: Callable[[], Awaitable[bool]], seconds: float) -> None:
        for _ in range(int(seconds / 0.2)):
            if await claim():
                return
            await asyncio.sleep(0.2)

    def _growth(self, seconds: float) -> float:
        """Return the memory of the last tenth over that after three minutes, or a third."""
        start = min(180.0, seconds * 0.3)
        early = [rss for at, rss in self.memory if start <= at < start + seconds / 10]
        late = [rss for at, rss in self.memory if at >= seconds * 0.9]
        return (sum(late) / len(late)) / (sum(early) / len(early)) if early and late else 1.0

    def _report(self, seconds: float, *, idle: dict[str, float]) -> bool:
        tally, log = self.tally, (self.folder / "router.log").read_text()
        lines = log.splitlines()
        names = {f"static/127.0.0.1:{each.port}": n for n, each in enumerate(self.proxies)}
        add_unseen(self.attempts, lines, names)
        verdict = judge(read_log(lines), self.attempts, self.faults)
        claims = {
            "no client hung": tally.hung == 0,
            "no text wrong, twice or lost": not tally.wrong,
            "nothing in flight at the end": not idle,
            "no failure but those that a fault forced": not verdict.unforced,
            "the router counts the failures that its clients saw": _agree(verdict, tally),
            "no traceback in the router's log": "Traceback" not in log,
        }
        if seconds >= WARM:
            claims[f"memory flat (below {FLAT:.2f})"] = self._growth(seconds) < FLAT
        print(f"{seconds:.0f} s, seed {self.given.seed}, {self.given.clients} clients, 6 workers")
        print(f"done to workers: {dict(self.counted)}, manifests written: {self.reloads}")
        _print_clients(tally)
        _print_audit(verdict)
        last = self.memory[-1][1] if self.memory else 0.0
        print(f"memory: {self._growth(seconds):.3f} of what it was, last {last:.0f} MiB")
        print(f"  each half minute, in MiB: {[round(rss) for _, rss in self.memory[::6]]}")
        for claim, holds in claims.items():
            print(f"{'ok  ' if holds else 'FAIL'} {claim}")
        return all(claims.values())


def _agree(verdict: Verdict, tally: Tally) -> bool:
    """Return whether what was seen was counted; a client may leave while its answer fails."""
    seen = tally.before + tally.after
    unseen = verdict.failed.total() - seen.total()
    return seen <= verdict.failed and unseen <= tally.left


def _print_clients(tally: Tally) -> None:
    print(f"requests: {tally.requests}, complete: {tally.complete}, left by clients: {tally.left}")
    print(f"  failed before the first content: {dict(tally.before)}")
    print(f"  failed after it, each with an error frame: {dict(tally.after)}")
    print(f"longest request: {tally.longest:.1f} s, hung: {tally.hung}, wrong: {len(tally.wrong)}")
    for wrong in tally.wrong[:5]:
        print(f"  wrong: {wrong}")


def _print_audit(verdict: Verdict) -> None:
    failed = sum(verdict.failed.values())
    print(f"audit: a fault hit {verdict.hit} requests; {failed} failed, {verdict.saved} did not")
    print(f"  forced, by what hit the last attempt: {dict(verdict.forced)}")
    print(f"  not forced: {len(verdict.unforced)}")
    for sentence, count in Counter(verdict.unforced).most_common(12):
        print(f"    {count}: {sentence}")


def _script(number: int) -> dict[str, object]:
    rules = [
        {"when": {"user": story}, "play": {"text": text, "first_delay": "50ms", "delay": "20ms"}}
        # The longest name first: story-1 is a piece of story-10.
        for story, text in sorted(STORIES.items(), reverse=True)
    ]
    script: dict[str, object] = {"rules": rules, "queue_full": "unavailable"}
    return script | ({"warmup": "3s"} if number == 5 else {})


def _manifest(endpoints: list[dict[str, object]], version: int) -> dict[str, object]:
    return {
        "apiVersion": "sglr.dev/v1alpha1",
        "kind": "SGLangBackend",
        "metadata": {"name": "chaos"},
        "spec": {
            "model": {"name": "m"},
            "tokenizer": {"path": str(MODEL)},
            "workers": {"static": {"endpoints": endpoints}},
            # Full within the first minute: the default index has room for 30 MB, and would fill
            # all run long, which looks like a leak and is none.
            "routing": {"cacheAware": {"maxBlocks": 5_000}},
            "timeouts": {
                "connect": "1s",
                # Another value each time: every reload gives every worker a new client.
                "firstToken": f"{6000 + version % 7}ms",
                "streamIdle": "4s",
                # Neither may end before a machine that is busy otherwise has served the queue.
                "request": "300s",
            },
            "healthCheck": {"interval": "500ms", "timeout": "1s"},
            "outlierDetection": {"baseEjection": "1s", "maxEjection": "5s"},
            "retry": {"budgetPercent": 50},
            # More than two of the workers take: they say that they are full.
            "admission": {
                "maxInflightPerEndpoint": 24,
                "maxQueueDepth": 200,
                "maxQueueWait": "300s",
            },
        },
    }


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  # our own router
            return int(answer.status)
    except OSError as error:
        return int(getattr(error, "code", 0))


def _busy(port: int) -> dict[str, float]:
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:  # our own router
        lines = answer.read().decode().splitlines()
    names = ("sglr_requests_in_flight", "sglr_worker_in_flight", "sglr_queue_")
    values = (line.rpartition(" ")[::2] for line in lines if line.startswith(names))
    return {name: float(value) for name, value in values if float(value)}


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sabotage", choices=("twice", "drop", "retry", "fail"), help="a broken router"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sglr-chaos-") as folder:
        good = asyncio.run(Chaos(Path(folder), given).run())
    print("as it must be" if good else "NOT as it must be")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
