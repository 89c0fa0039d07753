"""`Records`: decoded records as a table of spans over one buffer, and single records out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.kernels import records as kernels
from seglog.kernels.varint import read_varint
from seglog.model import Header, Record

# What a status other than 0 means, for findings and errors.
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
# Statuses of batches that may be as they should be, and are more than this library holds.
TOO_LARGE = (kernels.DECOMPRESSION_TOO_LARGE, kernels.RECORD_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class Records:
    """Decoded records of a run of batches.

    `arena` is a uint8 array; `rows` (layout.RECORD, one a record, in log order) holds positions in it, and
    `rows["batch"]` is a row of `batches` (layout.BATCH). `status` (int8, one a batch) is 0 where everything was
    decoded, else a key of STATUS_REASONS: the rows before the broken record are there, the rest are not.
    `first_batch` is the index of `batches[0]` in the table that was decoded.

    A batch that is too large to be held comes in parts, each with this one batch and the status that it has in the end;
    `rows_before` of its records came in earlier parts, `rows_behind` come in later ones.
    """

    arena: np.ndarray
    rows: np.ndarray
    batches: np.ndarray
    status: np.ndarray
    first_batch: int = 0
    rows_before: int = 0
    rows_behind: int = 0

    @classmethod
    def without_rows(cls, batches: np.ndarray, status: int = kernels.RECORDS_VALID, first_batch: int = 0) -> Records:
        """Batches of one status, and none of their records."""
        arena, rows = np.zeros(0, dtype=np.uint8), np.zeros(0, dtype=layout.RECORD)
        return cls(arena, rows, batches, np.full(len(batches), status, dtype=np.int8), first_batch)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        return (self.record(i) for i in range(len(self.rows)))

    def key(self, i: int) -> bytes | None:
        """The key of record `i`; None is null."""
        return self._span(self.rows[i]["key_position"], self.rows[i]["key_size"])

    def value(self, i: int) -> bytes | None:
        """The value of record `i`; None is null."""
        return self._span(self.rows[i]["value_position"], self.rows[i]["value_size"])

    def headers(self, i: int) -> tuple[Header, ...]:
        """The headers of record `i`. Key bytes that are not UTF-8 are kept by surrogate escape."""
        row = self.rows[i]
        count = int(row["header_count"])
        if count == 0:
            return ()
        found = []
        p, end = int(row["headers_position"]), int(row["position"]) + int(row["size"])
        for _ in range(count):
            size, p = read_varint(self.arena, p, end)
            name = self.arena[p : p + size].tobytes().decode("utf-8", "surrogateescape")
            p += size
            size, p = read_varint(self.arena, p, end)
            found.append(Header(name, self._span(p, size)))
            p += max(size, 0)
        return tuple(found)

    def record(self, i: int) -> Record:
        """Record `i` as an object, for callers who go one by one."""
        row = self.rows[i]
        return Record(
            value=self.value(i),
            key=self.key(i),
            timestamp=int(row["timestamp"]),
            headers=self.headers(i),
            offset=int(row["offset"]),
            sequence=int(row["sequence"]),
        )

    def _span(self, position: int, size: int) -> bytes | None:
        return None if size < 0 else self.arena[position : position + size].tobytes()


def joined(parts: Sequence[Records]) -> Records:
    """The parts of one table of batches as a whole: for those who cannot do with less, where the parts are small."""
    if len(parts) == 1:
        return parts[0]
    batches, status, tables, shift = [], [], [], 0
    arenas: list[np.ndarray] = []
    first = parts[0].first_batch
    for part in parts:
        if not arenas or part.arena is not arenas[-1]:
            shift += len(arenas[-1]) if arenas else 0
            arenas.append(part.arena)
        rows = part.rows.copy()
        for name in ("position", "key_position", "value_position", "headers_position"):
            rows[name] += shift
        rows["batch"] += part.first_batch - first
        if not part.rows_before:
            batches.append(part.batches)
            status.append(part.status)
        tables.append(rows)
    arena = arenas[0] if len(arenas) == 1 else np.concatenate(arenas)
    return Records(arena, np.concatenate(tables), np.concatenate(batches), np.concatenate(status), first)
