"""Rewrites the batch header fields that mean something only in the cluster that wrote them. Records and offsets stay.

- The leader epoch (outside the checksum) becomes 0. The new cluster counts from its own beginning, and a follower skips
  batches whose epoch is above its leader's.
- A batch outside transactions loses its producer (id, epoch and sequence -1): only duplicate detection needs it. No
  broker makes a producer's state from such a batch, however it comes by it.
- The producer of a transaction's batch or marker moves to the ids from 2^62 on. It must remain, as markers and the
  index of aborted transactions name it. A controller hands out ids from 0 on, in blocks of 1000, and never gets there.

So the new cluster never hands out an id that is in the data, and takes none of its writes for a duplicate (Kafka:
ProducerStateManager, ProducerIdControlManager). Rewriting a second time changes nothing. Messages of magic 0 and 1
have none of these fields.

Committed offsets in `__consumer_offsets` lose two more fields, in their values. A group's committed offset carries the
leader epoch of the record before it. In another cluster, whose epochs begin anew, a resuming consumer takes the
partition's lower epochs for stale metadata, or the missing epoch for a truncation, and falls back to its reset policy.
These epochs therefore become -1, "not known", which clients of every version understand. A topic id becomes the zero
id: the topic has another one now (Kafka: OffsetCommitValue, with leaderEpoch since version 3 and topicId since 4;
SubscriptionState.maybeCompleteValidation, Metadata.updateLastSeenEpochIfNewer).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np

from seglog import layout
from seglog.format.columns import Records
from seglog.format.compression import compress, decompress
from seglog.format.coordinator import OFFSETS, decode_coordinator_record, is_offset_commit
from seglog.format.decoder import checksums, decode_records, scan_batches
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.format.uuids import ZERO_UUID, parse_uuid
from seglog.format.windows import WHOLE_LIMIT
from seglog.format.wire import WireError
from seglog.model import Compression

LEADER_EPOCH = 0
FOREIGN_PRODUCERS = 1 << 62  # the first id of producers of other clusters

_EPOCH_BYTES = np.arange(layout.PARTITION_LEADER_EPOCH_OFFSET, layout.PARTITION_LEADER_EPOCH_OFFSET + 4)
_PRODUCER_BYTES = np.arange(layout.PRODUCER_ID_OFFSET, layout.RECORDS_COUNT_OFFSET)  # id, epoch, base sequence
_CRC_BYTES = np.arange(layout.CRC_OFFSET, layout.CRC_OFFSET + 4)
_FOREIGN_BIT = 0x40  # of an id's first byte: 2^62
_COMMIT_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch
_EPOCH_SINCE, _TOPIC_ID_SINCE = 3, 4
_EPOCH_AT = 10
_UNKNOWN_EPOCH = b"\xff\xff\xff\xff"


@dataclass(slots=True)
class Rewritten:
    """The numbers of batches with a new leader epoch, without their producer now, and with a moved producer id."""

    epochs: int = 0
    forgotten: int = 0
    moved: int = 0

    def add(self, other: Rewritten) -> None:
        """Adds the counts of `other`."""
        self.epochs += other.epochs
        self.forgotten += other.forgotten
        self.moved += other.moved


def foreign_id(producer_id: int) -> int:
    """Returns the new id of a transaction's producer."""
    return producer_id | FOREIGN_PRODUCERS


def counted(rows: np.ndarray) -> Rewritten:
    """Counts the changes that `rewrite` makes to these batches (layout.BATCH)."""
    batches = rows[rows["magic"] >= 2]
    forgotten, moved = _whose_producer_changes(batches)
    epochs = int(np.count_nonzero(batches["leader_epoch"] != LEADER_EPOCH))
    return Rewritten(epochs, int(np.count_nonzero(forgotten)), int(np.count_nonzero(moved)))


def rewrite(data: np.ndarray, rows: np.ndarray, position: int) -> np.ndarray:
    """Rewrites batches (layout.BATCH) in `data`, whose first byte lies at `position` of the file.

    Returns the rows whose checksum must be recomputed (`seal`). `data` need only hold the headers.
    """
    batches = rows[rows["magic"] >= 2]
    at = (batches["position"] - position).astype(np.int64)
    data[at[:, None] + _EPOCH_BYTES] = 0
    forgotten, moved = _whose_producer_changes(batches)
    data[at[forgotten][:, None] + _PRODUCER_BYTES] = 0xFF
    data[at[moved] + layout.PRODUCER_ID_OFFSET] |= _FOREIGN_BIT
    changed: np.ndarray = batches[forgotten | moved]
    return changed


def seal(data: np.ndarray, batches: np.ndarray, position: int) -> None:
    """Recomputes the checksums of whole batches in `data`."""
    if len(batches):
        set_checksums(data, batches, position, checksums(data, batches, position))


def set_checksums(data: np.ndarray, batches: np.ndarray, position: int, values: np.ndarray) -> None:
    """Writes these checksums into the batches' headers."""
    at = (batches["position"] - position).astype(np.int64)
    data[at[:, None] + _CRC_BYTES] = values.astype(">u4").view(np.uint8).reshape(-1, 4)


def _whose_producer_changes(batches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the masks of the batches that lose their producer, and of those whose producer moves."""
    known = batches["producer_id"] >= 0
    transactional = (batches["attributes"] & layout.TRANSACTIONAL_MASK) != 0
    return known & ~transactional, known & transactional & (batches["producer_id"] < FOREIGN_PRODUCERS)


# --- committed offsets ------------------------------------------------------------------------------------


def forget_epochs(data: np.ndarray, batches: np.ndarray, position: int) -> np.ndarray:
    """Changes uncompressed batches in place; returns those that changed, whose checksums must be recomputed."""
    changed: set[int] = set()
    for records in decode_records(data, batches, position):
        rows = records.rows
        may_be_commit = (rows["key_size"] >= 2) & (rows["value_size"] >= _COMMIT_HEAD.size)
        for i in np.flatnonzero(may_be_commit).tolist():
            if _forget(records, i, data):
                changed.add(records.first_batch + int(rows["batch"][i]))
    return batches[sorted(changed)]


def with_forgotten_epochs(batch: bytes) -> bytes:
    """Returns a compressed batch with its commits changed, compressed anew; the same bytes if it holds none."""
    header = RecordBatchHeader.read(batch)
    payload = decompress(header.codec, memoryview(batch)[layout.RECORD_BATCH_OVERHEAD :], limit=WHOLE_LIMIT)
    plain = replace(header, attributes=header.attributes & ~layout.CODEC_MASK)
    data = np.frombuffer(encode_batch(plain, payload), dtype=np.uint8).copy()
    if not len(forget_epochs(data, scan_batches(data, 0, len(data), 0).batches, 0)):
        return batch
    return encode_batch(header, compress(Compression(header.codec), data[layout.RECORD_BATCH_OVERHEAD :].tobytes()))


def _forget(records: Records, i: int, data: np.ndarray) -> bool:
    """Changes one value in `data`, where it lies at the same place as in the records' own bytes; True if it did."""
    key, value = records.key(i) or b"", records.value(i) or b""
    if not is_offset_commit(key):
        return False
    version, _, epoch = _COMMIT_HEAD.unpack_from(value)
    if version < _EPOCH_SINCE:
        return False
    at = int(records.rows["value_position"][i])
    changed = bool(epoch >= 0)
    data[at + _EPOCH_AT : at + _EPOCH_AT + 4] = np.frombuffer(_UNKNOWN_EPOCH, dtype=np.uint8)
    if version >= _TOPIC_ID_SINCE:
        changed |= _forget_topic_id(key, value, at, data)
    return changed


def _forget_topic_id(key: bytes, value: bytes, at: int, data: np.ndarray) -> bool:
    """Zeroes the topic id, which is the only tagged field and ends the value; True if there was one."""
    try:
        record = decode_coordinator_record(OFFSETS, key, value)
    except WireError:
        return False
    topic_id = None if record.value is None else record.value.get("topicId")
    raw = b"" if topic_id is None else parse_uuid(str(topic_id)).bytes
    if not raw or raw == ZERO_UUID.bytes or not value.endswith(raw):
        return False
    end = at + len(value)
    data[end - len(raw) : end] = 0
    return True
