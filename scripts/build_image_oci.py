"""An OCI image archive of one file tree: what containerd, kind, podman and registries load.

The archive depends on the tree and the configuration alone: times and owners are zero, entries
are sorted.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from build_image_cache import used

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_STICKY: Final = 0o1777
_EPOCH: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What a container of the image starts with."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = "0:0"
    """``UID:GID``; numbers, because Kubernetes' runAsNonRoot cannot judge a name."""
    workdir: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)
    architecture: str = _ARCHITECTURES.get(platform.machine(), platform.machine())


def write_archive(
    output: Path,
    reference: str,
    root: Path,
    config: ImageConfig,
    *,
    on_top: Callable[[Path], bool] = lambda _: False,
    cache: Path | None = None,
) -> int:
    """Write the image of *root* and return its size in bytes, packed.

    Args:
        output: The archive; replaced when it exists.
        reference: ``NAME:TAG``, the name a runtime gives the image when it loads the archive.
        root: The file tree.
        config: What a container starts with.
        on_top: Whether a path below *root* belongs into a layer of its own, above the others: what
            changes more often, so that nodes fetch no more than that.
        cache: Where packed layers are kept; None keeps nothing.
    """
    blobs: dict[str, bytes] = {}
    layers = [_layer(root, lambda path: not on_top(path))]
    if any(on_top(path.relative_to(root)) for path in _walk(root)):
        layers.append(_layer(root, on_top))
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(
            blobs, _configuration(config, layers), "application/vnd.oci.image.config.v1+json"
        ),
        "layers": [
            _blob(blobs, _packed(layer, cache), "application/vnd.oci.image.layer.v1.tar+gzip")
            for layer in layers
        ],
        "annotations": dict(config.labels),
    }
    described = _blob(blobs, _json(manifest), "application/vnd.oci.image.manifest.v1+json")
    described["platform"] = {"architecture": config.architecture, "os": "linux"}
    described["annotations"] = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rsplit(":", 1)[-1],
    }
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [described]}),
        **dict(sorted(blobs.items())),
    }
    with tarfile.open(output, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return output.stat().st_size


def _packed(layer: bytes, cache: Path | None) -> bytes:
    """Return *layer* compressed, from *cache* when it is there."""
    kept = cache / f"layer-{hashlib.sha256(layer).hexdigest()}.gz" if cache is not None else None
    if kept is not None and kept.exists():
        used(kept)
        return kept.read_bytes()
    packed = gzip.compress(layer, compresslevel=6, mtime=0)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(packed)
        Path(file.name).rename(kept)
    return packed


def _layer(root: Path, chosen: Callable[[Path], bool]) -> bytes:
    """Return what is *chosen* of the tree as one uncompressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in filter(lambda each: chosen(each.relative_to(root)), _walk(root)):
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(root)))
            if entry.islnk():
                # A hard link's other name may sort later: each name carries its content.
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = _mode(path)
            if entry.isreg():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
    return buffer.getvalue()


def _walk(root: Path) -> Iterable[Path]:
    """Yield everything under *root*, folders before what they hold."""
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(folders + files):
            yield Path(folder, name)


def _mode(path: Path) -> int:
    """Return the permissions *path* gets: readable by everyone, as the image runs as anyone."""
    mode = stat.S_IMODE(path.lstat().st_mode)
    if path.is_symlink() or mode == _STICKY:
        return mode
    return 0o755 if path.is_dir() or mode & 0o100 else 0o644


def _configuration(config: ImageConfig, layers: Sequence[bytes]) -> bytes:
    return _json(
        {
            "architecture": config.architecture,
            "os": "linux",
            "created": _EPOCH,
            "config": {
                "User": config.user,
                "Env": [f"{name}={value}" for name, value in config.environment.items()],
                "Cmd": list(config.command),
                "WorkingDir": config.workdir,
                "Labels": dict(config.labels),
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in layers]},
            "history": [{"created": _EPOCH, "created_by": "scripts/build_image.py"}] * len(layers),
        }
    )


def _blob(blobs: dict[str, bytes], content: bytes, media: str) -> dict[str, Any]:
    """Add *content* to *blobs* and return its descriptor."""
    digest = _digest(content)
    blobs[f"blobs/{digest.replace(':', '/')}"] = content
    return {"mediaType": media, "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
