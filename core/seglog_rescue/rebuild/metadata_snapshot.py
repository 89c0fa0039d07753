"""Writes snapshots of cluster metadata: records, framed as in the metadata log, between a header and a footer.

Kafka: RecordsSnapshotWriter, BatchFileWriter, MetadataRecordSerde. An active controller with an empty log writes the
records of its bootstrap snapshot as the first ones of the log (ActivationRecordsGenerator). Up to 4.3 that snapshot is
`bootstrap.checkpoint` (BootstrapDirectory). 4.4 takes the metadata log's own snapshot at offset 0 and epoch 0 if it has
its records, and does not read `bootstrap.checkpoint` then (KIP-1170, RaftClient.Listener.handleLoadBootstrap). For all
of them, the voters of a dynamic quorum stand in the first batch of the snapshot at 0 (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seglog import layout
from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.format.control import Voter, encode_control_key, encode_control_value
from seglog.format.message_tables import METADATA, messages
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.format.wire import FRAME_VERSION, Writer, encode_message
from seglog.model import ControlType, Record

_MESSAGES = {name: (number, message) for (number, name), message in messages(METADATA).items()}
_LEADER_EPOCH = 0
_DYNAMIC = 1  # kraft.version of a quorum with voters of its own (Kafka: KRaftVersion.KRAFT_VERSION_1)
_BATCH_BYTES = 1 << 20  # controllers accept 8 MiB


def encode_metadata_record(name: str, fields: Mapping[str, Any], version: int | None = None) -> bytes:
    """Returns the value of a metadata record, by Kafka's name and fields, in its last version or in `version`.

    Tagged fields may be left out. Raises KeyError for an unknown name or a missing field.
    """
    number, message = _MESSAGES[name]
    version = message.last_version if version is None else version
    frame = Writer(0, True)
    for part in (FRAME_VERSION, number, version):
        frame.unsigned_varint(part)
    return bytes(frame.data) + encode_message(message, fields, version)


def metadata_snapshot(records: Sequence[bytes], now_ms: int, voters: Sequence[Voter] = ()) -> bytes:
    """Returns a snapshot file with these records' values; `now_ms` is the time of its records.

    With `voters` it says that the quorum is dynamic, and that these are its voters.
    """
    return b"".join(_batches(records, now_ms, voters))


def _batches(records: Sequence[bytes], now_ms: int, voters: Sequence[Voter]) -> Iterator[bytes]:
    header: list[tuple[ControlType, Mapping[str, Any]]] = [
        (ControlType.SNAPSHOT_HEADER, {"version": 0, "lastContainedLogTimestamp": 0})
    ]
    if voters:
        header.append((ControlType.KRAFT_VERSION, {"version": 0, "kRaftVersion": _DYNAMIC}))
        header.append((ControlType.KRAFT_VOTERS, {"version": 0, "voters": [voter.fields() for voter in voters]}))
    yield _control(header, 0, now_ms)
    options = BatchOptions(batch_bytes=_BATCH_BYTES, leader_epoch=_LEADER_EPOCH)
    offset = len(header)
    yield encode_all(columns_of([Record(value, timestamp=now_ms) for value in records]), offset, options)
    yield _control([(ControlType.SNAPSHOT_FOOTER, {"version": 0})], offset + len(records), now_ms)


def _control(messages: Sequence[tuple[ControlType, Mapping[str, Any]]], offset: int, now_ms: int) -> bytes:
    records = [
        Record(encode_control_value(kind, data), key=encode_control_key(kind), timestamp=now_ms)
        for kind, data in messages
    ]
    batch = encode_all(columns_of(records), offset, BatchOptions(leader_epoch=_LEADER_EPOCH))
    header = RecordBatchHeader.read(batch)
    marked = replace(header, attributes=header.attributes | layout.CONTROL_MASK)
    return encode_batch(marked, batch[layout.RECORD_BATCH_OVERHEAD :])
