"""The committed demo tokenizer is what its script trains."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from support.tokenizers import DEMO_MODEL, ROOT


def checked(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the script's check in the checkout *root*."""
    command = [sys.executable, str(root / "scripts" / "train_demo_tokenizer.py"), "--check"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )  # our script


def test_training_again_gives_the_same_bytes() -> None:
    """Anyone can make the file, and see that nothing else is in it."""
    outcome = checked(ROOT)

    assert (outcome.returncode, outcome.stdout) == (0, "")


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    """One byte in one file of a copy is enough."""
    copy = tmp_path / DEMO_MODEL.relative_to(ROOT)
    shutil.copytree(DEMO_MODEL, copy)
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/train_demo_tokenizer.py", "scripts/demo_corpus.txt", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    (copy / "config.json").write_bytes((copy / "config.json").read_bytes() + b"\n")

    outcome = checked(tmp_path)
    assert outcome.returncode == 1
    assert outcome.stdout.startswith("Stale in ")
    assert "config.json" in outcome.stdout
    assert "tokenizer.json" not in outcome.stdout
