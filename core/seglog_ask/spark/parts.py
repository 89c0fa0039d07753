"""Verifies a giant partition in parts, one task each; a final look reports what only the whole log shows.

Steps:

1. `parts_of` cuts the segments of a partition at positions, by their sizes alone.
2. `verify_part` finds the first and last batches of its part, and walks it as a thread of a look does
   (`batches.clean_range`). It returns counts, and the packed headers of its batches.
3. A `Verification` asks for these (`known_ranges`) and looks at the partition. It does not read known ranges of an
   unchanged segment again, except from the first wrong batch on. So the findings are those of a single look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.compression import compress, decompress
from seglog.model import Compression
from seglog.scan.listing import PartitionListing
from seglog.scan.log_walk import WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.verification.batches import Level, RangeResult, clean_range
from seglog.verification.partition_look import LookedAt, boundary

_ROUND_BYTES = 4 << 20  # parts begin where requests to an object store begin
_COLUMNS = [name for name in layout.BATCH.names or () if name != "crc"]  # the checksums are already verified


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a log of `size` bytes, from the first batch at or after `cuts[0]` to the first one at or after
    `cuts[1]`, or after the next cut that has a batch nearby. The last cut is the log's end.
    """

    log: Path
    size: int
    offsets: PlausibleOffsets
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _PackedEntries:
    """One table of batches: `columns` of `count` rows, and the bytes of control batches."""

    position: int
    count: int
    columns: bytes
    data: bytes
    complete: bool


@dataclass(frozen=True, slots=True)
class KnownRange:
    """The result for bytes `start` to `end` of a log, None if anything is wrong there."""

    start: int
    end: int
    result: RangeResult | None
    entries: tuple[_PackedEntries, ...] = ()

    def opened(self, fs: FileSystem, log: Path) -> RangeResult | None:
        """Returns the result with the headers of its batches."""
        if self.result is None:
            return None
        return replace(self.result, pieces=tuple(_unpacked(fs, log, each) for each in self.entries))


@dataclass(frozen=True, slots=True)
class KnownPart:
    """The ranges of a part, in order. `stamp` is that of the log before they were read."""

    log: Path
    stamp: tuple[int, int, str]
    ranges: tuple[KnownRange, ...]


KnownParts = Mapping[Path, Sequence[KnownPart]]


def parts_of(listing: PartitionListing, most_bytes: int, file: str | None = None) -> Iterator[Part]:
    """Yields the parts of a partition, or of one `file` of it, of about `most_bytes` at most."""
    for number, segment in enumerate(listing.segments):
        if file is not None and segment.log.name != file:
            continue
        pieces = max(1, -(-segment.size // most_bytes))
        step = _ROUND_BYTES if most_bytes >= _ROUND_BYTES else 1
        cuts = [i * segment.size // pieces for i in range(pieces)]
        cuts = [cut - cut % step for cut in cuts] + [segment.size]
        for i in range(pieces):
            yield Part(segment.log, segment.size, PlausibleOffsets.of_number(listing.segments, number), tuple(cuts[i:]))


def verify_part(fs: FileSystem, part: Part, level: Level, most_bytes: int | None = None) -> KnownPart | None:
    """Verifies a part. Returns None if the log has changed since it was cut.

    Returns at most `most_bytes` of packed headers; a look reads the rest itself.
    """
    status = fs.status(part.log)
    if status is None or status.size != part.size:
        return None
    first, *later, stop = part.cuts
    start = boundary(fs, part.log, part.size, first, part.offsets) if first else 0
    found = (boundary(fs, part.log, part.size, cut, part.offsets) for cut in later)
    end = next((each for each in found if each is not None), stop)
    ranges: list[KnownRange] = []
    packed = 0
    while start is not None and start < end:
        result = clean_range(fs, part.log, start, end, part.offsets, level, keep=level >= Level.INDEX)
        if result is None:
            ranges.append(KnownRange(start, end, None))
            break
        entries = tuple(_packed(each) for each in result.pieces)
        packed += sum(len(each.columns) + len(each.data) for each in entries)
        if most_bytes is not None and packed > most_bytes:
            break
        ranges.append(KnownRange(start, result.end, replace(result, pieces=()), entries))
        start = result.end
    return KnownPart(part.log, stamp_of(status), tuple(ranges))


def stamp_of(status: FileStatus) -> tuple[int, int, str]:
    """Returns a value that changes when the file changes."""
    return status.size, status.modified_ns, status.version


def by_log(parts: Iterable[KnownPart | None]) -> dict[Path, list[KnownPart]]:
    """Groups parts by log, in order."""
    known: dict[Path, list[KnownPart]] = {}
    for part in parts:
        if part is not None:
            known.setdefault(part.log, []).append(part)
    return known


def known_ranges(known: KnownParts, fs: FileSystem, log: Path) -> Iterator[LookedAt] | None:
    """Returns the known ranges of a log from its first byte, without a gap, as a look takes them; None if nothing is
    known of its present state.
    """
    status, parts = fs.status(log), known.get(log)
    if not parts or status is None or any(part.stamp != stamp_of(status) for part in parts):
        return None
    ranges: list[KnownRange] = []
    for part_range in (part_range for part in parts for part_range in part.ranges):
        if part_range.start != (ranges[-1].end if ranges else 0):
            break
        ranges.append(part_range)
    return ((each.end, each.opened(fs, log)) for each in ranges)


def _packed(entries: WalkedEntries) -> _PackedEntries:
    rows = entries.batches
    columns = (np.diff(rows[name], prepend=rows.dtype[name].type(0)).tobytes() for name in _COLUMNS)
    packed = compress(Compression.ZSTD, b"".join(columns), level=1)
    return _PackedEntries(entries.position, len(rows), packed, entries.data.tobytes(), entries.complete)


def _unpacked(fs: FileSystem, log: Path, packed: _PackedEntries) -> WalkedEntries:
    rows = np.zeros(packed.count, dtype=layout.BATCH)
    columns = decompress(Compression.ZSTD, packed.columns, limit=layout.BATCH.itemsize * packed.count)
    at = 0
    for name in _COLUMNS:
        kind = rows.dtype[name]
        differences = np.frombuffer(columns, dtype=kind, count=packed.count, offset=at)
        rows[name] = np.cumsum(differences, dtype=kind)
        at += differences.nbytes
    data, valid = np.frombuffer(packed.data, dtype=np.uint8), np.ones(packed.count, dtype=bool)
    return WalkedEntries(packed.position, data, rows, valid, partial(fs.open, log, "r"), packed.complete)
