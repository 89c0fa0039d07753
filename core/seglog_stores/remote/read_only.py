"""The changes of a `FileSystem`, refused: what only reads takes its other half from here."""

from __future__ import annotations

from pathlib import Path

from seglog.storage.filesystem import Access, refuse_to_write


class ReadOnlyFileSystem:
    """Base for file systems that are only read: every change is an OSError (EROFS)."""

    def rename(self, source: Path, target: Path) -> None:
        refuse_to_write(source)

    def remove(self, path: Path) -> None:
        refuse_to_write(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        refuse_to_write(path)

    def remove_directory(self, path: Path) -> None:
        refuse_to_write(path)

    def sync_directory(self, path: Path) -> None:
        refuse_to_write(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        refuse_to_write(path)

    def copy_attributes(self, source: Path, target: Path) -> None:
        refuse_to_write(target)

    def free_bytes(self, path: Path) -> int:
        refuse_to_write(path)

    def link(self, source: Path, target: Path) -> None:
        refuse_to_write(target)
