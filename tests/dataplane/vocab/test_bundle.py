"""A worker's bundle becomes a directory, and can do nothing else."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from sglr_dataplane.vocab import TokenizerLoadError, Vocabulary, bundle
from sglr_dataplane.vocab.bundle import unpacked
from support.tokenizers import DEMO_MODEL, vocabulary_of


def a_bundle(files: dict[str, bytes]) -> bytes:
    """Return a zip archive of *files*, with their names as they are given."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def digest_of(packed: bytes | bytearray) -> str:
    """Return what a worker would say of *packed*."""
    return hashlib.sha256(packed).hexdigest()


def files_below(directory: Path) -> dict[str, bytes]:
    """Return all files below *directory*, hidden ones too."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if not path.is_dir()
    }


def test_a_bundle_becomes_a_directory_that_can_be_loaded(tmp_path: Path) -> None:
    """Named by its digest, in a cache that is made when needed."""
    packed = a_bundle({path.name: path.read_bytes() for path in DEMO_MODEL.iterdir()})

    directory = unpacked(packed, digest_of(packed).upper(), tmp_path / "a" / "cache")
    assert directory == tmp_path / "a" / "cache" / digest_of(packed)
    assert files_below(directory) == files_below(DEMO_MODEL)
    assert Vocabulary.from_dir(directory).digest == vocabulary_of(DEMO_MODEL).digest


def test_a_bundle_is_unpacked_once(tmp_path: Path) -> None:
    """The second worker with the same one costs nothing."""
    packed = a_bundle({"tokenizer.json": b"{}"})
    first = unpacked(packed, digest_of(packed), tmp_path)
    (first / "tokenizer.json").write_bytes(b"left alone")

    assert unpacked(packed, digest_of(packed), tmp_path) == first
    assert files_below(tmp_path) == {f"{first.name}/tokenizer.json": b"left alone"}


def test_only_what_a_router_reads_is_written(tmp_path: Path) -> None:
    """No path leads out of the directory, and no code or hidden file into it."""
    kept = {
        **dict.fromkeys(("tokenizer.json", "merges.txt", "tiktoken.model", "qwen.tiktoken"), b"1"),
        **dict.fromkeys(("chat_template.jinja", "additional_chat_templates/tool_use.jinja"), b"2"),
    }
    left_out = (
        *("../tokenizer.json", "/tokenizer.json", "a/../../x.json", "..\\x.json", "C:\\x.json"),
        *("additional_chat_templates/../../x.jinja", "other/x.json", "a/b/c.json", ".hidden.json"),
        *("tokenization.py", "model.safetensors", "additional_chat_templates/", "x.json\n"),
        "/additional_chat_templates/x.jinja",
    )
    packed = a_bundle(kept | dict.fromkeys(left_out, b"bad"))

    directory = unpacked(packed, digest_of(packed), tmp_path / "cache")
    assert files_below(directory) == kept
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_link_is_only_text(tmp_path: Path) -> None:
    """An archive may call a member a symbolic link; nothing is linked."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        link = zipfile.ZipInfo("tokenizer.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/hostname")

    directory = unpacked(packed.getvalue(), digest_of(packed.getvalue()), tmp_path)
    assert not (directory / "tokenizer.json").is_symlink()
    assert (directory / "tokenizer.json").read_bytes() == b"/etc/hostname"


def test_another_digest_is_refused(tmp_path: Path) -> None:
    """What arrived is not what the worker sent."""
    packed = a_bundle({"tokenizer.json": b"{}"})

    for wrong in ("", digest_of(packed + b"x")):
        with pytest.raises(TokenizerLoadError, match="does not have the digest"):
            unpacked(packed, wrong, tmp_path)
    assert files_below(tmp_path) == {}


def test_a_bomb_is_given_up_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across all members, and nothing of it stays."""
    monkeypatch.setattr(bundle, "MAX_UNPACKED_BYTES", 3_000_000)
    packed = a_bundle({"a.json": bytes(2_000_000), "b.json": bytes(2_000_000)})

    assert len(packed) < 10_000
    with pytest.raises(TokenizerLoadError, match="unpacks to more than 3000000 bytes"):
        unpacked(packed, digest_of(packed), tmp_path)
    assert files_below(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_too_large_or_too_many_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is unpacked."""
    many = a_bundle({f"{i}.json": b"" for i in range(bundle.MAX_MEMBERS + 1)})
    with pytest.raises(TokenizerLoadError, match="has 257 members; at most 256"):
        unpacked(many, digest_of(many), tmp_path)

    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", len(many) - 1)
    with pytest.raises(TokenizerLoadError, match=f"has {len(many)} bytes; at most"):
        unpacked(many, digest_of(many), tmp_path)


@pytest.mark.parametrize("cut", [0, 20, -30])
def test_what_is_no_archive_is_refused(tmp_path: Path, cut: int) -> None:
    """Empty, the start only, or without the end."""
    packed = a_bundle({"tokenizer.json": b"some text"})[:cut]

    with pytest.raises(TokenizerLoadError, match="is no zip archive"):
        unpacked(packed, digest_of(packed), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_refused(tmp_path: Path, compression: int) -> None:
    """Each byte of it flipped in turn: its checksum, or its compression, does not hold."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        archive.writestr("tokenizer.json", b"some text")
        start = archive.fp.tell() - archive.infolist()[0].compress_size if archive.fp else 0
    for at in range(start, start + 9):
        damaged = bytearray(packed.getvalue())
        damaged[at] ^= 0xFF

        with pytest.raises(TokenizerLoadError, match="is no zip archive"):
            unpacked(bytes(damaged), digest_of(damaged), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_compressions_are_refused(tmp_path: Path, compression: int) -> None:
    """A few bytes of them can ask for gigabytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        archive.writestr("tokenizer.json", b"{}")

    with pytest.raises(TokenizerLoadError, match="is no zip archive"):
        unpacked(packed.getvalue(), digest_of(packed.getvalue()), tmp_path)


def test_the_faster_of_two_processes_wins(tmp_path: Path) -> None:
    """Both have the same files, so the slower one takes those; a file in the way is an error."""
    unfinished, target, occupied = (
        tmp_path / name for name in ("unfinished", "target", "occupied")
    )
    for directory in (unfinished, target):
        directory.mkdir()
        (directory / "tokenizer.json").write_bytes(b"{}")
    occupied.write_bytes(b"")

    assert bundle._published(unfinished, target) == target
    with pytest.raises(OSError, match="Not a directory"):
        bundle._published(unfinished, occupied)
