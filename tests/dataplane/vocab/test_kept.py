"""Tables of a vocabulary that were made before: the same, or made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglr_dataplane.vocab import TokenizerDocument, TokenizerLoadError, Vocabulary
from sglr_dataplane.vocab.kept import vocabulary_of
from support.router import DEMO_MODEL

SOURCE = (DEMO_MODEL / "tokenizer.json").read_bytes()


def facts(vocabulary: Vocabulary) -> tuple[object, ...]:
    """Return everything that a vocabulary is made of."""
    return (
        vocabulary.digest,
        dict(vocabulary.added),
        vocabulary.special,
        vocabulary.control,
        vocabulary.table,
    )


@pytest.fixture(name="made")
def made_fixture() -> Vocabulary:
    """Return the vocabulary as it is made."""
    return Vocabulary.from_document(TokenizerDocument.parse(SOURCE))


def test_what_is_read_equals_what_was_made(tmp_path: Path, made: Vocabulary) -> None:
    """The first call makes and keeps, the second reads, in a folder that was not there."""
    folder = tmp_path / "cache"
    first = vocabulary_of(SOURCE, folder)
    [place] = folder.iterdir()
    stamp = place.stat().st_mtime_ns
    second = vocabulary_of(SOURCE, folder)

    assert facts(first) == facts(second) == facts(made)
    assert place.stat().st_mtime_ns == stamp
    ids = tuple(range(second.size))
    assert second.decode(ids) == made.decode(ids)
    assert [second.escaped[i] for i in ids] == [made.escaped[i] for i in ids]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: b"",
        lambda content: content[:32],
    ],
)
def test_a_damaged_file_is_made_anew(tmp_path: Path, made: Vocabulary, damage: object) -> None:
    """Cut, changed or empty: it is replaced by a whole one."""
    assert callable(damage)
    vocabulary_of(SOURCE, tmp_path)
    [place] = tmp_path.iterdir()
    whole = place.read_bytes()
    place.write_bytes(damage(whole))

    assert facts(vocabulary_of(SOURCE, tmp_path)) == facts(made)
    assert place.read_bytes() == whole


def test_another_tokenizer_is_not_mistaken_for_it(tmp_path: Path) -> None:
    """Even in its place."""
    other = SOURCE + b"\n"
    vocabulary_of(SOURCE, tmp_path)
    [place] = tmp_path.iterdir()
    digest = vocabulary_of(other, tmp_path / "other").digest
    [elsewhere] = (tmp_path / "other").iterdir()
    (tmp_path / elsewhere.name).write_bytes(place.read_bytes())

    assert vocabulary_of(other, tmp_path).digest == digest


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, made: Vocabulary
) -> None:
    """As on a read-only disk."""
    (tmp_path / "file").write_text("in the way")

    assert facts(vocabulary_of(SOURCE, tmp_path / "file" / "cache")) == facts(made)


def test_without_a_folder_nothing_is_kept(made: Vocabulary) -> None:
    """As in tests and tools."""
    assert facts(vocabulary_of(SOURCE, None)) == facts(made)


def test_what_is_no_tokenizer_is_refused_and_not_kept(tmp_path: Path) -> None:
    """The next try looks again."""
    with pytest.raises(TokenizerLoadError):
        vocabulary_of(b"{}", tmp_path)

    assert list(tmp_path.iterdir()) == []
