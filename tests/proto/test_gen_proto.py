"""The committed stubs are what the pinned tools make of the .proto files, and drift is seen."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"


@pytest.fixture(scope="module")
def gen_proto() -> ModuleType:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("gen_proto", ROOT / "scripts/gen_proto.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the .proto files and stubs."""
    copy = tmp_path / "proto"
    shutil.copytree(PROTO, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_committed_stubs_are_fresh(gen_proto: ModuleType) -> None:
    """What is committed is what the tools make, for every .proto under proto/."""
    assert gen_proto.main(["--check"]) == 0


def test_stubs_run_on_the_oldest_accepted_protobuf() -> None:
    """Every stub asks for protobuf 6.33.5, the lower bound of the dependency."""
    stubs = sorted(PROTO.rglob("*_pb2.py"))

    assert stubs
    for stub in stubs:
        assert "# Protobuf Python Version: 6.33.5\n" in stub.read_text("utf-8")


def test_a_changed_proto_makes_its_stubs_stale(
    gen_proto: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another field number is found by name of the stub, and nothing is written."""
    source = tree / "sglr_proto/sglang/scheduler.proto"
    text = source.read_text("utf-8")
    source.write_text(text.replace("string message = 2;", "string message = 3;", 1), "utf-8")
    stub = tree / "sglr_proto/sglang/scheduler_pb2.py"
    before = stub.read_bytes()

    status = gen_proto.main(["--check"], root=tree)

    assert status == 1
    assert "sglr_proto/sglang/scheduler_pb2.py is stale." in capsys.readouterr().err
    assert stub.read_bytes() == before


def test_an_orphan_and_a_missing_stub_are_found_and_mended(
    gen_proto: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stub without .proto and a .proto without stub fail the check; writing mends both."""
    folder = tree / "sglr_proto/sglang"
    (folder / "gone_pb2.py").write_text("", "utf-8")
    (folder / "common_pb2.pyi").unlink()

    status = gen_proto.main(["--check"], root=tree)

    told = capsys.readouterr().err
    assert status == 1
    assert "sglr_proto/sglang/gone_pb2.py has no .proto: delete it." in told
    assert "sglr_proto/sglang/common_pb2.pyi is missing." in told
    assert gen_proto.main([], root=tree) == 0
    assert not (folder / "gone_pb2.py").exists()
    assert (folder / "common_pb2.pyi").read_bytes() == (
        PROTO / "sglr_proto/sglang/common_pb2.pyi"
    ).read_bytes()


def test_a_broken_proto_fails_the_check(gen_proto: ModuleType, tree: Path) -> None:
    """What protoc refuses is an exit status, not a traceback."""
    (tree / "sglr_proto/sglang/broken.proto").write_text("message {", "utf-8")

    assert gen_proto.main(["--check"], root=tree) == 1


def test_another_tool_version_fails_before_anything_is_made(
    gen_proto: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer protoc would shut out users' protobuf, so it is refused by name."""
    monkeypatch.setitem(gen_proto.PINNED, "grpcio-tools", "0.0.1")

    assert gen_proto.main([], root=tree) == 1
    [sentence] = gen_proto.wrong_tools()
    assert sentence.startswith("grpcio-tools 0.0.1 makes the stubs, but ")
