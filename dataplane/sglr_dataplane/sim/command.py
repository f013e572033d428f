"""``sglr sim-worker``: a simulated worker as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sglr_dataplane.sim.http_worker import HttpSimWorker
from sglr_dataplane.sim.recorder import Recorder
from sglr_dataplane.sim.script import Script, load_script, seconds
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import GRACE, SimWorker
from sglr_dataplane.vocab import TokenizerLoadError

if TYPE_CHECKING:
    import argparse

DEATH_EXIT_CODE = 86
"""What the process ends with when a request would have killed the real engine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``sim-worker``; the defaults are WorkerSettings'."""
    defaults = WorkerSettings()
    add = parser.add_argument
    add("--model-name", default=defaults.model_name, help="the served model's name")
    add(
        "--tokenizer",
        metavar="DIR",
        help="a directory with tokenizer.json; 'demo': the small one that comes with sglr",
    )
    add(
        "--protocol",
        choices=("grpc", "http"),
        default="grpc",
        help="http: OpenAI's API, as SGLang's own server and vLLM have it (default: %(default)s)",
    )
    add(
        "--flavour",
        choices=("sglang", "vllm"),
        default="sglang",
        help="with http: whose manners it has (default: %(default)s)",
    )
    add("--api-key", metavar="KEY", help="with http: what every request must show")
    add("--host", default=defaults.host, help="where to listen (default: %(default)s)")
    add("--port", type=int, default=0, help="0: the kernel chooses (default: %(default)s)")
    add("--script", type=Path, metavar="FILE", help="what to play, YAML or JSON")
    add("--ready-file", type=Path, metavar="FILE", help="gets the ready line when it listens")
    add("--journal", type=Path, metavar="FILE", help="gets a JSON line for everything seen")
    add("--context-length", type=int, default=defaults.context_length, metavar="TOKENS")
    add("--vocab-size", type=int, metavar="IDS", help="default: config.json's")
    add("--max-running-requests", type=int, default=defaults.max_running_requests, metavar="N")
    add("--max-queued-requests", type=int, metavar="N", help="default: any number")
    add("--token-delay", default="0s", metavar="DURATION", help="between messages, such as 20ms")
    add("--adapter", action="append", default=[], metavar="NAME", help="a LoRA adapter it lists")
    add("--kv-events", action="store_true", help="tell of the prefix cache (SubscribeKvEvents)")
    add("--page-size", type=int, default=defaults.page_size, metavar="TOKENS")
    add("--no-thinking", action="store_true", help="the model never opens a thought itself")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; return 0, or 2 with a message when it cannot start."""
    try:
        settings = _settings_of(args)
        script = Script() if args.script is None else load_script(args.script)
        with ExitStack() as files:
            worker = _worker(args, settings, script, files)
            asyncio.run(_serve(worker, args.ready_file))
    except (OSError, ValueError, TokenizerLoadError) as error:
        sys.stderr.write(f"sim-worker: {error}\n")
        return 2
    return 0


def _worker(
    args: argparse.Namespace, settings: WorkerSettings, script: Script, files: ExitStack
) -> SimWorker | HttpSimWorker:
    if args.protocol == "http":
        return HttpSimWorker(settings, script, flavour=args.flavour, api_key=args.api_key, die=_die)
    journal = None
    if args.journal is not None:
        journal = files.enter_context(args.journal.open("a", encoding="utf-8"))
    return SimWorker(settings, script, recorder=Recorder(journal), die=_die)


def _settings_of(args: argparse.Namespace) -> WorkerSettings:
    return WorkerSettings(
        model_name=args.model_name,
        tokenizer=_directory(args.tokenizer),
        host=args.host,
        port=args.port,
        context_length=args.context_length,
        vocab_size=args.vocab_size,
        max_running_requests=args.max_running_requests,
        max_queued_requests=args.max_queued_requests,
        kv_events=args.kv_events,
        page_size=args.page_size,
        token_delay=seconds(args.token_delay),
        adapters=tuple(args.adapter),
        thinks=not args.no_thinking,
    )


async def _serve(worker: SimWorker | HttpSimWorker, ready_file: Path | None) -> None:
    """Serve until a signal, then as long as the real worker lets its streams run."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with worker:
        line = json.dumps({"ready": True, "address": worker.address}) + "\n"
        if ready_file is not None:
            await asyncio.to_thread(_write_at_once, ready_file, line)
        sys.stdout.write(line)
        sys.stdout.flush()
        await stopped.wait()
        await worker.stop(GRACE)


def _write_at_once(path: Path, line: str) -> None:
    """Write *line* to *path* so that nobody reads half of it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(line, encoding="utf-8")
    beside.replace(path)


def _die(reason: str) -> None:
    """End the process as the engine's would, without a word to any client."""
    sys.stderr.write(f"sim-worker: the engine dies: {reason}\n")
    sys.stderr.flush()
    os._exit(DEATH_EXIT_CODE)


def _directory(name: str | None) -> Path | None:
    """Return the directory that ``--tokenizer`` names."""
    if name == "demo":
        return Path(__file__).parents[1] / "demo_model"
    return None if name is None else Path(name)
