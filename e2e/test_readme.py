"""A new user's first minutes: only what the README says, as it stands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess

import readme
from steps import ROOT

PRELUDE = """
trap 'kill $(jobs -p)' EXIT
helm() { command helm "$@" $SGLR_E2E_HELM_FLAGS; }
"""
"""The port-forward ends with the script; helm is told how old the API server is."""


def test_the_quick_start_ends_with_a_chat() -> None:
    """The README's commands, from the installation to the streamed answer that curl prints."""
    words = {command.split()[0] for command in readme.commands()}
    script = PRELUDE + "\n".join(readme.beginning(*words - {readme.BUILD, *readme.LOAD}))
    inside = shlex.split(os.environ.get("SGLR_E2E_INSIDE", ""))

    done = subprocess.run(
        [*inside, "bash", "-ec", script],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=400,
        env=os.environ | {"SGLR_E2E_HELM_FLAGS": os.environ.get("SGLR_E2E_HELM_FLAGS", "")},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    frames = [line[6:] for line in done.stdout.splitlines() if line.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    deltas = [json.loads(each)["choices"] for each in frames[:-1]]
    answer = "".join(choice["delta"].get("content") or "" for d in deltas for choice in d)
    assert "Are you there?" in answer
