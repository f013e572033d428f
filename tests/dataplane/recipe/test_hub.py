"""Tokenizers come from a hub on loopback; its settings are the environment's, as everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglr_dataplane.recipe.hub import downloaded
from sglr_dataplane.recipe.sources import named_folder
from sglr_dataplane.vocab import TokenizerLoadError
from sglr_proto.backend import HuggingFace, Tokenizer
from support.fleets import a_backend
from support.hub import COMMIT, running_hub
from support.tokenizers import DEMO_MODEL

pytestmark = pytest.mark.processes

NOBODY = "http://127.0.0.1:9"
FILES = {path.name: path.read_bytes() for path in DEMO_MODEL.iterdir()}
# The library reads its environment when it is imported: each case has a process of its own.
PROGRAM = """
import sys
from sglr_dataplane.recipe.hub import downloaded
from sglr_dataplane.vocab import TokenizerLoadError
for revision in sys.argv[2:]:
    try:
        path = downloaded(sys.argv[1], revision)
        print(path.name, *sorted(file.name for file in path.iterdir()))
    except TokenizerLoadError as error:
        print(error)
"""


def fetched(home: Path, repo: str, *revisions: str, **environment: str) -> list[str]:
    """Return a line for each revision: the commit and its files, or the sentence of the error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, repo, *revisions],
        env={**os.environ, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=18,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_only_what_a_router_reads_is_fetched_and_the_cache_outlives_the_hub(
    tmp_path: Path,
) -> None:
    """HF_ENDPOINT names the mirror, HF_HOME the cache; no weights; offline the cache answers."""
    with running_hub(FILES | {"model.safetensors": b"weights"}) as hub:
        online = fetched(tmp_path, "org/model", "main", "gone", HF_ENDPOINT=hub.url)
        asked = len(hub.asked)
        offline = fetched(tmp_path, "org/model", "main", HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
        assert len(hub.asked) == asked
    unreachable = fetched(tmp_path, "org/model", "main", HF_ENDPOINT=NOBODY)

    there = " ".join([COMMIT, *sorted(FILES)])
    assert online[0] == there
    assert online[1].endswith("'org/model' at 'gone' cannot be had from the Hugging Face hub: it "
                              "has no such revision.")  # fmt: skip
    assert offline == unreachable == [there]


@pytest.mark.parametrize(
    ("repo", "environment", "reason"),
    [
        ("org/none", {}, "there is none, or HF_TOKEN may not read it."),
        ("org/model", {"HF_ENDPOINT": NOBODY}, "the hub cannot be reached, and the cache does not"),
        ("org/model", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set, and the cache does not"),
    ],
)
def test_what_cannot_be_had_is_told_apart(
    tmp_path: Path, repo: str, environment: dict[str, str], reason: str
) -> None:
    """No such repository, no hub, or not allowed to ask: each has its sentence."""
    with running_hub(FILES) as hub:
        (line,) = fetched(tmp_path, repo, "main", **{"HF_ENDPOINT": hub.url} | environment)

    assert line.startswith(f"The tokenizer of {repo!r} at 'main' cannot be had")
    assert reason in line


def test_a_gated_repository_needs_the_right_token(tmp_path: Path) -> None:
    """HF_TOKEN is shown to the hub, and is in no sentence."""
    with running_hub(FILES, token="hf_right") as hub:
        (wrong,) = fetched(
            tmp_path / "a", "org/model", "main", HF_ENDPOINT=hub.url, HF_TOKEN="hf_wrong"
        )
        (right,) = fetched(
            tmp_path / "b", "org/model", "main", HF_ENDPOINT=hub.url, HF_TOKEN="hf_right"
        )

    assert wrong.endswith("it is gated; set HF_TOKEN to one that may read it.")
    assert right.startswith(COMMIT)


def test_without_the_library_it_says_which_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A router without the hub extra serves folders and workers' tokenizers all the same."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(TokenizerLoadError, match="install the 'hub' extra"):
        downloaded("org/model", "main")


def test_a_named_folder_is_told_as_the_manifest_tells_it(tmp_path: Path) -> None:
    """A path is taken as it is; a repository is looked for; workers' are not had this way."""
    backend = a_backend(tokenizer=Tokenizer(path=str(tmp_path)))

    folder = named_folder(backend)
    assert (folder.path, folder.source) == (tmp_path, f"folder {tmp_path}")
    with pytest.raises(TokenizerLoadError, match="from the workers"):
        named_folder(a_backend(tokenizer=Tokenizer()))


def test_a_repository_in_the_manifest_is_what_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Repository and revision go to the hub as they stand, and the commit is told."""
    asked: list[tuple[str, str]] = []

    def instead(repo: str, revision: str) -> Path:
        asked.append((repo, revision))
        return tmp_path / COMMIT

    monkeypatch.setattr("sglr_dataplane.recipe.sources.downloaded", instead)
    wanted = HuggingFace(repo="org/model", revision="v1")

    folder = named_folder(a_backend(tokenizer=Tokenizer(hugging_face=wanted)))
    assert asked == [("org/model", "v1")]
    assert folder.source == "Hugging Face org/model v1 (0123456789ab)"
