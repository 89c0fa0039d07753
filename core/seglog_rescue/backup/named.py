"""What the manifests of a repository name, taken one after the other: a manifest is large, and there are many."""

from __future__ import annotations

from seglog_rescue.backup.repository import Repository
from seglog_stores.formats.snapshot_manifest import PACKS, Part
from seglog_stores.formats.snapshot_reading import KnownLines, Manifest


class NamedObjects:
    """The objects that are named, the packs of each snapshot, and how many bytes of each object anybody names; what
    several manifests name counts once.
    """

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.packs: dict[str, set[str]] = {}  # by snapshot
        self._ranges: dict[str, set[int]] = {}  # by object: positions and sizes, in one number each
        self.lines = KnownLines(self._packs)

    def take(self, manifest: Manifest) -> None:
        """Takes a manifest. Raises CorruptTierError; what it then has taken stays."""
        packs = self.packs.setdefault(manifest.id, set())
        for _, of_line in manifest.lines(self.lines):
            packs |= of_line

    def _packs(self, part: Part) -> frozenset[str]:
        """Takes what a line names; returns its packs."""
        packs: set[str] = set()
        for file in part.files:
            for extent in file.extents:
                self.objects.add(extent.object)
                self._ranges.setdefault(extent.object, set()).add(extent.position << 64 | extent.size)
                if extent.object.startswith(f"{PACKS}/"):
                    packs.add(extent.object)
        return frozenset(packs)

    def sparse(self, repository: Repository, least: float = 1) -> frozenset[str]:
        """Returns the objects of which less than a share is named, and not nothing. Raises OSError."""
        named = {name: sum(each & 2**64 - 1 for each in ranges) for name, ranges in self._ranges.items()}
        return frozenset(name for name, status in repository.objects() if 0 < named.get(name, 0) < status.size * least)
