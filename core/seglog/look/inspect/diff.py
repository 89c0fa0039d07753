"""Compares two or more copies of a partition: replicas, a backup, before and after a change (`seglog diff`).

There are three levels. *bytes* compares the `.log` files byte by byte. *batches* compares the batches at each offset,
wherever segments were rolled, and past damage. *view* compares the latest value of each key, as a consumer of committed
records sees it (`diff_view`). `right` names the right copies where checksums show them: a batch is whole in one copy
and damaged in another, or only some copies of a file are undamaged. If all are whole, nothing shows which is right.

Batches are merged by offset, in constant memory; adjacent differences of the same kind become one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from seglog import layout
from seglog.format.columns import Records
from seglog.scan.listing import PartitionListing
from seglog.scan.log_walk import LogWalk, is_whole
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text
from seglog.verification.damage import with_damage
from seglog.verification.findings import Finding
from seglog.verification.soundness import sound_log_at_rest

_CHUNK_BYTES = 1 << 20
_COMPARED = (
    "last_offset",
    "crc",
    "size",
    "count",
    "magic",
    "attributes",
    "leader_epoch",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `has` tells for each copy whether it has the file, batch or key; `right` lists the copies that
    are right (None: unknown).

    `kind` is "missing" (some copies lack it), "differs", or "damaged" (no copy has it whole). `first_offset` and
    `last_offset` are the affected offsets; `count` counts batches or bytes, and is 1 for a key. `file` and `position`
    are those in the first copy that has it.
    """

    level: str
    kind: str
    has: tuple[bool, ...]
    message: str
    right: tuple[int, ...] | None = None
    file: str = ""
    position: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    count: int = 1
    key: bytes | None = None
    offsets: tuple[int | None, ...] = ()

    def as_dict(self, partition: str, copies: Sequence[str]) -> dict[str, Any]:
        """Returns the JSON line's fields, `type` first; copies are named by their paths."""
        row: dict[str, Any] = {
            "type": "difference",
            "level": self.level,
            "kind": self.kind,
            "partition": partition,
            "file": self.file or None,
            "position": self.position,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "count": self.count,
            "in": [name for name, has in zip(copies, self.has, strict=True) if has],
            "not_in": [name for name, has in zip(copies, self.has, strict=True) if not has],
            "right": None if self.right is None else [copies[i] for i in self.right],
            "message": self.message,
        }
        if self.offsets:
            row["offsets"] = list(self.offsets)
        return row


# --- bytes ------------------------------------------------------------------------------------------------


def diff_bytes(fs: FileSystem, copies: Sequence[PartitionListing]) -> Iterator[Difference]:
    """Yields the differences between `.log` files of the same name. Raises OSError."""
    files = [{segment.log.name: segment.log for segment in listing.segments} for listing in copies]
    for name in sorted({name for one in files for name in one}):
        paths = [one.get(name) for one in files]
        has = tuple(path is not None for path in paths)
        if not all(has):
            yield Difference("bytes", "missing", has, "not every copy has the file", file=name)
        present = [(i, path) for i, path in enumerate(paths) if path is not None]
        differing, first = _differing(fs, [path for _, path in present])
        if differing:
            right = _only_good(fs, present)
            message = f"{count_text(differing, 'byte')} differ, the first at position {first}"
            yield Difference("bytes", "differs", has, message, right, name, first, count=differing)


def _differing(fs: FileSystem, paths: Sequence[Path]) -> tuple[int, int | None]:
    """Returns (number of differing bytes, position of the first); bytes that only some files have count too."""
    files = [fs.open(path, "r") for path in paths]
    try:
        sizes = [file.size() for file in files]
        count, first, position = max(sizes) - min(sizes), None, 0
        while position < min(sizes):
            wanted = min(_CHUNK_BYTES, min(sizes) - position)
            pieces = [np.frombuffer(file.read_at(position, wanted), dtype=np.uint8) for file in files]
            shortest = min(len(piece) for piece in pieces)
            unequal = np.zeros(shortest, dtype=bool)
            for piece in pieces[1:]:
                unequal |= piece[:shortest] != pieces[0][:shortest]
            if unequal.any():
                first = position + int(np.argmax(unequal)) if first is None else first
                count += int(np.count_nonzero(unequal))
            if shortest < wanted:
                break  # a file was cut during the read
            position += wanted
    finally:
        for file in files:
            file.close()
    return count, min(sizes) if count and first is None else first


def _only_good(fs: FileSystem, present: Sequence[tuple[int, Path]]) -> tuple[int, ...] | None:
    """Returns the copies whose file is undamaged if some but not all are; otherwise None."""
    good = tuple(i for i, path in present if is_whole(fs, path))
    return good if good and len(good) < len(present) else None


# --- batches ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batch:
    base_offset: int
    last_offset: int
    fields: tuple[int, ...]
    file: str
    position: int


@dataclass(slots=True)
class _Copy:
    """One copy: its good batches, in order, and the offsets that it has lost to damage."""

    fs: FileSystem
    listing: PartitionListing
    selection: Selection
    damage: list[tuple[int, int]] = field(default_factory=list)
    last_offset: int = -1
    head: _Batch | None = None

    def batches(self) -> Iterator[_Batch]:
        for segment in self.listing.segments:
            waiting: list[_Batch] = []
            for step in with_damage(LogWalk(self.fs, segment.log), segment.log, segment.base_offset):
                if isinstance(step, Finding):
                    first, last = step.first_offset, step.last_offset
                    if first is not None and self.selection.reaches(first, last):
                        self.damage.append((first, layout.INT64_MAX if last is None else last))
                    continue
                yield from waiting
                good = step.batches[step.valid]
                shown = self.selection.of(Records.without_rows(good), False).batches_shown
                waiting = [_batch(row, segment.log.name) for row in good[shown]]
            yield from waiting

    def damaged_at(self, offset: int) -> bool:
        """True if damage may have destroyed `offset`; damage without a last offset extends to the next good batch."""
        if self.head is not None and self.head.base_offset <= offset:
            return False
        return any(first <= offset <= last for first, last in self.damage[-64:])


def _batch(row: np.void, file: str) -> _Batch:
    fields = tuple(int(row[name]) for name in _COMPARED)
    return _Batch(int(row["base_offset"]), int(row["last_offset"]), fields, file, int(row["position"]))


def have_same_batches(fs: FileSystem, directories: Sequence[Path]) -> bool:
    """True if one reading of each copy of a partition tells that all are sound and have the same batches. False says
    nothing about them."""
    first: bytes | None = None
    for directory in directories:
        log = sound_log_at_rest(fs, directory)
        if log is None:
            return False
        data = b"".join(piece.data.tobytes() for piece in log.pieces.values())  # wherever segments were rolled
        if first is not None and data != first:
            return False
        first = data
    return True


def diff_batches(fs: FileSystem, copies: Sequence[PartitionListing], selection: Selection) -> Iterator[Difference]:
    """Yields the differences between the batches that `selection` takes by their headers, by offset. Raises OSError."""
    sides = [_Copy(fs, listing, selection) for listing in copies]
    streams = [side.batches() for side in sides]
    for side, stream in zip(sides, streams, strict=True):
        side.head = next(stream, None)
    pending: Difference | None = None
    while heads := [side.head for side in sides if side.head is not None]:
        least = min(head.base_offset for head in heads)
        here = [side.head if side.head is not None and side.head.base_offset == least else None for side in sides]
        found = _compared(sides, here, least)
        if pending is not None and found is not None and _same_kind(pending) == _same_kind(found):
            last = max(pending.last_offset or 0, found.last_offset or 0)
            pending = replace(pending, last_offset=last, count=pending.count + 1)
        else:
            if pending is not None:
                yield pending
            pending = found
        for side, stream, batch in zip(sides, streams, here, strict=True):
            if batch is not None:
                side.head = next(stream, None)
    if pending is not None:
        yield pending
    yield from _damaged_everywhere(sides)


def _compared(sides: Sequence[_Copy], here: Sequence[_Batch | None], offset: int) -> Difference | None:
    has = tuple(batch is not None for batch in here)
    present = [batch for batch in here if batch is not None]
    first = present[0]
    same = all(batch.fields == first.fields for batch in present)
    if same and all(has):
        return None
    last = max(batch.last_offset for batch in present)
    damaged = tuple(i for i, side in enumerate(sides) if not has[i] and side.damaged_at(offset))
    right = None
    if damaged and same:
        right = tuple(i for i, there in enumerate(has) if there)
    if same:
        message = "damaged where it is missing" if damaged else "not every copy has it"
    else:
        names = [n for i, n in enumerate(_COMPARED) if len({batch.fields[i] for batch in present}) > 1]
        message = f"whole in every copy that has it, but with a different {', '.join(names).replace('_', ' ')}"
    kind = "missing" if same else "differs"
    return Difference("batches", kind, has, message, right, first.file, first.position, offset, last)


def _same_kind(found: Difference) -> tuple[object, ...]:
    """Returns the fields that adjacent differences must share to become one row."""
    return found.kind, found.has, found.right, found.message, found.file


def _damaged_everywhere(sides: Sequence[_Copy]) -> Iterator[Difference]:
    """Yields damage that all copies have at overlapping offsets."""
    for first, last in sides[0].damage:
        if all(any(f <= last and first <= to for f, to in side.damage) for side in sides[1:]):
            end = None if last == layout.INT64_MAX else last
            message = "damaged in every copy"
            none = (False,) * len(sides)
            yield Difference("batches", "damaged", none, message, (), first_offset=first, last_offset=end)
