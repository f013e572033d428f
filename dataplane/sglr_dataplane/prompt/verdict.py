"""Whether the fast encoder may serve a tokenizer: seen, not believed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import msgspec

_PROBE = "probe-2"
"""Changes when the comparison does, or what is called of a library: older verdicts are void."""
PROBE_SECONDS = 120
"""How long a comparison may take; the largest vocabularies need 10 s of an idle CPU."""


class Verdict(msgspec.Struct, frozen=True):
    """Whether the fast encoder may serve a tokenizer."""

    admitted: bool
    reason: str
    """One clause for logs and ``sglr check``."""


def verdict_on(source: bytes, digest: str, cache: Path) -> Verdict:
    """Return whether fastokens gives the ids that tokenizers gives for *source*.

    A throw-away process compares them (a few seconds), because loading both leaves hundreds of
    megabytes behind, and encoding starts threads that do not survive a fork. The verdict is kept
    until the tokenizer or one of the libraries changes.

    Args:
        source: A tokenizer.json to compare on.
        digest: Its SHA-256.
        cache: A directory, made when needed; one that cannot be written costs time, nothing else.
    """
    if importlib.util.find_spec("fastokens") is None:
        return Verdict(admitted=False, reason="fastokens is not installed")
    versions = [f"{name}-{metadata.version(name)}" for name in ("fastokens", "tokenizers")]
    place = cache / f"{'_'.join((digest[:32], _PROBE, *versions))}.json"
    try:
        return msgspec.json.decode(place.read_bytes(), type=Verdict)
    except (OSError, msgspec.DecodeError):
        pass  # not compared yet, or not readable
    verdict = _compared(source)
    if verdict is None:
        return Verdict(admitted=False, reason="the comparison with tokenizers did not finish")
    _keep(verdict, place)
    return verdict


def _compared(source: bytes) -> Verdict | None:
    """Return what the throw-away process says; None when it crashes or takes too long."""
    # -P: nothing in the working directory may pass for one of the modules.
    command = [sys.executable, "-P", "-m", "sglr_dataplane.prompt.probe"]
    try:
        # The command is fixed, and the tokenizer is only its input.
        done = subprocess.run(  # noqa: S603
            command, input=source, capture_output=True, timeout=PROBE_SECONDS, check=True
        )
        return msgspec.json.decode(done.stdout, type=Verdict)
    except (subprocess.SubprocessError, msgspec.DecodeError):
        return None


def _keep(verdict: Verdict, place: Path) -> None:
    """Write *verdict* in one step, so that a process starting beside this one reads all or none."""
    unfinished = place.with_suffix(f".{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(msgspec.json.encode(verdict))
        unfinished.replace(place)
    except OSError:
        return  # a read-only or full disk: the next start compares again
