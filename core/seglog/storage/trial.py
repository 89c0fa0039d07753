"""Trying what would change files: the changes stay in memory, and what was tried is kept where there were none.

Opening a log for writing may recover it, which cleaning refuses where that would cut anything off. Of a log that was
closed properly opening changes nothing: it need not be opened a second time to be written.
"""

from __future__ import annotations

from seglog.storage.filesystem import FileSystem
from seglog.storage.forwarding import PassingFileSystem
from seglog.storage.overlay import OverlayFileSystem, RoomTaken


class TrialFileSystem(PassingFileSystem):
    """`below` as an overlay shows it, until `keep` lets every call through."""

    def __init__(self, below: FileSystem) -> None:
        self._overlay, self._real = OverlayFileSystem(below), below
        super().__init__(self._overlay)

    @property
    def unchanged(self) -> bool:
        """Whether nothing was changed in memory. A file that was opened to be written counts as changed."""
        return not self._overlay.touched

    @property
    def room(self) -> RoomTaken:
        """What the changes would take on a disk."""
        return self._overlay.room

    def keep(self) -> None:
        """Ends the trial: what is read and written from here on is read and written below. ValueError where a change
        would be lost.
        """
        if not self.unchanged:
            raise ValueError("a trial that changed something cannot be kept")
        self._below = self._real
