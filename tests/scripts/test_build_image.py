"""The image archive is what its tree says, and the Dockerfile describes the same image."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
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
