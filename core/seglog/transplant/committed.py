"""Removes leader epochs and topic ids from committed offsets.

A group's committed offset carries the leader epoch of the record before it. In another cluster, whose epochs begin
anew, a resuming consumer takes the partition's lower epochs for stale metadata, or the missing epoch for a truncation,
and falls back to its reset policy. These epochs therefore become -1, "not known", which clients of every version
understand. A topic id becomes the zero id: the topic has another one now.

Kafka: OffsetCommitValue (leaderEpoch since version 3, topicId since 4), SubscriptionState.maybeCompleteValidation,
Metadata.updateLastSeenEpochIfNewer.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from seglog import layout
from seglog.format.columns import Records
from seglog.format.compression import compress, decompress
from seglog.format.coordinator import OFFSETS, decode_coordinator_record, is_offset_commit
from seglog.format.decoder import decode_records, scan_batches
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.format.uuids import ZERO_UUID, parse_uuid
from seglog.format.windows import WHOLE_LIMIT
from seglog.format.wire import WireError
from seglog.model import Compression

_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch
_EPOCH_SINCE, _TOPIC_ID_SINCE = 3, 4
_EPOCH_AT = 10
_UNKNOWN_EPOCH = b"\xff\xff\xff\xff"


def forget_epochs(data: np.ndarray, batches: np.ndarray, position: int) -> np.ndarray:
    """Changes uncompressed batches in place; returns those that changed, whose checksums must be recomputed."""
    changed: set[int] = set()
    for records in decode_records(data, batches, position):
        rows = records.rows
        may_be_commit = (rows["key_size"] >= 2) & (rows["value_size"] >= _HEAD.size)
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
    version, _, epoch = _HEAD.unpack_from(value)
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
