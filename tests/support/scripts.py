"""Loads the repository's scripts, which are in no package."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from support.tokenizers import ROOT


def script(name: str) -> ModuleType:
    """Return a fresh module made of ``scripts/NAME.py``; it is not run as a command."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
