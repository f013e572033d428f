"""Empty modules in the place of GPU extensions, for an SGLang that runs on a CPU.

Installed as ``sitecustomize`` into SGLang's own environment; nothing of the router imports it. A
module that is only imported, or asked for names, gets them; ``importlib.util.find_spec`` still says
that it is not there, so that code which looks for it first takes its other way.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

_ABSENT = frozenset({"torchvision", "torchaudio", "sgl_kernel"})


class _Anything:
    """Stands for whatever a stubbed module is asked for."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Take anything."""

    def __call__(self, *args: Any, **_kwargs: Any) -> Any:
        """Return what is decorated, or anything."""
        return args[0] if args and callable(args[0]) else _Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __or__(self, _other: object) -> _Anything:
        return self

    __ror__ = __or__


class _StubModule(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the absent modules and makes stubs of them."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # the protocol's
        target: ModuleType | None = None,  # noqa: ARG002  # same
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a package for each absent name."""
        if fullname.split(".", maxsplit=1)[0] not in _ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the stub."""
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


_found = importlib.util.find_spec


def _find_spec(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
    if name.split(".", maxsplit=1)[0] in _ABSENT:
        return None
    return _found(name, package)


sys.meta_path.insert(0, _Finder())
importlib.util.find_spec = _find_spec
