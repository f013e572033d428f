"""The layout that keeps Python's own ``operator`` module safe."""

import operator
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("folder", ["operator", "dataplane", "proto", "tests", "tests/operator"])
def test_source_roots_are_not_packages(folder: str) -> None:
    """A source root with an ``__init__.py`` would shadow a module of the same name."""
    assert (ROOT / folder).is_dir()
    assert not (ROOT / folder / "__init__.py").exists()


def test_the_standard_operator_module_is_the_one_imported() -> None:
    """``import operator`` gives the standard library's, here and from the root of the checkout."""
    found = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=15,
        check=True,
    ).stdout.strip()

    assert Path(found) == Path(operator.__file__)
    assert not Path(found).is_relative_to(ROOT / "operator")


def test_no_source_file_is_longer_than_its_ceiling() -> None:
    """400 lines a file is the ceiling; generated stubs do not count."""
    long = [
        f"{path.relative_to(ROOT)}: {lines}"
        for folder in ("operator", "dataplane", "proto", "scripts", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if "_pb2" not in path.name
        if (lines := len(path.read_text().splitlines())) > 400
    ]

    assert long == []
