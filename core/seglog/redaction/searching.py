"""Searches files for copies of records that are erased: every file below a directory, whatever its name.

Two searches run over each file. Batches are found wherever they begin, decompressed and decoded, and their records
compared with the selection; a copy that is cut or damaged still gives its whole records. And some of the erased bytes
are searched as bytes, in the file and in what its batches expand to: they may lie inside other values, or outside any
batch. A `grep` over compressed files would find nothing. Nor does this search in what others have packed: such files
are named as not searched, and so are logs with a part that is not a whole batch, and links that lead elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.escaping import escaped
from seglog.format.columns import Records
from seglog.format.filenames import FileKind, parse_partition_directory
from seglog.model import TopicPartition
from seglog.redaction.rewriting import Erasure
from seglog.redaction.searchable import Contents
from seglog.redaction.selection import RecordsToErase
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem
from seglog.units import count_is, count_text

LEAST_NEEDLE_BYTES = 8  # shorter ones lie in unrelated data, too
MOST_NEEDLES = 16
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Trace:
    """A file in which copies lie: records of the selection that are not erased, and places of erased bytes.

    `first_position` is the position in the file of the first batch with such a record, or of the first such bytes.
    """

    path: Path
    records: int
    places: int
    first_position: int

    def __str__(self) -> str:
        counts = ((self.records, "record"), (self.places, "place"))
        found = " and ".join(count_text(count, noun) for count, noun in counts if count)
        return f"{escaped(str(self.path))}: {found}, from position {self.first_position} on"


@dataclass(slots=True)
class SearchReport:
    """What a search went through. `unread` are files of which it proves nothing, with the reason: they could not be
    read, or hide what is in them (`searchable`).
    """

    files: int = 0
    bytes: int = 0
    records: int = 0
    needles: int = 0
    unread: list[tuple[Path, str]] = field(default_factory=list)


class Identities:
    """Records by their identity: a digest of offset, timestamp, key and value, by a secret of this process."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: set[bytes] = set()
        self.offsets = np.empty(0, dtype=np.int64)

    def merge(self, other: Identities) -> None:
        """Adds those of another search with the same secret."""
        self._known |= other._known
        self.offsets = np.union1d(self.offsets, other.offsets)

    def add(self, records: Records, mask: np.ndarray) -> None:
        """Adds the records of a mask."""
        for i in np.flatnonzero(mask).tolist():
            self._known.add(self._identity(records, i))
        self.offsets = np.union1d(self.offsets, records.rows["offset"][mask])

    def mask(self, records: Records) -> np.ndarray:
        """Returns which records are known (bool, one a record)."""
        mask = np.isin(records.rows["offset"], self.offsets)
        for i in np.flatnonzero(mask).tolist():
            mask[i] = self._identity(records, i) in self._known
        return mask

    def _identity(self, records: Records, i: int) -> bytes:
        row = records.rows[i]
        parts = hashlib.blake2b(key=self._secret, digest_size=16)
        parts.update(int(row["offset"]).to_bytes(8, "big", signed=True))
        parts.update(int(row["timestamp"]).to_bytes(8, "big", signed=True))
        for part in (records.key(i), records.value(i)):
            parts.update(b"-" if part is None else b"+%d:" % len(part) + part)
        return parts.digest()


class Needles:
    """Some erased values and keys, to be searched as bytes: at most MOST_NEEDLES of at least LEAST_NEEDLE_BYTES."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._found: dict[bytes, None] = {}
        self.left_out = 0
        for key in keys:
            self.add(key)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, data: bytes | None) -> None:
        """Adds a value or key, unless it is too short or there are enough."""
        if data is None or len(data) < LEAST_NEEDLE_BYTES or not any(data) or data in self._found:
            return
        if len(self._found) < MOST_NEEDLES:
            self._found[data] = None
        else:
            self.left_out += 1


class Remembered:
    """What is remembered of records that are met, to search for copies of them. It can be sent between processes."""

    def __init__(self, selection: RecordsToErase, erasure: Erasure, secret: bytes) -> None:
        self._request = selection, erasure, secret
        self._by_offset = selection.keys is None
        self.identities = Identities(secret)
        self.needles = Needles(selection.keys if selection.keys is not None and not erasure.keeps_key else ())

    def fresh(self) -> Remembered:
        """Returns an empty one for another part of the same request."""
        return Remembered(*self._request)

    def take(self, records: Records, mask: np.ndarray) -> None:
        """Takes the records of a mask."""
        if self._by_offset:
            self.identities.add(records, mask)
        for i in np.flatnonzero(mask).tolist():
            self.needles.add(records.value(i))

    def merge(self, other: Remembered) -> None:
        """Takes what another search of the same request remembers."""
        self.identities.merge(other.identities)
        for needle in other.needles:
            self.needles.add(needle)


class CopySearch:
    """A search for what a selection and an erasure say must be gone.

    `others` are the partition directories that were not asked about: their records are their own.
    """

    def __init__(
        self,
        fs: FileSystem,
        selection: RecordsToErase,
        erasure: Erasure,
        remembered: Remembered,
        others: Collection[Path] = (),
    ) -> None:
        self._others = frozenset(others)
        self._fs, self._selection, self._erasure = fs, selection, erasure
        self._identities, self._needles = remembered.identities, remembered.needles
        self.searched = SearchReport(needles=len(remembered.needles))

    def below(self, roots: Sequence[Path]) -> Iterator[Trace]:
        """Yields a trace for each file below the roots that has one, each file once.

        Links are followed, except those that another user may have planted: such a link counts as unread.
        """
        seen: set[Path] = set()
        entered: set[tuple[int, int]] = set()
        for root in roots:
            for path in self._files(root, entered):
                if path in seen:
                    continue
                seen.add(path)
                trace = self._look(path)
                if trace is not None:
                    yield trace

    def _files(self, root: Path, entered: set[tuple[int, int]]) -> Iterator[Path]:
        """Yields the files below a root; `entered` are the devices and inodes of directories: a link may lead back."""
        status = self._fs.status(root)
        if status is None:
            return
        if not status.is_directory:
            yield root
            return
        if status.inode and (status.device, status.inode) in entered:
            return
        entered.add((status.device, status.inode))
        try:
            entries = sorted(self._fs.entries(root))
        except OSError as error:
            self.searched.unread.append((root, error.strerror or str(error)))
            return
        for name, found in entries:
            if found.is_directory and root / name not in self._others:
                yield from self._files(root / name, entered)
            elif found.is_link:
                self.searched.unread.append((root / name, "it is a link that another user may have planted"))
            elif not (found.is_directory or found.is_special):
                yield root / name

    def _look(self, path: Path) -> Trace | None:
        contents = Contents(path)
        try:
            records, first, reason = self._in_records(path)
            places, first_place = self._in_bytes(path, contents)
        except OSError as error:
            self.searched.unread.append((path, error.strerror or str(error)))
            return None
        reason = contents.hides() if reason is None else reason
        if reason:
            self.searched.unread.append((path, reason))
        else:
            self.searched.files += 1
        if not records and not places:
            return None
        return Trace(path, records, places, min(at for at in (first, first_place) if at is not None))

    def _in_records(self, path: Path) -> tuple[int, int | None, str | None]:
        """Returns how many records of a file are not erased, or hold erased bytes; where the first batch is; and why a
        part of the log may hide some, "" if none does, None if the file is not a log.
        """
        selection = self._selection.of(_partition_around(path))
        count, first, reason = 0, None, ""
        is_log = path.name.partition(".")[2].startswith(FileKind.LOG.value[1:])
        for piece in LogWalk(self._fs, path):
            if isinstance(piece, Gap):
                if not piece.zeros and not reason:
                    reason = f"{count_is(piece.length, 'byte')} not a whole batch (from position {piece.position} on)"
                continue
            is_log = is_log or bool(piece.valid.any())
            for records in piece.records():
                self.searched.records += len(records)
                mask = self._left(records, selection)
                if mask.any():
                    count += int(np.count_nonzero(mask))
                    batch = int(records.rows["batch"][int(np.argmax(mask))])
                    first = int(records.batches["position"][batch]) if first is None else first
                if records.status.any() and not reason:
                    at = int(records.batches["position"][int(np.argmax(records.status != 0))])
                    reason = f"not all records of the batch at position {at} can be read"
        return count, first, reason if is_log else None

    def _left(self, records: Records, selection: Selection) -> np.ndarray:
        mask = np.zeros(len(records), dtype=np.bool_)
        if selection.keys is None:
            mask |= self._identities.mask(records)
        else:
            mask |= selection.mask(records)
            if mask.any() and self._erasure.keeps_key:
                mask &= ~self._erasure.done(records)
        if len(self._needles) and (records.batches["attributes"] & layout.CODEC_MASK).any():
            mask |= self._holding(records)  # what is not compressed is searched in the file
        return mask

    def _holding(self, records: Records) -> np.ndarray:
        """Returns which records hold erased bytes: the one in which, or before which, they begin."""
        mask = np.zeros(len(records), dtype=np.bool_)
        data = records.arena.tobytes()
        starts = records.rows["position"]
        for needle in self._needles:
            at = data.find(needle)
            while at >= 0:
                mask[max(0, int(np.searchsorted(starts, at, side="right")) - 1)] = True
                at = data.find(needle, at + 1)
        return mask

    def _in_bytes(self, path: Path, contents: Contents) -> tuple[int, int | None]:
        """Returns how often needles lie in the bytes of a file, and where the first one begins. `contents` sees all."""
        longest = max(map(len, self._needles), default=0)
        count, first, position = 0, None, 0
        with self._fs.open(path, "r") as file:
            kept = b""
            while data := file.read_at(position, _PIECE_BYTES):
                contents.take(data)
                window, start = kept + data, position - len(kept)
                for needle in self._needles:
                    at = window.find(needle, max(0, len(kept) - len(needle) + 1))
                    while at >= 0:
                        count += 1
                        first = start + at if first is None else min(first, start + at)
                        at = window.find(needle, at + 1)
                position += len(data)
                kept = window[-(longest - 1) :] if longest > 1 else b""
        self.searched.bytes += position
        return count, first


def _partition_around(path: Path) -> TopicPartition:
    """Returns the partition in whose directory a file lies, by the directories' names; else one that no topic has."""
    for parent in path.parents:
        name = parse_partition_directory(parent.name)
        if name is not None:
            return name.topic_partition
    return TopicPartition("", 0)
