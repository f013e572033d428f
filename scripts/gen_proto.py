#!/usr/bin/env python3
"""Make the committed Python stubs from every .proto under proto/, or check that they are fresh.

The pinned tools (extra ``proto`` of pyproject.toml) decide what a user's protobuf must be: code
made by grpcio-tools 1.81.1 asks for protobuf 6.33.5 and runs on 7 too; a newer one shuts 6 out.

    python scripts/gen_proto.py           # write
    python scripts/gen_proto.py --check   # exit 1 and name each stale, missing or orphaned stub
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROTO = Path(__file__).resolve().parent.parent / "proto"
PINNED = {"grpcio-tools": "1.81.1", "mypy-protobuf": "5.1.0"}
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def wrong_tools() -> list[str]:
    """Return one sentence for each pinned tool that is absent or of another version."""
    wrong: list[str] = []
    for name, wanted in PINNED.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "none"
        if found != wanted:
            wrong.append(f"{name} {wanted} makes the stubs, but {found} is installed.")
    return wrong


def sources(root: Path) -> list[str]:
    """Return the .proto files under *root*, as sorted paths relative to it."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.proto"))


def stubs(root: Path) -> dict[str, bytes]:
    """Return the generated files under *root*: path relative to it, and bytes."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*_pb2*.py*"))
        if path.name.endswith(SUFFIXES)
    }


def generate(root: Path, out: Path) -> None:
    """Write the stubs of each .proto under *root* below *out*.

    Raises:
        subprocess.CalledProcessError: protoc refuses a file; its message is on stderr.
    """
    plugins = ("python_out=", "grpc_python_out=", "mypy_out=quiet:")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}"]
    command += [f"--{plugin}{out}" for plugin in plugins]
    command += [f"--mypy_grpc_out=quiet,only_async:{out}", *sources(root)]
    # The mypy plugins stand next to the interpreter, which need not be on PATH.
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    subprocess.run(command, cwd=root, check=True, env={"PATH": path})


def differences(committed: dict[str, bytes], fresh: dict[str, bytes]) -> list[str]:
    """Return one sentence for each stub that is not what the .proto files say."""
    found = [f"{name} has no .proto: delete it." for name in committed.keys() - fresh.keys()]
    found += [f"{name} is missing." for name in fresh.keys() - committed.keys()]
    both = committed.keys() & fresh.keys()
    found += [f"{name} is stale." for name in both if committed[name] != fresh[name]]
    return sorted(found)


def main(arguments: list[str], root: Path = PROTO) -> int:
    """Write or check the stubs below *root*; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check: bool = parser.parse_args(arguments).check
    if wrong := wrong_tools():
        print("\n".join(wrong), "Install the extra 'proto'.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        try:
            generate(root, Path(folder))
        except subprocess.CalledProcessError as error:
            print(f"protoc ended with status {error.returncode}.", file=sys.stderr)
            return 1
        fresh = stubs(Path(folder))
    found = differences(stubs(root), fresh)
    if check:
        return report(found, len(fresh))
    return write(root, fresh)


def report(found: list[str], count: int) -> int:
    """Print the differences; return 1 if there are any."""
    if not found:
        print(f"{count} stubs are what the .proto files say.")
        return 0
    print("\n".join(found), "Run: python scripts/gen_proto.py", sep="\n", file=sys.stderr)
    return 1


def write(root: Path, fresh: dict[str, bytes]) -> int:
    """Replace what changed below *root* by *fresh*, delete orphans, print each; return 0."""
    committed = stubs(root)
    for name in sorted(committed.keys() - fresh.keys()):
        print(f"delete {name}")
        (root / name).unlink()
    for name, content in sorted(fresh.items()):
        if committed.get(name) != content:
            print(f"write {name}")
            (root / name).write_bytes(content)
    print(f"{len(fresh)} stubs are what the .proto files say.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
