"""``sglr check``: what the router would make of each backend of a manifest, without serving."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from sglr_dataplane.cli.serve import default_cache_dir
from sglr_dataplane.config import RouterConfig
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.errors import RouterError
from sglr_dataplane.fleet.manifest_file import ManifestFile
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.settings import settings_of
from sglr_dataplane.prompt.features import features_of, sample_of
from sglr_dataplane.prompt.features import named as named_features
from sglr_dataplane.prompt.json_values import is_array
from sglr_dataplane.recipe import Recipe, Recipes
from sglr_dataplane.recipe.sources import named_source
from sglr_proto.backend import ManifestError, Protocol

if TYPE_CHECKING:
    import argparse

    from sglr_dataplane.engine import Engine
    from sglr_proto.backend import SGLangBackend
    from sglr_proto.snapshot import Endpoint

_UNUSABLE: Final = 1
_USAGE_ERROR: Final = 2
_WIDTH: Final = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``sglr check`` takes."""
    parser.add_argument(
        "-f", "--file", required=True, metavar="FILE", help="SGLangBackend documents (YAML)"
    )
    parser.add_argument(
        "--cache-dir", default=default_cache_dir(), metavar="DIR",
        help="where comparisons of encoders and workers' tokenizers are kept (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object per backend")


def run(arguments: argparse.Namespace) -> int:
    """Print a report for each backend.

    Returns:
        0; 1 when a backend could not serve, 2 when the manifest cannot be read.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # as the router does
    logging.getLogger("sglr_dataplane").setLevel(logging.ERROR)  # the report has it all
    try:
        reports = asyncio.run(checked(arguments.file, arguments.cache_dir))
    except ManifestError as error:
        print(f"sglr check: {error}", file=sys.stderr)
        return _USAGE_ERROR
    for report in reports:
        print(json.dumps(report, ensure_ascii=False) if arguments.json else as_text(report))
    return _UNUSABLE if any(report["problems"] for report in reports) else 0


async def checked(manifest: str, cache_dir: str | None) -> list[dict[str, Any]]:
    """Return a report for each backend of the file *manifest*, in order.

    Raises:
        ManifestError: It cannot be read.
    """
    snapshot = await asyncio.to_thread(ManifestFile(manifest).load)
    limit = RouterConfig().limits.max_prompt_chars
    recipes = Recipes(cache_dir, max_prompt_chars=limit)
    registry = Registry(_engine)
    recipes.apply(snapshot)
    registry.apply(snapshot)
    try:
        reports = [await _report(each.backend, recipes, registry) for each in snapshot.backends]
    finally:
        await registry.aclose()
        recipes.close()
    return reports


def as_text(report: dict[str, Any]) -> str:
    """Return *report* for people."""
    lines = [f"{report['backend']}: model {report['model']}"]
    lines += [f"  {name:{_WIDTH}}{_words(value)}" for name, value in report["facts"].items()]
    lines += [f"  {'problem':{_WIDTH}}{problem}" for problem in report["problems"]]
    if report["sample"] is not None:
        lines.append("  sample")
        lines += [f"    | {line}" for line in report["sample"].split("\n")]
    return "\n".join([*lines, ""])


async def _report(backend: SGLangBackend, recipes: Recipes, registry: Registry) -> dict[str, Any]:
    problems: list[str] = []
    named: dict[str, Any] = {"backend": backend.key, "model": backend.spec.model.name}
    if backend.spec.workers.protocol is Protocol.HTTP:
        facts = {"prompts": "are made by the workers, which are spoken to over HTTP"}
        return named | {"facts": facts, "problems": problems, "sample": None}
    for worker in registry.workers(backend.key):
        try:
            problem = await recipes.inspect(worker, True)
        except RouterError as error:
            problem = str(error)
        if problem is not None:
            problems.append(f"worker {worker.id}: {problem}")
    recipe = await recipes.load(backend.key)
    if recipe is None:
        problems.append(recipes.problem(backend.key) or "")
    elif recipe.template.text is None:
        problems.append("There is no chat template: only /v1/completions can be served.")
    return named | {
        "facts": {"source": named_source(backend)} if recipe is None else _facts(recipe),
        "problems": problems,
        "sample": None if recipe is None else sample_of(recipe.template),
    }


def _facts(recipe: Recipe) -> dict[str, Any]:
    tokenizer, vocabulary = recipe.tokenizer, recipe.vocabulary
    return {
        "source": recipe.source,
        "family": recipe.family,
        "vocabulary": f"{vocabulary.size} ids, {len(vocabulary.added)} added tokens, "
        f"{vocabulary.digest[:12]}",
        "encoder": f"{tokenizer.encoder_name}: {tokenizer.encoder_reason}",
        "special tokens": [
            f"{name.removesuffix('_token')} {text!r} ({_id_of(recipe, text)})"
            for name, text in tokenizer.special_tokens.items()
        ],
        "answers end with": [
            f"{vocabulary.added.get(token_id, '?')!r} ({token_id})"
            for token_id in sorted(recipe.ends)
        ],
        **{
            f"template {name}": value
            for name, value in named_features(features_of(recipe.template)).items()
        },
        "tool calls": recipe.tool_format.name if recipe.tool_format else "not recognised",
        "thinking": recipe.reasoning_format.name if recipe.reasoning_format else "not recognised",
        "because": recipe.formats_reason,
        "typed controls": "are text" if recipe.typed_controls_are_text else "are tokens",
    }


def _id_of(recipe: Recipe, text: str) -> str:
    token_id = recipe.vocabulary.id_of(text)
    return "no added token" if token_id is None else str(token_id)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_array(value):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _engine(endpoint: Endpoint, backend: SGLangBackend) -> Engine:
    return lean_engine(endpoint.address, deadlines=settings_of(backend.spec).deadlines)
