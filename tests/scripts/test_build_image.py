"""The image archive is what its tree says, and the Dockerfile describes the same image."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.scripts import script
from support.tokenizers import ROOT


@pytest.fixture
def oci(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the archive writer."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return script("build_image_oci")


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the builder's command line."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return script("build_image")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small file tree with all that a root file system has."""
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_bytes(b"#!x")
    (root / "bin/tool").chmod(0o700)
    (root / "bin/again").hardlink_to(root / "bin/tool")
    (root / "bin/link").symlink_to("tool")
    (root / "etc").mkdir(mode=0o700)
    (root / "etc/secretive").write_bytes(b"words")
    (root / "etc/secretive").chmod(0o600)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    return root


def opened(path: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return the archive's index entry, its configuration and its unpacked layer.

    Every blob is checked against the digest it is stored under.
    """
    with tarfile.open(path) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]  # only files
    for name, content in files.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(content).hexdigest() == name.rsplit("/", 1)[-1]

    def blob(descriptor: Mapping[str, Any]) -> bytes:
        content = files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(content) == descriptor["size"]
        return content

    entry = json.loads(files["index.json"])["manifests"][0]
    manifest = json.loads(blob(entry))
    layer = gzip.decompress(blob(manifest["layers"][0]))
    configuration = json.loads(blob(manifest["config"]))
    assert configuration["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    return entry, configuration, layer


def test_the_layer_holds_the_tree_readable_by_any_user(
    oci: ModuleType, tree: Path, tmp_path: Path
) -> None:
    """Owners and times are zero, everyone can read, links stay links, /tmp stays sticky."""
    oci.write_archive(tmp_path / "a.tar", "localhost/x:1", tree, oci.ImageConfig(command=("x",)))

    _, _, layer = opened(tmp_path / "a.tar")
    with tarfile.open(fileobj=io.BytesIO(layer)) as entries:
        found = {m.name: m for m in entries.getmembers()}
        content = {n: entries.extractfile(m).read() for n, m in found.items() if m.isreg()}  # type: ignore[union-attr]  # only files
    assert {name: member.mode for name, member in found.items() if not member.issym()} == {
        "bin": 0o755,
        "bin/again": 0o755,
        "bin/tool": 0o755,
        "etc": 0o755,
        "etc/secretive": 0o644,
        "tmp": 0o1777,
    }
    assert found["bin/link"].linkname == "tool"
    assert content == {"bin/again": b"#!x", "bin/tool": b"#!x", "etc/secretive": b"words"}
    assert {(m.uid, m.gid, m.mtime, m.uname) for m in found.values()} == {(0, 0, 0, "")}


def test_the_configuration_says_how_to_run_it(oci: ModuleType, tree: Path, tmp_path: Path) -> None:
    """User, environment, command, labels and the name to load it under are in the archive."""
    config = oci.ImageConfig(
        command=("tool", "--now"), environment={"A": "1"}, user="7:8", labels={"l": "v"}
    )

    oci.write_archive(tmp_path / "a.tar", "localhost/x:1", tree, config)

    entry, configuration, _ = opened(tmp_path / "a.tar")
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/x:1"
    assert configuration["config"] == {
        "Cmd": ["tool", "--now"],
        "Env": ["A=1"],
        "Labels": {"l": "v"},
        "User": "7:8",
        "WorkingDir": "/",
    }


def test_two_builds_of_one_tree_are_one_archive(
    oci: ModuleType, tree: Path, tmp_path: Path
) -> None:
    """The bytes depend on nothing but the tree and the configuration."""
    config = oci.ImageConfig(command=("x",))
    oci.write_archive(tmp_path / "a.tar", "localhost/x:1", tree, config)
    (tree / "etc/secretive").touch()

    oci.write_archive(tmp_path / "b.tar", "localhost/x:1", tree, config)

    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_what_changes_often_has_a_layer_of_its_own(
    oci: ModuleType, tree: Path, tmp_path: Path
) -> None:
    """Together the layers are the tree; the lower one stays as it is when the upper one changes."""
    config, cache = oci.ImageConfig(command=("x",)), tmp_path / "cache"

    def layers(name: str) -> list[tuple[str, set[str]]]:
        oci.write_archive(
            tmp_path / name, "localhost/x:1", tree, config,
            on_top=lambda path: path.parts[0] == "etc", cache=cache,
        )  # fmt: skip
        with tarfile.open(tmp_path / name) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]  # only files
        entry = json.loads(files["index.json"])["manifests"][0]
        manifest = json.loads(files["blobs/" + entry["digest"].replace(":", "/")])
        settings = json.loads(files["blobs/" + manifest["config"]["digest"].replace(":", "/")])
        found = []
        for layer, plain in zip(manifest["layers"], settings["rootfs"]["diff_ids"], strict=True):
            content = gzip.decompress(files["blobs/" + layer["digest"].replace(":", "/")])
            assert plain == "sha256:" + hashlib.sha256(content).hexdigest()
            with tarfile.open(fileobj=io.BytesIO(content)) as entries:
                found.append((layer["digest"], set(entries.getnames())))
        return found

    first = layers("a.tar")
    (tree / "etc/secretive").write_bytes(b"other words")
    second = layers("b.tar")

    assert [names for _, names in first] == [
        {"bin", "bin/again", "bin/link", "bin/tool", "tmp"}, {"etc", "etc/secretive"},
    ]  # fmt: skip
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert len(list(cache.iterdir())) == 3


def test_the_project_alone_is_the_upper_layer(building: ModuleType) -> None:
    """Its packages and what describes them; dependencies and Debian's files are below."""
    site = Path("usr/local/lib/python3.11/dist-packages")

    assert building._is_ours(site / "sglr_dataplane" / "app.py")
    assert building._is_ours(site / "sglang_k8s_router-0.1.0.dist-info")
    assert not building._is_ours(site)
    assert not building._is_ours(site / "kopf")
    assert not building._is_ours(Path("usr/bin/python3"))


def dockerfile() -> str:
    """Return the Dockerfile with its continued lines joined."""
    return (ROOT / "deploy/docker/Dockerfile").read_text().replace("\\\n", "")


def test_the_dockerfile_sets_what_the_archive_sets(building: ModuleType) -> None:
    """Labels, environment, user, folder and command are the same in both ways to build."""
    text = dockerfile()
    config = building.config("${REVISION}")

    label = dict(re.findall(r'(org\.\S+?)="([^"]*)"', text))
    environment = dict(
        item.split("=", 1) for item in re.findall(r"^ENV (.*)$", text, re.MULTILINE)[-1].split()
    )

    assert label == config.labels
    assert environment == config.environment
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == [config.user]
    assert re.findall(r"^WORKDIR (.*)$", text, re.MULTILINE) == [config.workdir]
    assert json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0]) == list(config.command)


def test_the_user_is_a_number_that_is_not_root(building: ModuleType) -> None:
    """Kubernetes' runAsNonRoot cannot judge a name."""
    user, group = building.config("").user.split(":")

    assert int(user) > 0
    assert int(group) > 0


def test_the_docker_context_holds_what_the_build_reads() -> None:
    """The ignore file lets through every path that setting up the image reads, and no more."""
    lines = (ROOT / "deploy/docker/Dockerfile.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}

    assert lines[0] == "**"
    assert kept == {
        "LICENSE", "README.md", "dataplane", "operator", "proto", "pyproject.toml",
        "requirements.lock", "scripts",
    }  # fmt: skip


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the builder of the root file system."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return script("build_image_root")


def a_distribution(site: Path, name: str, requires: str = "") -> None:
    """Install a distribution of one module into *site*."""
    module = site / f"{name}.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text("")
    about = site / f"{name}-1.dist-info"
    about.mkdir()
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{needs}")
    files = [f"{name}.py", f"{about.name}/METADATA", f"{about.name}/RECORD"]
    (about / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_what_only_builds_need_is_set_aside(base: ModuleType, tmp_path: Path) -> None:
    """What the commands require stays, with what that requires; the rest can still build."""
    site, aside = tmp_path / "site", tmp_path / "aside"
    a_distribution(site, "kopf", requires="aiohttp")
    a_distribution(site, "aiohttp")
    a_distribution(site, "hatchling")

    base._set_aside(site, aside)

    assert sorted(p.name for p in site.glob("*.py")) == ["aiohttp.py", "kopf.py"]
    assert sorted(p.name for p in aside.iterdir()) == ["hatchling-1.dist-info", "hatchling.py"]
    assert not (site / "hatchling-1.dist-info").exists()


def test_a_kept_base_is_the_same_tree(base: ModuleType, tree: Path, tmp_path: Path) -> None:
    """Modes, links and content come back as they were, and the build backend beside them."""
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend/hatchling.py").write_text("x")
    kept, again = tmp_path / "cache/image-1", tmp_path / "again"
    again.mkdir()

    base._keep(tree, tmp_path / "backend", kept)
    base._run(
        "tar", "--extract", "--same-permissions", "-f", str(kept / "base.tar"), "-C", str(again)
    )

    def described(root: Path) -> dict[str, tuple[int, str]]:
        return {
            str(p.relative_to(root)): (
                p.lstat().st_mode, str(p.readlink()) if p.is_symlink() else "",
            )
            for p in root.rglob("*")
        }  # fmt: skip

    assert described(again) == described(tree)
    assert (again / "bin/tool").read_bytes() == b"#!x"
    assert (kept / "backend/hatchling.py").read_text() == "x"
    assert [p.name for p in kept.parent.iterdir()] == ["image-1"]


def test_the_cache_keeps_what_was_used_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two bases and six layers stay, by their last use; what others keep there is not touched."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    cache = script("build_image_cache")
    for age in range(1, 9):
        for path in (
            tmp_path / f"image-{age}",
            tmp_path / f"layer-{age}.gz",
            tmp_path / f"bin{age}",
        ):
            if path.suffix:
                path.write_bytes(b"x")
            else:
                path.mkdir()
                (path / "base.tar").write_bytes(b"x")
            os.utime(path, (1000 - age, 1000 - age))
    cache.used(tmp_path / "image-8")

    gone = cache.prune(tmp_path)

    assert sorted(gone) == [*(f"image-{n}" for n in range(2, 8)), "layer-7.gz", "layer-8.gz"]
    left = {p.name for p in tmp_path.iterdir()}
    assert {name for name in left if name.startswith("image")} == {"image-1", "image-8"}
    assert len(left) == 2 + 6 + 8
    assert cache.prune(tmp_path) == []


def test_another_lock_is_another_base(
    base: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is taken only for the same lock, requirements and build."""
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    same = base._key()
    monkeypatch.setattr(base, "ROOT", tmp_path)

    assert base._key() == same
    (tmp_path / "requirements.lock").write_text("other==1")
    assert base._key() != same
