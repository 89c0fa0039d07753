"""Decodes the records of coordinators: groups, transactions, share groups. `message_tables` says how a table reads.

Kafka: GroupCoordinatorRecordSerde, TransactionLog, ShareGroupStateRecord, the definitions of CoordinatorRecordType and
of the consumer protocol.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seglog.format.message_tables import messages
from seglog.format.wire import Message, UnknownRecordTypeError, WireError, decode_message

TRANSACTION_TOPIC = "__transaction_state"


_ESCAPE = re.compile(r"\\u00[0-9a-f]{2}|\\\\")  # a doubled backslash begins no escape
_INT16 = struct.Struct(">h")
VERSION_BYTES = _INT16.size
_OFFSET_COMMITS = (b"\x00\x00", b"\x00\x01")  # the first two types of keys


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A coordinator's record. `value` and `version` are None for a tombstone."""

    type: int
    key: Mapping[str, Any]
    version: int | None
    value: Mapping[str, Any] | None


def decode_coordinator_record(table: str, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Decodes key and value by one of OFFSETS, TRANSACTIONS and SHARE_STATE (Kafka: CoordinatorRecordSerde).

    Raises `WireError` with Kafka's text.
    """
    if key is None:
        raise WireError("the record has no key")
    known = messages(table)
    record_type = version_of(key, "key")
    key_message, value_message = known.get((record_type, "key")), known.get((record_type, "value"))
    if key_message is None or value_message is None:
        raise UnknownRecordTypeError(record_type)
    parsed_key = _decoded(key_message, key, 0, record_type, "key")
    if value is None:
        return CoordinatorRecord(record_type, parsed_key, None, None)
    version = version_of(value, "value")
    if not 0 <= version <= value_message.last_version:
        raise WireError(f"Found an unknown record version {version} for {record_type} type")
    parsed = _decoded(value_message, value, version, version, "value")
    return CoordinatorRecord(record_type, parsed_key, version, parsed)


def is_offset_commit(key: bytes) -> bool:
    """True if a key of `__consumer_offsets` is that of a committed offset; all others belong to groups."""
    return key[:VERSION_BYTES] in _OFFSET_COMMITS


def json_text(value: object) -> str:
    """Returns JSON as Kafka prints it: without blanks, bytes in base64, escapes like Java's."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_base64)
    return _ESCAPE.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)


def _base64(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no place in a message")
    return base64.b64encode(value).decode("ascii")


def version_of(data: bytes, what: str) -> int:
    """Returns the version at the beginning of a key or value (`what`). Raises `WireError`."""
    if len(data) < VERSION_BYTES:
        raise WireError(f"Could not read version from {what}'s buffer.")
    return int(_INT16.unpack_from(data)[0])


def _decoded(message: Message, data: bytes, version: int, said: int, what: str) -> dict[str, Any]:
    try:
        return decode_message(message, data, version, VERSION_BYTES)
    except WireError as error:
        reason = f"Could not read record with version {said} from {what}'s buffer due to: {error.kafka}."
        raise WireError(reason) from error


OFFSETS = """
0 key 0 - group:string topic:string partition:int32
0 value 0 - offset:int64 metadata:string commitTimestamp:int64
1 key 0 - group:string topic:string partition:int32
1 value 4 4
    offset:int64 leaderEpoch:int32@3 metadata:string commitTimestamp:int64 expireTimestamp:int64@1-1
    topicId:uuid@4#0
2 key 0 - group:string
2 value 4 4
    protocolType:string generation:int32 protocol:string? leader:string? currentStateTimestamp:int64@2
    members:[]{ memberId:string groupInstanceId:string@3? clientId:string clientHost:string
    rebalanceTimeout:int32@1 sessionTimeout:int32 subscription:bytes assignment:bytes }
3 key 0 - groupId:string
3 value 0 0 epoch:int32 metadataHash:int64#0
4 key 0 - groupId:string
4 value 0 0
    topics:[]{ topicId:uuid topicName:string numPartitions:int32 partitionMetadata:[]{ partition:int32
    racks:[]string } }
5 key 0 - groupId:string memberId:string
5 value 0 0
    instanceId:string? rackId:string? clientId:string clientHost:string subscribedTopicNames:[]string
    subscribedTopicRegex:string? rebalanceTimeoutMs:int32 serverAssignor:string? classicMemberMetadata:{
    sessionTimeoutMs:int32 supportedProtocols:[]{ name:string metadata:bytes } }?#0
6 key 0 - groupId:string
6 value 0 0 assignmentEpoch:int32 assignmentTimestamp:int64#0
7 key 0 - groupId:string memberId:string
7 value 0 0 topicPartitions:[]{ topicId:uuid partitions:[]int32 }
8 key 0 - groupId:string memberId:string
8 value 0 0
    memberEpoch:int32 previousMemberEpoch:int32 state:int8 assignedPartitions:[]{ topicId:uuid
    partitions:[]int32 assignmentEpochs:[]int32?#0 } partitionsPendingRevocation:[]{ topicId:uuid
    partitions:[]int32 assignmentEpochs:[]int32?#0 }
10 key 0 - groupId:string memberId:string
10 value 0 0 rackId:string? clientId:string clientHost:string subscribedTopicNames:[]string
11 key 0 - groupId:string
11 value 0 0 epoch:int32 metadataHash:int64
12 key 0 - groupId:string
12 value 0 0 assignmentEpoch:int32 assignmentTimestamp:int64#0
13 key 0 - groupId:string memberId:string
13 value 0 0 topicPartitions:[]{ topicId:uuid partitions:[]int32 }
14 key 0 - groupId:string memberId:string
14 value 0 0
    memberEpoch:int32 previousMemberEpoch:int32 state:int8 assignedPartitions:[]{ topicId:uuid
    partitions:[]int32 }
15 key 0 - groupId:string
15 value 0 0
    initializingTopics:[]{ topicId:uuid topicName:string partitions:[]int32 } initializedTopics:[]{
    topicId:uuid topicName:string partitions:[]int32 } deletingTopics:[]{ topicId:uuid topicName:string
    }
16 key 0 - groupId:string regularExpression:string
16 value 0 0 topics:[]string version:int64 timestamp:int64
17 key 0 - groupId:string
17 value 0 0
    epoch:int32 metadataHash:int64 validatedTopologyEpoch:int32#0=-1 lastAssignmentConfigs:[]{ key:string
    value:string }?#1 storedDescriptionTopologyEpoch:int32#2=-1 failedDescriptionTopologyEpoch:int32#3=-1
19 key 0 - groupId:string memberId:string
19 value 0 0
    instanceId:string? rackId:string? clientId:string clientHost:string rebalanceTimeoutMs:int32
    topologyEpoch:int32 processId:string userEndpoint:{ host:string port:uint16 }? clientTags:[]{
    key:string value:string }
20 key 0 - groupId:string
20 value 0 0 assignmentEpoch:int32 assignmentTimestamp:int64#0
21 key 0 - groupId:string memberId:string
21 value 0 0
    activeTasks:[]{ subtopologyId:string partitions:[]int32 } standbyTasks:[]{ subtopologyId:string
    partitions:[]int32 } warmupTasks:[]{ subtopologyId:string partitions:[]int32 }
22 key 0 - groupId:string memberId:string
22 value 0 0
    memberEpoch:int32 previousMemberEpoch:int32 state:int8 activeTasks:[]{ subtopologyId:string
    partitions:[]int32 assignmentEpochs:[]int32?#0 } standbyTasks:[]{ subtopologyId:string
    partitions:[]int32 assignmentEpochs:[]int32?#0 } warmupTasks:[]{ subtopologyId:string
    partitions:[]int32 assignmentEpochs:[]int32?#0 } activeTasksPendingRevocation:[]{
    subtopologyId:string partitions:[]int32 assignmentEpochs:[]int32?#0 }
    standbyTasksPendingRevocation:[]{ subtopologyId:string partitions:[]int32
    assignmentEpochs:[]int32?#0 } warmupTasksPendingRevocation:[]{ subtopologyId:string
    partitions:[]int32 assignmentEpochs:[]int32?#0 }
23 key 0 - groupId:string
23 value 0 0
    epoch:int32 subtopologies:[]{ subtopologyId:string sourceTopics:[]string sourceTopicRegex:[]string
    stateChangelogTopics:[]{ name:string partitions:int32 replicationFactor:int16 topicConfigs:[]{
    key:string value:string } } repartitionSinkTopics:[]string repartitionSourceTopics:[]{ name:string
    partitions:int32 replicationFactor:int16 topicConfigs:[]{ key:string value:string } }
    copartitionGroups:[]{ sourceTopics:[]int16 sourceTopicRegex:[]int16 repartitionSourceTopics:[]int16
    } }
"""


TRANSACTIONS = """
0 key 0 - transactionalId:string
0 value 1 1
    producerId:int64 previousProducerId:int64#0=-1 nextProducerId:int64#1=-1 producerEpoch:int16
    nextProducerEpoch:int16#3=-1 transactionTimeoutMs:int32 transactionStatus:int8
    transactionPartitions:[]{ topic:string partitionIds:[]int32 }?
    transactionLastUpdateTimestampMs:int64 transactionStartTimestampMs:int64
    clientTransactionVersion:int16#2
"""

SHARE_STATE = """
0 key 0 - groupId:string topicId:uuid partition:int32
0 value 0 0
    snapshotEpoch:int32 stateEpoch:int32 leaderEpoch:int32 startOffset:int64
    deliveryCompleteCount:int32#0=-1 createTimestamp:int64 writeTimestamp:int64 stateBatches:[]{
    firstOffset:int64 lastOffset:int64 deliveryState:int8 deliveryCount:int16 }
1 key 0 - groupId:string topicId:uuid partition:int32
1 value 0 0
    snapshotEpoch:int32 leaderEpoch:int32 startOffset:int64 deliveryCompleteCount:int32#0=-1
    stateBatches:[]{ firstOffset:int64 lastOffset:int64 deliveryState:int8 deliveryCount:int16 }
"""

# Data of the members of a classic group of protocol type "consumer"; it has no record type of its own.
CONSUMER_PROTOCOL = """
0 subscription 3 -
    topics:[]string userData:bytes? ownedPartitions:[]{ topic:string partitions:[]int32 }@1
    generationId:int32@2 rackId:string@3?
0 assignment 3 - assignedPartitions:[]{ topic:string partitions:[]int32 } userData:bytes?
"""
