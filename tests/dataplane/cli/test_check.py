"""``sglr check`` says what the router would make of a manifest, and whether it could serve it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglr_dataplane.cli import main
from sglr_dataplane.cli.check import as_text, checked
from support.router import manifest
from support.sim import sim_worker
from support.tokenizers import DEMO_MODEL, VERDICTS, a_directory, a_fallback_tokenizer

NOBODY = "127.0.0.1:9"


def written(folder: Path, **tokenizer: object) -> str:
    """Return the path of a manifest whose tokenizer is *tokenizer*."""
    document = yaml.safe_load(manifest(NOBODY))
    document["spec"]["tokenizer"] = tokenizer
    path = folder / "backends.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_report_names_all_that_was_chosen_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Source, kind, encoder, special tokens, the template's features, formats, and a sample."""
    file = written(tmp_path, path=str(DEMO_MODEL))

    status = main(["check", "-f", file, "--cache-dir", str(VERDICTS), "--json"])

    report = json.loads(capsys.readouterr().out)
    facts = report["facts"]
    assert (status, report["problems"]) == (0, [])
    assert (report["backend"], report["model"]) == ("default/backend", "m")
    assert facts["source"] == f"folder {DEMO_MODEL}"
    assert facts["encoder"].startswith("fastokens: equal to tokenizers on ")
    assert facts["special tokens"] == ["eos '<|im_end|>' (4098)", "pad '<|endoftext|>' (4096)"]
    assert facts["answers end with"] == ["'<|endoftext|>' (4096)", "'<|im_end|>' (4098)"]
    assert facts["template system"] == facts["template tools"] == "shown"
    assert facts["template toolResults"] == facts["template parallelCalls"] == "shown"
    assert facts["template thinking"] == ["enable_thinking"]
    assert facts["template content"] == "string"
    assert (facts["tool calls"], facts["thinking"]) == ("qwen", "qwen3")
    assert "<tool_call>" in facts["because"]
    assert facts["typed controls"] == "are text"
    assert report["sample"].startswith("<|im_start|>system\nBe brief")


def test_the_text_is_one_block_per_backend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What --json says, for people."""
    file = written(tmp_path, path=str(DEMO_MODEL), controlTokens="AsTokens")

    status = main(["check", "-f", file, "--cache-dir", str(VERDICTS)])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0] == "default/backend: model m"
    assert "  typed controls          are tokens" in lines
    assert "    | <|im_start|>system" in lines


@pytest.mark.parametrize(
    ("tokenizer", "problem"),
    [
        ({"path": "/nowhere"}, "The tokenizer's directory is not there."),
        (
            {"path": str(DEMO_MODEL), "chatTemplate": {"inline": "{% if %}"}},
            "The chat template of 'm' does not compile",
        ),
        ({}, "worker static/127.0.0.1:9: The worker cannot be reached."),
    ],
)
def test_a_backend_that_could_not_serve_is_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tokenizer: dict[str, Any], problem: str
) -> None:
    """With the sentence that the router would log."""
    file = written(tmp_path, **tokenizer)

    status = main(["check", "-f", file, "--cache-dir", str(VERDICTS)])

    out = capsys.readouterr().out
    assert status == 1
    assert problem in out


def test_what_cannot_be_loaded_is_named_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder and the template's file as the manifest has them, and what is wrong."""
    for tokenizer, place, problem in (
        ({"path": "/no/such"}, "folder /no/such", "The tokenizer's directory is not there."),
        (
            {"path": str(DEMO_MODEL), "chatTemplate": {"path": "/no/such.jinja"}},
            f"folder {DEMO_MODEL}, template in /no/such.jinja",
            "cannot be read: No such file",
        ),
    ):
        assert main(["check", "-f", written(tmp_path, **tokenizer)]) == 1
        out = capsys.readouterr().out
        assert place in out
        assert problem in out


def test_a_backend_of_http_workers_needs_no_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its workers make their prompts themselves: nothing is missing."""
    document = yaml.safe_load(manifest(NOBODY))
    del document["spec"]["tokenizer"]
    document["spec"]["workers"]["protocol"] = "HTTP"
    (tmp_path / "backends.yaml").write_text(yaml.safe_dump(document))

    assert main(["check", "-f", str(tmp_path / "backends.yaml")]) == 0
    assert "are made by the workers" in capsys.readouterr().out


def test_a_model_without_template_is_a_problem_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It serves completions, and no chat."""
    a_directory(tmp_path / "t", a_fallback_tokenizer("h", "i"), eos_token="<end>")
    file = written(tmp_path, path=str(tmp_path / "t"))

    status = main(["check", "-f", file, "--cache-dir", str(tmp_path)])

    assert status == 1
    assert "There is no chat template" in capsys.readouterr().out


def test_a_manifest_that_cannot_be_read_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on standard output; the sentence with the path on the other."""
    file = written(tmp_path, pth="x")

    status = main(["check", "-f", file])

    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert "spec.tokenizer.pth is unknown" in captured.err


async def test_workers_are_asked_for_their_tokenizers_and_compared(tmp_path: Path) -> None:
    """One that differs is named, and makes the check fail."""
    other = tmp_path / "other"
    await asyncio.to_thread(_copied, other)
    async with sim_worker(model_name="m") as one, sim_worker(tokenizer=other) as another:
        document = yaml.safe_load(manifest(one.address, another.address))
        del document["spec"]["tokenizer"]
        file = tmp_path / "backends.yaml"
        await asyncio.to_thread(file.write_text, yaml.safe_dump(document))
        (report,) = await checked(str(file), str(tmp_path / "cache"))

    assert report["facts"]["source"].startswith("a worker's (")
    (problem,) = report["problems"]
    assert "The worker's vocabulary differs" in problem
    assert "  problem                 worker static/" in as_text(report)


def _copied(to: Path) -> None:
    """Make *to* the demo model with another vocabulary file."""
    to.mkdir()
    for path in DEMO_MODEL.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    with (to / "tokenizer.json").open("a") as file:
        file.write("\n")
