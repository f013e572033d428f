"""The README's commands for Kubernetes, so that they are run as they stand.

Usage: readme.py WORD...   run, in the current folder, those that begin with one of the words
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

_README: Final = Path(__file__).resolve().parent.parent / "README.md"
BUILD: Final = ".venv/bin/python"
LOAD: Final = ("kind", "ctr")
"""How the image gets to the nodes, by the kind of cluster: one of them is for this one."""


def commands() -> list[str]:
    """Return every command of the README's part about Kubernetes, in its order."""
    part = _README.read_text().split("\n## On Kubernetes\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```console\n(.*?)```", part, re.DOTALL)
    return [
        command.strip()
        for block in blocks
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]


def beginning(*words: str) -> list[str]:
    """Return the commands whose first word is one of *words*."""
    return [each for each in commands() if each.split()[0] in words]


def main() -> int:
    """Run the chosen commands; the status is that of the first that fails."""
    chosen = beginning(*sys.argv[1:])
    if not chosen:
        print(f"README.md has no command that begins with {sys.argv[1:]}", file=sys.stderr)
        return 2
    print("\n".join(f"$ {command}" for command in chosen), flush=True)
    return subprocess.run(["bash", "-ec", "\n".join(chosen)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
