"""`Records`: decoded records as a table of spans over one buffer, from which single records can be taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Literal

import numpy as np

from seglog import layout
from seglog.kernels import records as kernels
from seglog.model import Header, Record

Side = Literal["key", "value"]
SIDES: tuple[Side, ...] = ("key", "value")  # a record's, in the order of its parts

# Descriptions of the statuses other than 0, for findings and errors.
STATUS_REASONS: dict[int, str] = {
    kernels.COUNT_INVALID: "the record count is negative or more than the bytes can hold",
    kernels.LENGTH_INVALID: "a record's length does not fit the batch",
    kernels.FIELD_INVALID: "a record has a malformed number, or a key or value that leaves the record",
    kernels.HEADERS_INVALID: "a record's headers are malformed",
    kernels.BODY_INVALID: "a record is not as long as it says",
    kernels.TRAILING_BYTES: "bytes follow the last record of the batch",
    kernels.ENTRY_INVALID: "a message is malformed",
    kernels.OFFSET_INVALID: "a message's relative offset exceeds its wrapper's offset",
    kernels.COMPRESSED_INSIDE: "a compressed message lies inside a compressed one",
    kernels.DECOMPRESSION_FAILED: "the compressed records cannot be decompressed",
    kernels.DECOMPRESSION_TOO_LARGE: "the compressed records expand beyond the limit",
    kernels.CODEC_UNKNOWN: "the compression codec is unknown",
    kernels.RECORD_TOO_LARGE: "a record is larger than 128 MiB, and not read",
}
# Statuses of batches that may be valid, but exceed what this library holds in memory.
TOO_LARGE = (kernels.DECOMPRESSION_TOO_LARGE, kernels.RECORD_TOO_LARGE)

# Record objects are created in groups, from one copy of the group's bytes if that is small enough.
_OBJECTS_AT_ONCE = 1024
_COPIED_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Records:
    """Decoded records of a run of batches.

    `arena` is a uint8 array; `rows` (layout.RECORD, one per record, in log order) holds positions in it, and
    `rows["batch"]` is a row of `batches` (layout.BATCH). `status` (int8, one per batch) is 0 if everything was
    decoded, else a key of STATUS_REASONS: then only the rows before the broken record are there. `first_batch` is the
    index of `batches[0]` in the table that was decoded.

    A batch too large to be held comes in parts. Each part has this one batch and its final status; `rows_before` of its
    records came in earlier parts, and `rows_after` come in later ones.
    """

    arena: np.ndarray
    rows: np.ndarray
    batches: np.ndarray
    status: np.ndarray
    first_batch: int = 0
    rows_before: int = 0
    rows_after: int = 0

    @classmethod
    def without_rows(cls, batches: np.ndarray, status: int = kernels.RECORDS_VALID, first_batch: int = 0) -> Records:
        """Returns batches of one status without their records."""
        arena, rows = np.zeros(0, dtype=np.uint8), np.zeros(0, dtype=layout.RECORD)
        return cls(arena, rows, batches, np.full(len(batches), status, dtype=np.int8), first_batch)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        starts = range(0, len(self.rows), _OBJECTS_AT_ONCE)
        return chain.from_iterable(self._objects(start, start + _OBJECTS_AT_ONCE) for start in starts)

    def __repr__(self) -> str:
        if not len(self.rows):
            return f"<Records: none, of {len(self.batches)} batches>"
        first, last = int(self.rows["offset"][0]), int(self.rows["offset"][-1])
        return f"<Records: {len(self.rows)}, offsets {first} to {last}, of {len(self.batches)} batches>"

    def key(self, i: int) -> bytes | None:
        """Returns the key of record `i`, or None if it is null."""
        return self._span(self.rows[i]["key_position"], self.rows[i]["key_size"])

    def value(self, i: int) -> bytes | None:
        """Returns the value of record `i`, or None if it is null."""
        return self._span(self.rows[i]["value_position"], self.rows[i]["value_size"])

    def headers(self, i: int) -> tuple[Header, ...]:
        """Returns the headers of record `i`. Surrogate escapes keep key bytes that are not UTF-8."""
        row = self.rows[i]
        count, p = int(row["header_count"]), int(row["headers_position"])
        if count == 0:
            return ()
        return _headers(self.arena[p : int(row["position"]) + int(row["size"])].tobytes(), count)

    def parts(self, name: Literal["key", "value", "headers"]) -> list[bytes | None]:
        """Returns the keys, values or headers of all records as they are written; None where there is none."""
        rows = self.rows
        positions = rows[f"{name}_position"]
        if name == "headers":
            sizes = np.where(rows["header_count"] > 0, rows["position"] + rows["size"] - positions, -1)
        else:
            sizes = rows[f"{name}_size"]
        groups = (slice(start, start + _OBJECTS_AT_ONCE) for start in range(0, len(rows), _OBJECTS_AT_ONCE))
        return list(chain.from_iterable(self._spans(positions[group], sizes[group]) for group in groups))

    def record(self, i: int) -> Record:
        """Returns record `i` as an object. To get all records, iterate."""
        i = range(len(self.rows))[i]
        (found,) = self._objects(i, i + 1)
        return found

    def _span(self, position: int, size: int) -> bytes | None:
        return None if size < 0 else self.arena[position : position + size].tobytes()

    def _objects(self, first: int, end: int) -> Iterator[Record]:
        """Returns records `first` to `end` as objects, made column by column, without a Python call per record."""
        rows = self.rows[first:end]
        headers: Sequence[tuple[Header, ...]] = ((),) * len(rows)
        if rows["header_count"].any():
            headers = [self.headers(i) for i in range(first, first + len(rows))]
        fields = (
            self._spans(rows["value_position"], rows["value_size"]),
            self._spans(rows["key_position"], rows["key_size"]),
            rows["timestamp"].tolist(),
            headers,
            rows["offset"].tolist(),
            rows["sequence"].tolist(),
        )
        return map(tuple.__new__, repeat(Record), zip(*fields, strict=True))

    def _spans(self, positions: np.ndarray, sizes: np.ndarray) -> list[bytes | None]:
        """Returns the bytes of each span, or None where the size is negative."""
        there = sizes >= 0
        if not there.any():
            return [None] * len(sizes)
        ends = positions + sizes
        low, high = int(positions[there].min()), int(ends[there].max())
        starts, stops = (positions - low).tolist(), (ends - low).tolist()
        if high - low <= _COPIED_AT_ONCE:
            data = self.arena[low:high].tobytes()
            found: list[bytes | None] = [data[start:stop] for start, stop in zip(starts, stops, strict=True)]
        else:
            view = self.arena[low:high].data
            found = [bytes(view[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        for i in np.flatnonzero(~there).tolist():
            found[i] = None
        return found


def _headers(data: bytes, count: int) -> tuple[Header, ...]:
    """Returns the `count` headers at the beginning of `data`, which are known to be well-formed."""
    found, p = [], 0
    for _ in range(count):
        size, p = _varint(data, p)
        name, p = data[p : p + size].decode("utf-8", "surrogateescape"), p + size
        size, p = _varint(data, p)
        found.append(Header(name, None if size < 0 else data[p : p + size]))
        p += max(size, 0)
    return tuple(found)


def _varint(data: bytes, p: int) -> tuple[int, int]:
    """Returns the zig-zag number at `p` and the position after it (Kafka: ByteUtils.readVarint)."""
    byte = data[p]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), p + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        p += 1
        byte = data[p]
        value |= (byte & 0x7F) << shift
        shift += 7
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), p + 1


def joined(parts: Sequence[Records]) -> Records:
    """Joins the parts of one table of batches, for callers that need all of them and know that they are small."""
    if len(parts) == 1:
        return parts[0]
    arenas: list[np.ndarray] = []
    shifts, end = [], 0
    for part in parts:
        if not arenas or part.arena is not arenas[-1]:  # parts of one arena follow each other
            arenas.append(part.arena)
            end += len(part.arena)
        shifts.append(end - len(part.arena))
    lengths, first = [len(part.rows) for part in parts], parts[0].first_batch
    rows = joined_rows([part.rows for part in parts])
    moved = np.repeat(np.array(shifts, np.int32), lengths)  # an OverflowError beyond 2 GiB
    for name in ("position", "key_position", "value_position", "headers_position"):
        rows[name] += moved
    rows["batch"] += np.repeat([part.first_batch - first for part in parts], lengths)
    heads = [part for part in parts if not part.rows_before]
    batches = joined_rows([part.batches for part in heads])
    status = np.concatenate([part.status for part in heads])
    return Records(arenas[0] if len(arenas) == 1 else np.concatenate(arenas), rows, batches, status, first)


def joined_rows(tables: Sequence[np.ndarray]) -> np.ndarray:
    """Joins tables of one dtype. Of rows with fields numpy would settle the common type anew for each table."""
    dtype = tables[0].dtype
    return np.concatenate([table.view(f"V{dtype.itemsize}") for table in tables]).view(dtype)
