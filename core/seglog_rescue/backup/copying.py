"""Copies a file while somebody else reads it: what is checked, digested and stored are the same bytes, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.errors import RefusedError
from seglog.storage.files import PIECE_BYTES
from seglog.storage.filesystem import File, PassingFile
from seglog_rescue.backup.repository import DIGEST_BLOCK, ContentDigest, block_checksums

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class CopiedFile(PassingFile):
    """A file whose bytes from `start` on are digested when they are first read, and written to `target` if there is
    one. Bytes that a reader passes over are read then. One thread reads.
    """

    def __init__(self, below: File, start: int, target: File | None) -> None:
        super().__init__(below)
        self.start, self.target = start, target
        self._end = start  # of what was copied
        self._checksums = bytearray()  # of whole blocks
        self._begun = bytearray()  # the block that is not whole yet

    def read_at(self, position: int, size: int) -> bytes:
        data = super().read_at(position, size)
        self._take(position, memoryview(data))
        return data

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        count = super().read_into(position, buffer)
        self._take(position, memoryview(buffer).cast("B")[:count])
        return count

    def lend(self, position: int, size: int) -> memoryview | None:
        lent = super().lend(position, size)
        if lent is not None:
            self._take(position, lent)
        return lent

    def finish(self, end: int) -> str:
        """Ends the copy before `end`, and returns the digest of its bytes. Raises RefusedError if there are fewer."""
        self._catch_up(end)
        whole, rest = divmod(end - self.start, DIGEST_BLOCK)
        checksums, last = bytes(self._checksums[: 4 * whole]), bytes(self._begun)
        if end < self._end:  # the reader was further than what is stored
            last = super().read_at(end - rest, rest)
            if self.target is not None:
                self.target.truncate(end - self.start)
        return ContentDigest(checksums + block_checksums(last)).text()

    def _catch_up(self, end: int) -> None:
        while self._end < end:
            piece = super().read_at(self._end, min(PIECE_BYTES, end - self._end))
            if not piece:
                raise RefusedError(f"{self.path} is shorter than it was")
            self._take(self._end, memoryview(piece))

    def _take(self, position: int, data: memoryview) -> None:
        end = position + data.nbytes
        if end <= self._end:
            return
        self._catch_up(position)
        new = data[self._end - position :]
        if self.target is not None:
            self.target.write_at(self._end - self.start, new)
        self._end = end
        if self._begun:
            front = new[: DIGEST_BLOCK - len(self._begun)]
            self._begun += front
            new = new[front.nbytes :]
            if len(self._begun) < DIGEST_BLOCK:
                return
            self._checksums += block_checksums(self._begun)
        whole = new.nbytes - new.nbytes % DIGEST_BLOCK
        self._checksums += block_checksums(new[:whole])
        self._begun = bytearray(new[whole:])
