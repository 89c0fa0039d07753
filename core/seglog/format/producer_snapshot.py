"""Encodes and decodes producer snapshots (`<offset>.snapshot`).

Kafka: ProducerStateManager.readSnapshot and writeSnapshot. A snapshot holds one entry per producer, in no particular
order, with only the last of the batches that a broker remembers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seglog import layout
from seglog.errors import CorruptSnapshotError
from seglog.format.checksum import byte_view, crc32c
from seglog.model import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

if TYPE_CHECKING:
    from seglog.format.checksum import ByteSource

NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

_VERSION = struct.Struct(">h")
_HEADER = struct.Struct(">hIi")  # version, checksum of the bytes after it, number of entries


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer; the fields are in the file's order.

    `last_offset` is that of its last data record (-1: none); `offset_delta` counts back from it to the first record of
    that batch. `timestamp` is in epoch milliseconds. `current_txn_first_offset` is -1 outside a transaction.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_sequence: int = NO_SEQUENCE
    last_offset: int = NO_OFFSET
    offset_delta: int = 0
    timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    current_txn_first_offset: int = NO_OFFSET


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Returns the file's bytes, at least the ten of the header. Raises OverflowError for a number out of range."""
    fields = layout.SNAPSHOT_ENTRY.names or ()
    rows = np.array([tuple(getattr(entry, name) for name in fields) for entry in entries], dtype=layout.SNAPSHOT_ENTRY)
    body = struct.pack(">i", len(rows)) + rows.tobytes()
    return struct.pack(">hI", layout.SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: ByteSource, path: Path | str) -> tuple[ProducerEntry, ...]:
    """Returns the entries in file order.

    Raises `CorruptSnapshotError` (with `path` and the byte position) for an unknown version, a wrong checksum, or more
    entries than the size allows. The checksum covers the rest of the file; like Kafka, ignores bytes after the entries.
    """
    view = byte_view(data)
    if len(view) >= _VERSION.size and _VERSION.unpack_from(view)[0] != layout.SNAPSHOT_VERSION:
        raise CorruptSnapshotError(path, f"unknown version {_VERSION.unpack_from(view)[0]}", 0)
    if len(view) < layout.SNAPSHOT_HEADER:
        raise CorruptSnapshotError(path, f"{len(view)} bytes are too few for a header", 0)
    _, stored, count = _HEADER.unpack_from(view)
    computed = crc32c(view[layout.SNAPSHOT_COUNT_OFFSET :])
    if stored != computed:
        reason = f"the checksum is {stored}, the contents give {computed}"
        raise CorruptSnapshotError(path, reason, layout.SNAPSHOT_CRC_OFFSET)
    body = view[layout.SNAPSHOT_HEADER :]
    if count < 0 or count * layout.SNAPSHOT_ENTRY.itemsize > len(body):
        reason = f"{count} entries are announced, {len(body)} bytes follow"
        raise CorruptSnapshotError(path, reason, layout.SNAPSHOT_COUNT_OFFSET)
    return tuple(ProducerEntry(*row) for row in np.frombuffer(body, layout.SNAPSHOT_ENTRY, count).tolist())
