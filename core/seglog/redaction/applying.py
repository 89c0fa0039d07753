"""Writes segments anew without the erased records, and puts them in the place of the old ones.

A new segment is written beside the old one as `.cleaned`, like a cleaner's, and flushed. Only its rewritten batches are
other bytes; all others are copied, and the indexes are built for their new positions. Then it takes the old one's names
(`swap.replace_segments`, with `over`): no file with the old bytes is left under any name, whenever the power goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.cleaner.output import CleanedOutput
from seglog.errors import IncompleteError, RefusedError
from seglog.format.checksum import byte_view
from seglog.format.decoder import scan_batches
from seglog.format.windows import WHOLE_LIMIT
from seglog.log.log import Log
from seglog.log.segment import LogSegment
from seglog.log.swap import AT_ONCE, Replacement
from seglog.redaction.finding import FoundRecords, TouchedBatch, TouchedSegment
from seglog.redaction.rewriting import Erasure, rewritten
from seglog.scan.segment_scan import Chunk
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import check_space, room_for_indexes


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """A `.log` that was written anew: its sizes and SHA-256 digests (hexadecimal) before and after."""

    path: Path
    base_offset: int
    size_before: int
    size_after: int
    digest_before: str
    digest_after: str
    batches: tuple[tuple[int, int, int], ...]  # (position before, base offset, records erased) of each rewritten batch


class RewrittenSegment:
    """Reads a segment, or a part of it, as it is without what is erased. `sizes` are those of the rewritten batches
    that were read so far, by their positions before.
    """

    def __init__(self, segment: LogSegment, touched: TouchedSegment, erasure: Erasure) -> None:
        self._segment, self._erasure = segment, erasure
        self._touched = {batch.position: batch for batch in touched.batches}
        self._before, self._after = hashlib.sha256(), hashlib.sha256()
        self.sizes: dict[int, int] = {}

    def parts(
        self, start: int = 0, end: int | None = None
    ) -> Iterator[tuple[np.ndarray | None, np.ndarray | Iterator[memoryview]]]:
        """Yields whole batches (their table, or None if some are rewritten; their bytes), and at last a batch that is
        too large for memory in pieces. Raises IncompleteError if a batch to rewrite is not there, RefusedError if it is
        too large.
        """
        for chunk in self._segment.scan(start, end):
            if not chunk.complete:
                yield self._large(chunk)
            elif any(position in self._touched for position in chunk.batches["position"].tolist()):
                yield None, self._taken(np.concatenate([*self._pieces(chunk)]))
            else:
                self._before.update(byte_view(chunk.data))
                yield chunk.batches, self._taken(chunk.data)
        if self._touched:
            raise IncompleteError(f"{self._segment.path}: the log changed while it was rewritten; nothing was changed")

    def _pieces(self, chunk: Chunk) -> Iterator[np.ndarray]:
        self._before.update(byte_view(chunk.data))
        start = 0
        for i, position in enumerate(chunk.batches["position"].tolist()):
            batch = self._touched.pop(position, None)
            if batch is None:
                continue
            at = position - chunk.position
            yield chunk.data[start:at]
            start = at + batch.size
            yield self._rewritten(chunk.data[at:start], chunk.batches[i : i + 1], batch)
        yield chunk.data[start:]

    def _rewritten(self, data: np.ndarray, row: np.ndarray, batch: TouchedBatch) -> np.ndarray:
        made = rewritten(self._segment.path, data, row, batch.offsets, self._erasure)
        self.sizes[batch.position] = len(made)
        return np.frombuffer(made, dtype=np.uint8)

    def _taken(self, data: np.ndarray) -> np.ndarray:
        self._after.update(byte_view(data))
        return data

    def _large(self, chunk: Chunk) -> tuple[np.ndarray | None, np.ndarray | Iterator[memoryview]]:
        """Takes a batch that is not held in memory: piece by piece, unless it must be rewritten."""
        batch = self._touched.pop(int(chunk.batches["position"][0]), None)
        if batch is None:
            return chunk.batches, self._counted(chunk.pieces())
        if batch.size > WHOLE_LIMIT:
            raise RefusedError(
                f"{self._segment.path}: the batch at position {batch.position} takes {batch.size} bytes, more than can"
                " be rewritten; nothing was changed"
            )
        data = np.frombuffer(b"".join(chunk.pieces()), dtype=np.uint8)
        self._before.update(byte_view(data))
        return None, self._taken(self._rewritten(data, chunk.batches, batch))

    def _counted(self, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        for piece in pieces:
            self._before.update(piece)
            self._after.update(piece)
            yield piece

    def file(self, touched: TouchedSegment, path: Path, size_after: int) -> RewrittenFile:
        """Returns what was done, after all `parts` were read; `path` is the file that was written anew."""
        return RewrittenFile(
            path,
            touched.base_offset,
            touched.size,
            size_after,
            self._before.hexdigest(),
            self._after.hexdigest(),
            tuple((batch.position, batch.base_offset, len(batch.offsets)) for batch in touched.batches),
        )


class _Writer:
    """Writes one segment anew."""

    def __init__(self, log: Log, segment: LogSegment, touched: TouchedSegment, erasure: Erasure) -> None:
        self._segment, self._content = segment, RewrittenSegment(segment, touched, erasure)
        self.output = CleanedOutput(log.fs, log.directory, segment.base_offset, log.config.index_interval_bytes)

    def write(self) -> None:
        for batches, data in self._content.parts():
            if not isinstance(data, np.ndarray):
                assert batches is not None
                self.output.segment.append(batches, data)
            else:
                rows = scan_batches(data, 0, len(data), 0).batches if batches is None else batches
                self.output.append(rows, data)
        self.output.append_aborted(self._segment.transaction_index.entries)
        self.output.finish(self._segment.modified_ms, None)

    def file(self, touched: TouchedSegment) -> RewrittenFile:
        """Returns what was done, after `write`."""
        return self._content.file(touched, touched.path, self.output.segment.size)


def apply_found(
    log: Log, found: FoundRecords, erasure: Erasure, done: Callable[[RewrittenFile], None] = lambda _: None
) -> list[RewrittenFile]:
    """Rewrites the touched segments, at most AT_ONCE at a time; calls `done` for each that has its place.

    Raises RefusedError, before anything is written, if the disk has no room. After any other error the segments that
    were replaced before it stay replaced, and the others are as they were.
    """
    require_room_to_rewrite(log.fs, found)
    segments = {segment.base_offset: segment for segment in log.segments}
    files: list[RewrittenFile] = []
    for first in range(0, len(found.segments), AT_ONCE):
        part = found.segments[first : first + AT_ONCE]
        writers: list[tuple[_Writer, TouchedSegment]] = []
        try:
            for touched in part:
                writer = _Writer(log, segments[touched.base_offset], touched, erasure)
                writers.append((writer, touched))
                writer.write()
        except BaseException:
            for writer, _ in writers:
                writer.output.discard()
            raise
        swapped = [Replacement([w.output.segment], [segments[t.base_offset]]) for w, t in writers]
        log.replace_segments(swapped, over=True)
        for writer, touched in writers:
            files.append(writer.file(touched))
            done(files[-1])
    return files


def require_room_to_rewrite(fs: FileSystem, found: FoundRecords) -> None:
    """Raises RefusedError unless the disk has room for the largest part that is written beside the old one."""
    sizes = [segment.size + room_for_indexes(segment.size) for segment in found.segments]
    parts = (sum(sizes[first : first + AT_ONCE]) for first in range(0, len(sizes), AT_ONCE))
    check_space(fs, found.directory, max(parts, default=0), found.directory.parent)
