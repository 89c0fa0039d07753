"""The 61-byte header of a v2 batch as a value that can be read, changed and written (Kafka: DefaultRecordBatch).

It is for single batches (validation, markers, repair); bulk work uses rows of `layout.BATCH`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields, replace
from operator import attrgetter

import numpy as np

from seglog import layout
from seglog.errors import CorruptRecordError
from seglog.format.checksum import byte_view, crc32c
from seglog.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)

_HEADER = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # size of the bytes after this field
    "i"  # partition leader epoch
    "b"  # magic
    "I"  # CRC-32C of everything from the attributes on
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp, or delete horizon
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # count of records
)
assert _HEADER.size == layout.RECORD_BATCH_OVERHEAD


@dataclass(frozen=True, slots=True)
class RecordBatchHeader:
    """Header fields of a v2 batch. `size` is that of the whole batch; timestamps are in epoch milliseconds."""

    base_offset: int = 0
    size: int = layout.RECORD_BATCH_OVERHEAD
    leader_epoch: int = NO_LEADER_EPOCH
    magic: int = 2
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    count: int = 0

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview | np.ndarray, position: int = 0) -> RecordBatchHeader:
        """Returns the header at `position`. Raises CorruptRecordError if fewer than 61 bytes are there."""
        view = byte_view(data)
        if position < 0 or len(view) - position < _HEADER.size:
            raise CorruptRecordError("buffer", "too short for a record batch header", position)
        base_offset, length, *rest = _HEADER.unpack_from(view, position)
        return cls(base_offset, length + layout.LOG_OVERHEAD, *rest)

    @classmethod
    def of_row(cls, row: np.void) -> RecordBatchHeader:
        """Returns the header of a row of `layout.BATCH`, which holds only the low byte of the attributes."""
        known = dict(zip(row.dtype.names or (), row.tolist(), strict=True))
        known["last_offset_delta"] = known["last_offset"] - known["base_offset"]
        return cls(*(known[name] for name in _NAMES))

    def write(self, buffer: bytearray | memoryview | np.ndarray, position: int = 0) -> None:
        """Writes the 61 bytes at `position`; size and checksum are written as they are."""
        base_offset, size, *rest = _FIELDS(self)
        _HEADER.pack_into(byte_view(buffer), position, base_offset, size - layout.LOG_OVERHEAD, *rest)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """The codec id, 0 to 7; those above 4 are unassigned (see `seglog.model.Compression`)."""
        return self.attributes & layout.CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        append_time = self.attributes & layout.TIMESTAMP_TYPE_MASK
        return TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & layout.TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & layout.CONTROL_MASK)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, which wraps from 2147483647 to 0; -1 without a producer."""
        return last_sequence(self.base_sequence, self.last_offset_delta)


_NAMES = tuple(field.name for field in fields(RecordBatchHeader))  # in the order of the bytes
_FIELDS = attrgetter(*_NAMES)


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    """Returns the sequence of a batch's last record, or -1 without sequences (Kafka: DefaultRecordBatch.lastSequence).

    0 follows 2147483647. Any other negative base sequence, which no producer should write, is counted up as it is.
    """
    if base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    last = base_sequence + last_offset_delta
    return last if base_sequence < 0 else last & layout.INT32_MAX


def encode_batch(header: RecordBatchHeader, payload: bytes | bytearray | memoryview) -> bytes:
    """Returns a batch of `header` and `payload` (encoded, perhaps compressed records); computes size and CRC."""
    batch = bytearray(layout.RECORD_BATCH_OVERHEAD + len(payload))
    batch[layout.RECORD_BATCH_OVERHEAD :] = payload
    header = replace(header, size=len(batch), crc=0)
    header.write(batch)
    crc = crc32c(memoryview(batch)[layout.ATTRIBUTES_OFFSET :])
    replace(header, crc=crc).write(batch)
    return bytes(batch)
