"""The segments of a partition by their names alone: one listing, and a `stat` for each log that is asked about.

A partition may have ten thousand segments, and a query or a trigger may want one: what is not wanted costs nothing.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import NotALogError, RefusedError, UnsupportedError
from seglog.format.filenames import FileKind, FileName, FileState, parse_file_name
from seglog.format.tier_names import WATERMARK
from seglog.remote.failures import ChangedObjectError
from seglog.scan.listing import INDEX_KINDS, SegmentFiles
from seglog.storage.filesystem import FileSystem

# What says that a file that was listed is another one by now, or gone; of an object, at the first read.
GONE = (FileNotFoundError, ChangedObjectError)
_PAUSES_S = (0.0, 0.001, 0.003, 0.01, 0.03)

Identity = tuple[int, int, int]  # size, modification time in nanoseconds, inode


@dataclass(frozen=True, slots=True)
class SegmentName:
    """A `.log` file and its indexes (None: there is none), as the listing had them."""

    base_offset: int
    log: Path
    offset_index: Path | None = None
    time_index: Path | None = None
    transaction_index: Path | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment whose log was looked at: `files` and what the file was then, an object's ETag included."""

    files: SegmentFiles
    identity: Identity
    version: str


def list_segments(fs: FileSystem, directory: Path) -> tuple[SegmentName, ...]:
    """The segments by base offset. NotALogError when there is no such directory, UnsupportedError for a 0.7 log.

    Where files are being replaced, it is looked at until two looks agree and no swap is under way: in the middle of one
    neither the old segments nor the new ones have their names. What a crash left is not waited for much longer.
    """
    names = _names_in(fs, directory)
    for pause in _PAUSES_S:
        states = {parsed.state for parsed in names.values()}
        if states <= {FileState.LIVE}:
            break
        again = _names_in(fs, directory)
        if again == names and FileState.SWAP not in states:
            break
        time.sleep(pause)
        names = again
    return _segments_of(directory, names)


def _names_in(fs: FileSystem, directory: Path) -> dict[str, FileName]:
    """The names that begin with an offset, and their parts."""
    try:
        listed = fs.list(directory)
    except FileNotFoundError as error:
        raise NotALogError(directory, "no such directory") from error
    except NotADirectoryError as error:
        raise NotALogError(directory, "not a directory") from error
    if WATERMARK in listed:
        raise RefusedError(
            f"{directory}: {WATERMARK} says how far Pinterest's uploader has come; it is heeded where this directory is"
            " named, and not one above it"
        )
    return {name: parsed for name in listed if (parsed := parse_file_name(name)) is not None}


def _segments_of(directory: Path, names: Mapping[str, FileName]) -> tuple[SegmentName, ...]:
    found: dict[FileKind, dict[int, Path]] = {kind: {} for kind in FileKind}
    for name, parsed in names.items():
        if parsed.state is FileState.LIVE:
            found[parsed.kind][parsed.offset] = directory / name
    if found[FileKind.LOG_07] and not found[FileKind.LOG]:
        raise UnsupportedError(
            f"{directory}: a log of Kafka 0.7 has no offsets to read by; `seglog append --create --input-format jsonl`"
            " makes a newer one of what `seglog read --json` shows of it"
        )
    return tuple(
        SegmentName(offset, found[FileKind.LOG][offset], *(found[kind].get(offset) for kind in INDEX_KINDS))
        for offset in sorted(found[FileKind.LOG])
    )


def look_at(fs: FileSystem, name: SegmentName) -> Segment:
    """What the segment's log is now. FileNotFoundError when it is gone."""
    status = fs.status(name.log)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(name.log))
    if status.is_directory:
        raise NotALogError(name.log, "a directory where a segment must be")
    files = SegmentFiles(
        name.base_offset,
        name.log,
        status.size,
        status.modified_ms,
        name.offset_index,
        name.time_index,
        name.transaction_index,
    )
    return Segment(files, (status.size, status.modified_ns, status.inode), status.version)
