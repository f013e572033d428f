"""Build the product's image without Docker: an OCI archive, or only its root filesystem.

python scripts/build_image.py --output sglr.tar     # for `ctr images import`, `kind load`, podman
python scripts/build_image.py --root FOLDER         # the file tree alone; the Dockerfile's first stage

Needs apt with a Debian archive configured, dpkg-deb, and pip with access to the locked wheels.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from build_image_cache import prune
from build_image_oci import ImageConfig, write_archive
from build_image_root import ROOT, SITE, USER, build_root, size_of

MOST_BYTES: Final = 350_000_000
"""Unpacked: what a node pulls, keeps and verifies at each rollout."""
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/sglr",
    "USER": "sglr",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}


def version() -> str:
    """Return the project's version, as its source says."""
    text = (ROOT / "proto" / "sglr_proto" / "__init__.py").read_text()
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        sys.exit("build_image: proto/sglr_proto/__init__.py names no version.")
    return found[1]


def labels(revision: str) -> dict[str, str]:
    """Return the image's labels; *revision* is the commit it was built from, '' when unknown."""
    return {
        "org.opencontainers.image.title": "sglr",
        "org.opencontainers.image.description": "Kubernetes-native router for SGLang: operator and router",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.revision": revision,
    }


def config(revision: str) -> ImageConfig:
    """Return what a container of the image starts with."""
    return ImageConfig(
        command=("sglr", "--help"),
        environment=ENVIRONMENT,
        user=f"{USER}:{USER}",
        workdir="/home/sglr",
        labels=labels(revision),
    )


def _is_ours(path: Path) -> bool:
    """Return whether *path* in the tree is of the project itself: a layer of few megabytes."""
    inside = path.is_relative_to(SITE) and path != SITE
    return inside and path.relative_to(SITE).parts[0].startswith(("sglr_", "sglang_k8s_router"))


def _revision() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def _fill(root: Path, cache: Path | None) -> None:
    """Fill *root*, say how large it became, and refuse to grow above the limit."""
    build_root(root, cache)
    size = size_of(root)
    print(f"build_image: {size / 1e6:.0f} MB unpacked")
    if size > MOST_BYTES:
        sys.exit(f"build_image: more than the {MOST_BYTES / 1e6:.0f} MB that the image may have.")


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--output", type=Path, metavar="FILE.tar", help="the OCI archive")
    wanted.add_argument(
        "--root", type=Path, metavar="FOLDER", help="only the file tree; empty or new"
    )
    parser.add_argument(
        "--reference", default=f"localhost/sglr:{version()}", help="the image's name (%(default)s)"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", default=os.environ.get("SGLR_IMAGE_CACHE"),
        help="keep all but the project there, and take it from there while the lock is the same"
        " ($SGLR_IMAGE_CACHE)",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.root is not None:
        arguments.root.mkdir(parents=True, exist_ok=True)
        _fill(arguments.root, arguments.cache)
        return
    with tempfile.TemporaryDirectory(prefix="sglr-root-") as name:
        root = Path(name)
        _fill(root, arguments.cache)
        size = write_archive(
            arguments.output, arguments.reference, root, config(_revision()),
            on_top=_is_ours, cache=arguments.cache,
        )  # fmt: skip
    if arguments.cache is not None:
        prune(arguments.cache)
    print(f"build_image: {arguments.output}: {arguments.reference}, {size / 1e6:.0f} MB packed")


if __name__ == "__main__":
    main()
