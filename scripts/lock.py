"""Write the lock files from pyproject.toml, or check that they are fresh.

``requirements.lock`` is what a user runs, ``requirements-dev.lock`` what tests and checks need; both
hold versions and hashes and no download address. The first keeps to the versions of the second.

Usage: lock.py [--check] [--upgrade]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEV, RUN = "requirements-dev.lock", "requirements.lock"
COMPILE = (
    "pip", "compile", "--quiet", "--universal", "--python-version", "3.11",
    "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-header",
    "--no-annotate",
)  # fmt: skip


def compile_locks(folder: Path, *, upgrade: bool) -> None:
    """Write both lock files into *folder*; what stands there already is kept where it still fits."""
    uv = Path(sys.executable).with_name("uv")
    extra = ["--upgrade"] if upgrade else []
    project = str(ROOT / "pyproject.toml")
    for arguments in (
        ["--extra", "dev", "--output-file", DEV, *extra],
        ["--extra", "operator", "--extra", "dataplane", "--extra", "tracing", "--extra", "build",
         "--constraint", DEV, "--output-file", RUN],
    ):  # fmt: skip
        subprocess.run([uv, *COMPILE, project, *arguments], cwd=folder, check=True)  # our own uv


def stale_locks() -> list[str]:
    """Return a sentence for each lock file that does not follow from pyproject.toml."""
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for lock in (DEV, RUN):
            shutil.copy(ROOT / lock, folder / lock)
        compile_locks(folder, upgrade=False)
        for lock in (DEV, RUN):
            committed = (ROOT / lock).read_text()
            if committed != (folder / lock).read_text():
                problems.append(f"{lock} does not follow from pyproject.toml; run `make lock`.")
            if "://" in committed:
                problems.append(f"{lock} holds a download address.")
    return problems


def main() -> int:
    """Write or check; exit status 1 when a lock file is stale."""
    parser = argparse.ArgumentParser(description="Write or check the lock files.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    arguments = parser.parse_args()
    if not arguments.check:
        compile_locks(ROOT, upgrade=arguments.upgrade)
        return 0
    problems = stale_locks()
    print("\n".join(problems) if problems else "lock files are fresh")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
