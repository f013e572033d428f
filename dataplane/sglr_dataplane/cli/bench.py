"""``sglr bench URL``: how fast an OpenAI endpoint answers under a load, as a table and a plot."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from sglr_dataplane.cli.bench_figures import Figures, Record, figures, rendered, table
from sglr_dataplane.cli.bench_load import EndpointError, Load, only_model, prompts
from sglr_dataplane.cli.bench_load import run as run_load
from sglr_dataplane.cli.bench_plot import panels, svg
from sglr_dataplane.prompt.encoder import ReferenceEncoder
from sglr_dataplane.vocab import TokenizerLoadError
from sglr_dataplane.vocab.sources import tokenizer_json

_BAR: Final = 30
"""Characters of the progress bar."""
_REASONS_TOLD: Final = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``sglr bench`` takes."""
    default = Load("", "")
    parser.add_argument("url", metavar="URL", help="the endpoint, with or without /v1")
    parser.add_argument("--model", help="the model to ask for (the only one that is served)")
    for flag, number, help_text in (
        ("--requests", default.requests, "how many"),
        ("--concurrency", default.concurrency, "in flight at most"),
        ("--input-tokens", 505, "of each prompt, about; exactly with --tokenizer"),
        ("--output-tokens", default.output_tokens, "of each answer at most"),
    ):
        parser.add_argument(
            flag, type=_count, default=number, metavar="N", help=f"{help_text} (%(default)s)"
        )
    parser.add_argument(
        "--warm-up", type=_count_or_none, default=default.warm_up, metavar="N",
        help="requests that are sent before and not counted (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=_rate, metavar="R",
        help="requests a second, at random (Poisson) times; without it as fast as answers come",
    )  # fmt: skip
    parser.add_argument(
        "--ignore-eos", action="store_true",
        help="ask the server for answers of full length; SGLang and vLLM know how",
    )  # fmt: skip
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIR",
        help="the model's: makes prompts exact and counts the answers' tokens again",
    )  # fmt: skip
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", help="holds the API key (else OPENAI_API_KEY)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and every request")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the distributions")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; status 1 when a request failed, 2 when nothing could be measured."""
    try:
        count_tokens = _tokens_of(arguments.tokenizer)
        for place in (arguments.json, arguments.plot):
            _check_folder(place)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            load, records = runner.run(_measured(arguments, count_tokens))
    except (EndpointError, TokenizerLoadError, OSError) as error:
        print(f"sglr bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    found = figures(records, count_tokens)
    print(rendered(table([(load.model, found)])))
    _write(arguments, load, found, records)
    return _tell_failures(records)


async def _measured(
    arguments: argparse.Namespace, count_tokens: Callable[[str], int] | None
) -> tuple[Load, list[Record]]:
    url = endpoint(arguments.url)
    key = _key(arguments.key_file)
    load = Load(
        url=url,
        model=arguments.model or await only_model(url, key),
        key=key,
        requests=arguments.requests,
        rate=arguments.rate,
        concurrency=arguments.concurrency,
        output_tokens=arguments.output_tokens,
        ignore_eos=arguments.ignore_eos,
        warm_up=arguments.warm_up,
    )
    texts = prompts(min(load.requests, 1000), arguments.input_tokens, count_tokens)
    bar = Bar(load.requests)
    try:
        return load, await run_load(load, texts, bar.advance)
    finally:
        bar.close()


class Bar:
    """How far the run is, on one line of a terminal; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        """Show nothing yet."""
        self._total = total
        self._ended = self._failed = 0

    def advance(self, record: Record) -> None:
        """Count *record*."""
        self._ended += 1
        self._failed += record.error is not None
        if sys.stderr.isatty():
            print(f"\r{self}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the line to what follows."""
        if sys.stderr.isatty() and self._ended:
            print(file=sys.stderr)

    def __str__(self) -> str:
        """Return the line."""
        full = self._ended * _BAR // self._total
        failed = f", {self._failed} failed" if self._failed else ""
        return f"[{'#' * full}{' ' * (_BAR - full)}] {self._ended}/{self._total}{failed}"


def endpoint(url: str) -> str:
    """Return *url* with the ``/v1`` that every path of the API begins with.

    Raises:
        EndpointError: It is no http or https URL.
    """
    if not url.startswith(("http://", "https://")):
        raise EndpointError(f"{url!r} is no http or https URL.")
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def _check_folder(place: Path | None) -> None:
    """Refuse a *place* that could not be written to, before anything is measured."""
    if place is not None and not place.absolute().parent.is_dir():
        raise EndpointError(f"There is no folder for {str(place)!r}.")


def _write(
    arguments: argparse.Namespace, load: Load, found: Figures, records: list[Record]
) -> None:
    if arguments.json is not None:
        asked = {name: getattr(load, name) for name in load.__slots__ if name != "key"}
        times = [msgspec.structs.replace(record, text="") for record in records]
        content = {"load": asked, "figures": found, "requests": times}
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    if arguments.plot is not None:
        title = f"{load.model}: {load.requests} requests, {load.concurrency} at once"
        arguments.plot.write_text(svg(title, panels({load.model: records})))


def _tell_failures(records: list[Record]) -> int:
    reasons = [record.error for record in records if record.error is not None]
    for reason in list(dict.fromkeys(reasons))[:_REASONS_TOLD]:
        print(f"sglr bench: {reasons.count(reason)} failed: {reason}", file=sys.stderr)
    return 1 if reasons else 0


def _tokens_of(folder: Path | None) -> Callable[[str], int] | None:
    if folder is None:
        return None
    encoder = ReferenceEncoder(tokenizer_json(folder))
    return lambda text: len(encoder.encode(text))


def _key(place: Path | None) -> str | None:
    if place is not None:
        return place.read_text(encoding="utf-8").strip()
    return os.environ.get("OPENAI_API_KEY") or None


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number from 1, not {text!r}")


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if 0 < rate < 1e6:  # noqa: PLR2004  # infinity and nonsense are none
        return rate
    raise argparse.ArgumentTypeError(f"expected requests a second, not {text!r}")
