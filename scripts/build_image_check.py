"""Unpack an image that scripts/build_image.py wrote and run both its commands in it.

As Kubernetes would under the restricted profile: root file system read-only, the image's own
user, only /tmp writable. Needs root, for the mounts; leaves nothing behind.

Usage: build_image_check.py FILE.tar
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

COMMANDS: Final = (
    ("sglr", "--version"),
    ("sglr-operator", "--version"),
    ("sglr", "demo", "--once", "--port", "0"),
)
_SANDBOX: Final = """
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/tmp"
mount -o remount,bind,ro "$1"
root=$1 user=$2
shift 2
exec /usr/sbin/chroot --userspec="$user" "$root" "$@"
"""
_SECONDS: Final = 120


def unpack(archive: Path, root: Path) -> dict[str, Any]:
    """Unpack the layers of *archive* into *root* and return the image's configuration."""
    with tarfile.open(archive) as image:

        def blob(digest: str) -> tarfile.TarInfo:
            return image.getmember(f"blobs/{digest.replace(':', '/')}")

        def document(member: tarfile.TarInfo | str) -> dict[str, Any]:
            content = image.extractfile(member)
            if content is None:
                sys.exit(f"build_image_check: {archive} holds no {member}.")
            read: dict[str, Any] = json.load(content)
            return read

        manifest = document(blob(document("index.json")["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            content = image.extractfile(blob(layer["digest"]))
            with tarfile.open(fileobj=content, mode="r:gz") as tree:
                # Debian's Python 3.11.2 knows no filters yet; later ones want one to be named.
                if hasattr(tarfile, "tar_filter"):
                    tree.extraction_filter = tarfile.tar_filter
                tree.extractall(root)  # noqa: S202  # an image of this project's own
        configuration: dict[str, Any] = document(blob(manifest["config"]["digest"]))["config"]
        return configuration


def main() -> int:
    """Run every command; return 0 when all of them succeed."""
    with tempfile.TemporaryDirectory(prefix="sglr-check-") as name:
        root = Path(name)
        root.chmod(0o755)
        configuration = unpack(Path(sys.argv[1]), root)
        environment = dict(item.split("=", 1) for item in configuration["Env"])
        environment["PATH"] += ":/usr/sbin:/sbin"  # mount, on the side of the machine
        for command in COMMANDS:
            print(f"build_image_check: {' '.join(command)}", flush=True)
            result = subprocess.run(
                ["unshare", "--mount", "--pid", "--fork", "/bin/sh", "-ec", _SANDBOX, "sandbox",
                 str(root), configuration["User"], "/usr/local/bin/" + command[0], *command[1:]],
                env=environment, timeout=_SECONDS, check=False,
            )  # fmt: skip
            if result.returncode != 0:
                print(f"build_image_check: status {result.returncode}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
