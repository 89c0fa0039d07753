"""Decodes records of `__remote_log_metadata`, which track the segments of tiered topics (KIP-405).

Kafka: RemoteLogMetadataSerde and its transforms; the text forms are those of its classes, as DumpLogSegments prints
them. `decode_remote_metadata` returns values and raises `WireError`; `remote_metadata_text` never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from seglog.format.message_tables import framed_messages
from seglog.format.wire import FramedRecord, WireError, decode_framed

# Remote log metadata (KIP-405): RemoteLogMetadataSerde.
REMOTE_RECORDS = """
0 REMOTE_LOG_SEGMENT_METADATA_RECORD 0 0
    remoteLogSegmentId:{ topicIdPartition:{ name:string id:uuid partition:int32 } id:uuid }
    startOffset:int64 endOffset:int64 brokerId:int32 maxTimestampMs:int64 eventTimestampMs:int64
    segmentLeaderEpochs:[]{ leaderEpoch:int32 offset:int64 } segmentSizeInBytes:int32
    customMetadata:bytes? remoteLogSegmentState:int8 txnIndexEmpty:bool#0
1 REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD 0 0
    remoteLogSegmentId:{ topicIdPartition:{ name:string id:uuid partition:int32 } id:uuid }
    brokerId:int32 eventTimestampMs:int64 customMetadata:bytes? remoteLogSegmentState:int8
2 REMOTE_PARTITION_DELETE_METADATA_RECORD 0 0
    topicIdPartition:{ name:string id:uuid partition:int32 } brokerId:int32 eventTimestampMs:int64
    remotePartitionDeleteState:int8
3 REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD 0 0
    segmentId:uuid startOffset:int64 endOffset:int64 brokerId:int32 maxTimestampMs:int64
    eventTimestampMs:int64 segmentLeaderEpochs:[]{ leaderEpoch:int32 offset:int64 }
    segmentSizeInBytes:int32 customMetadata:bytes? remoteLogSegmentState:int8 txnIndexEmpty:bool#0
"""

# Java's message of the exception that DumpLogSegments gets.
_NO_VALUE = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of'
    ' "org.apache.kafka.common.record.internal.Record.value()" is null'
)


class RemoteSegmentState(IntEnum):
    """The state of a segment's copy (Kafka: RemoteLogSegmentState)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionState(IntEnum):
    """The state of a partition that is being deleted (Kafka: RemotePartitionDeleteState)."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


def decode_remote_metadata(value: bytes | None) -> FramedRecord:
    """Decodes a value of `__remote_log_metadata`. Raises `WireError` with Kafka's text, also for trailing bytes."""
    if value is None:
        raise WireError("the record has no value", _NO_VALUE)
    return decode_framed(framed_messages(REMOTE_RECORDS), value)


def remote_metadata_text(value: bytes | None, offset: int) -> str:
    """Returns DumpLogSegments' text of the payload of a record of remote log metadata."""
    try:
        record = decode_remote_metadata(value)
        return _TEXTS[record.name](record.data)
    except WireError as error:
        return f"Error at offset {offset}, skipping. {error.kafka}"


def _segment(data: Mapping[str, Any]) -> str:
    # Checked in the order of Kafka's constructors.
    start, end, epochs = data["startOffset"], data["endOffset"], _epochs(data)
    if start < 0:
        raise WireError(f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative")
    if end < start:
        what = f"EndOffset for a remote segment cannot be less than startOffset = {start}"
        raise WireError(f"Unexpected end offset = {end}. {what}")
    if not epochs:
        raise WireError("segmentLeaderEpochs can not be null or empty")
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(data)}, startOffset={start}, endOffset={end},"
        f" brokerId={data['brokerId']}, maxTimestampMs={data['maxTimestampMs']},"
        f" eventTimestampMs={data['eventTimestampMs']}, segmentLeaderEpochs={epochs},"
        f" segmentSizeInBytes={data['segmentSizeInBytes']}, customMetadata={_custom(data)}, state={_state(data)},"
        f" txnIdxEmpty={_boolean(data.get('txnIndexEmpty', False))}}}"
    )


def _update(data: Mapping[str, Any]) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(data)}, customMetadata={_custom(data)},"
        f" state={_state(data)}, eventTimestampMs={data['eventTimestampMs']}, brokerId={data['brokerId']}}}"
    )


def _deletion(data: Mapping[str, Any]) -> str:
    number = data["remotePartitionDeleteState"]
    if number not in list(RemotePartitionState):
        raise WireError(f"state {number} of a partition is unknown", "null")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_topic_partition(data['topicIdPartition'])},"
        f" state={RemotePartitionState(number).name}, eventTimestampMs={data['eventTimestampMs']},"
        f" brokerId={data['brokerId']}}}"
    )


def _snapshot(data: Mapping[str, Any]) -> str:
    state, epochs = _state(data), _epochs(data)
    if not epochs:
        raise WireError("segmentLeaderEpochs can not be null or empty")
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={data['segmentId']}, startOffset={data['startOffset']},"
        f" endOffset={data['endOffset']}, maxTimestampMs={data['maxTimestampMs']}, segmentLeaderEpochs={epochs},"
        f" segmentSizeInBytes={data['segmentSizeInBytes']}, customMetadata={_custom(data)}, state={state},"
        f" txnIdxEmpty={_boolean(data.get('txnIndexEmpty', False))}}}"
    )


_TEXTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "REMOTE_LOG_SEGMENT_METADATA_RECORD": _segment,
    "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD": _update,
    "REMOTE_PARTITION_DELETE_METADATA_RECORD": _deletion,
    "REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD": _snapshot,
}


def _segment_id(data: Mapping[str, Any]) -> str:
    found = data["remoteLogSegmentId"]
    return f"RemoteLogSegmentId{{topicIdPartition={_topic_partition(found['topicIdPartition'])}, id={found['id']}}}"


def _topic_partition(data: Mapping[str, Any]) -> str:
    return f"{data['id']}:{data['name']}-{data['partition']}"


def _epochs(data: Mapping[str, Any]) -> str:
    """Returns Java's text of a sorted map, or "" if it is empty."""
    epochs = {each["leaderEpoch"]: each["offset"] for each in data["segmentLeaderEpochs"]}
    return f"{{{', '.join(f'{epoch}={epochs[epoch]}' for epoch in sorted(epochs))}}}" if epochs else ""


def _custom(data: Mapping[str, Any]) -> str:
    content = data["customMetadata"]
    return "Optional.empty" if content is None else f"Optional[CustomMetadata{{{len(content)} bytes}}]"


def _state(data: Mapping[str, Any]) -> str:
    number = data["remoteLogSegmentState"]
    if number not in list(RemoteSegmentState):
        raise WireError(f"state {number} of a segment is unknown", "state can not be null")
    return RemoteSegmentState(number).name


def _boolean(value: bool) -> str:
    return "true" if value else "false"
