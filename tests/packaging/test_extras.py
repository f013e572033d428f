"""What is installed with which extra, and what the wheel carries."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {names!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)

sys.meta_path.insert(0, Missing())
sys.argv = [{command!r}, *{arguments!r}]
from {module} import main
sys.exit(main())
"""


def _run_without(names: set[str], module: str, *arguments: str) -> str:
    """Return what ``main`` of *module* prints when the packages *names* are not installed."""
    program = _WITHOUT.format(names=names, command=module, arguments=list(arguments), module=module)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.processes
def test_the_operator_runs_without_the_data_planes_packages() -> None:
    """``[operator]`` needs no Starlette, no tokenizers, no templates."""
    told = _run_without(
        {"starlette", "uvicorn", "tokenizers", "fastokens", "jinja2", "openai"},
        "sglr_operator.cli",
        "--help",
    )

    assert "usage" in told


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_the_demo_runs_without_the_operators_packages() -> None:
    """``[dataplane]`` needs no kopf and no Kubernetes client."""
    told = _run_without(
        {"kopf", "kubernetes", "aiohttp"}, "sglr_dataplane.cli", "demo", "--once", "--port", "0"
    )

    assert told.count("\nright: ") == 3


@pytest.mark.processes
@pytest.mark.timeout(90)
def test_the_wheel_carries_code_and_data_of_every_plane(tmp_path: Path) -> None:
    """The demo's model and script, the stubs and the type markers are in the wheel; it is small."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        timeout=80,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        model = sum(i.file_size for i in archive.infolist() if "/demo_model/" in i.filename)

    assert {
        "sglr_dataplane/demo_model/tokenizer.json",
        "sglr_dataplane/demo_model/chat_template.jinja",
        "sglr_dataplane/cli/demo_script.yaml",
        "sglr_dataplane/py.typed",
        "sglr_operator/py.typed",
        "sglr_proto/py.typed",
        "sglr_proto/sglang/scheduler_pb2.pyi",
    } <= names
    assert not any(name.startswith(("operator/", "dataplane/", "tests/")) for name in names)
    assert model < 1_000_000
