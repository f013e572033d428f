"""What reading the contract can fail with."""

from __future__ import annotations


class ManifestError(ValueError):
    """A SGLangBackend document says something that nobody here can do.

    ``str(error)`` is one sentence for the person who wrote it: which document, which object, which
    path, what stands there and what was expected.
    """

    def __init__(
        self, problem: str, *, path: str = "", owner: str = "", document: str = ""
    ) -> None:
        """Keep what is wrong and where.

        Args:
            problem: The sentence without its place; it names *path* where there is one.
            path: The field it is about, such as ``spec.model.name``; "" for the whole object.
            owner: The object, such as ``SGLangBackend 'default/qwen'``; "" when not known yet.
            document: Its place in a file, such as ``document 2 (line 14)``; "" outside of files.
        """
        place = ", ".join(part for part in (document, owner) if part)
        super().__init__(f"{place[0].upper()}{place[1:]}: {problem}" if place else problem)
        self.problem = problem
        self.path = path
        self.owner = owner
        self.document = document

    def within(self, document: str) -> ManifestError:
        """Return the same error, placed in *document*."""
        return ManifestError(self.problem, path=self.path, owner=self.owner, document=document)


class SnapshotError(ValueError):
    """Bytes that should hold a snapshot do not."""
