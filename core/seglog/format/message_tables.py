"""Tables of the fields of the records in the own topics of Kafka 4.4, and that of `__cluster_metadata`.

4.3 has the same records without what 4.4 has added. `coordinator` has the tables of groups and transactions.

Kafka: the message definitions of MetadataRecordType.

An entry starts at the left margin: record type, name (metadata) or `key` / `value` (coordinators), last
version, first flexible version (`-`: none), then fields, which may continue on indented lines:

    name:type      a field; `[]type` an array; `{ ... }` a struct
    @2  @1-1       exists from version 2 on; exists only in version 1
    ?   ?2         may be null; may be null from version 2 on
    #0  #0=-1      a tagged field; its default, unless that is 0, false, "" or empty
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from seglog.format.uuids import ZERO_UUID, format_uuid
from seglog.format.wire import NEVER, Field, FramedRecord, Message, decode_framed

_FIELD = re.compile(r"(\w+):(\[\])?(\w+|\{)(\S*)")
_DEFAULTS = {"string": "", "bytes": b"", "bool": False, "float64": 0.0, "uuid": format_uuid(ZERO_UUID)}
_SUFFIX = re.compile(r"(?:@(\d+)(?:-(\d+))?)?(?:(\?)(\d*))?(?:#(\d+)(?:=(null|-\d+))?)?")


@cache
def messages(table: str) -> dict[tuple[int, str], Message]:
    """Returns the messages of a table by record type and name."""
    entries = re.split(r"\n(?=\d)", table.strip())
    return dict(_entry(entry) for entry in entries)


@cache
def framed_messages(table: str) -> dict[int, tuple[str, Message]]:
    """Returns name and message by record type, for a table whose records state their type (`wire.decode_framed`)."""
    return {number: (name, message) for (number, name), message in messages(table).items()}


def decode_metadata_record(value: bytes | None) -> FramedRecord:
    """Decodes a value of `__cluster_metadata`. Raises `WireError`, also for bytes after the record."""
    return decode_framed(framed_messages(METADATA), value or b"")


def _entry(text: str) -> tuple[tuple[int, str], Message]:
    number, name, last_version, flexible_from, *words = text.split()
    fields, _ = _fields(iter(words))
    flexible = NEVER if flexible_from == "-" else int(flexible_from)
    return (int(number), name), Message(fields, int(last_version), flexible)


def _fields(words: Iterator[str]) -> tuple[tuple[Field, ...], str]:
    """Returns the fields up to the brace that ends the struct, and the suffix of that brace."""
    found: list[Field] = []
    for word in words:
        if word.startswith("}"):
            return tuple(found), word[1:]
        found.append(_field(word, words))
    return tuple(found), ""


def _field(word: str, words: Iterator[str]) -> Field:
    match = _FIELD.fullmatch(word)
    if match is None:
        raise ValueError(f"{word!r} is not a field")
    name, array, kind, suffix = match.groups()
    content: str | tuple[Field, ...] = kind
    if kind == "{":
        content, suffix = _fields(words)
    parts = _SUFFIX.fullmatch(suffix)
    if parts is None:
        raise ValueError(f"{suffix!r} is not the suffix of a field")
    first = int(parts[1] or 0)
    return Field(
        name,
        content,
        array=bool(array),
        first=first,
        last=int(parts[2]) if parts[2] else NEVER,
        nullable_from=int(parts[4] or first) if parts[3] else NEVER,
        tag=int(parts[5]) if parts[5] else None,
        default=_default(content, bool(array), parts[6]),
    )


def _default(kind: str | tuple[Field, ...], array: bool, stated: str | None) -> object:
    if stated:
        return None if stated == "null" else int(stated)
    if isinstance(kind, tuple) and not array:
        return {field.name: field.default for field in kind}
    return [] if array else _DEFAULTS.get(kind if isinstance(kind, str) else "", 0)


METADATA = """
0 REGISTER_BROKER_RECORD 4 0
    brokerId:int32 isMigratingZkBroker:bool@2 incarnationId:uuid brokerEpoch:int64 endPoints:[]{
    name:string host:string port:uint16 securityProtocol:int16 } features:[]{ name:string
    minSupportedVersion:int16 maxSupportedVersion:int16 } rack:string? fenced:bool
    inControlledShutdown:bool@1 logDirs:[]uuid@3#0 cordonedLogDirs:[]uuid@4?#1=null
1 UNREGISTER_BROKER_RECORD 0 0 brokerId:int32 brokerEpoch:int64
2 TOPIC_RECORD 0 0 name:string topicId:uuid
3 PARTITION_RECORD 2 0
    partitionId:int32 topicId:uuid replicas:[]int32 isr:[]int32 removingReplicas:[]int32
    addingReplicas:[]int32 leader:int32 leaderRecoveryState:int8#0 leaderEpoch:int32
    partitionEpoch:int32 directories:[]uuid@1 eligibleLeaderReplicas:[]int32@2?#1=null
    lastKnownElr:[]int32@2?#2=null
4 CONFIG_RECORD 0 0 resourceType:int8 resourceName:string name:string value:string?
5 PARTITION_CHANGE_RECORD 2 0
    partitionId:int32 topicId:uuid isr:[]int32?#0=null leader:int32#1=-2 replicas:[]int32?#2=null
    removingReplicas:[]int32?#3=null addingReplicas:[]int32?#4=null leaderRecoveryState:int8#5=-1
    directories:[]uuid@1?#8=null eligibleLeaderReplicas:[]int32@2?#6=null lastKnownElr:[]int32@2?#7=null
7 FENCE_BROKER_RECORD 0 0 id:int32 epoch:int64
8 UNFENCE_BROKER_RECORD 0 0 id:int32 epoch:int64
9 REMOVE_TOPIC_RECORD 0 0 topicId:uuid
10 DELEGATION_TOKEN_RECORD 0 0
    owner:string requester:string renewers:[]string issueTimestamp:int64 maxTimestamp:int64
    expirationTimestamp:int64 tokenId:string
11 USER_SCRAM_CREDENTIAL_RECORD 0 0
    name:string mechanism:int8 salt:bytes storedKey:bytes serverKey:bytes iterations:int32
12 FEATURE_LEVEL_RECORD 0 0 name:string featureLevel:int16
14 CLIENT_QUOTA_RECORD 0 0
    entity:[]{ entityType:string entityName:string? } key:string value:float64 remove:bool
15 PRODUCER_IDS_RECORD 0 0 brokerId:int32 brokerEpoch:int64 nextProducerId:int64
17 BROKER_REGISTRATION_CHANGE_RECORD 3 0
    brokerId:int32 brokerEpoch:int64 fenced:int8#0 inControlledShutdown:int8@1#1 logDirs:[]uuid@2#2
    cordonedLogDirs:[]uuid@3?#3=null
18 ACCESS_CONTROL_ENTRY_RECORD 0 0
    id:uuid resourceType:int8 resourceName:string patternType:int8 principal:string host:string
    operation:int8 permissionType:int8
19 REMOVE_ACCESS_CONTROL_ENTRY_RECORD 0 0 id:uuid
20 NO_OP_RECORD 0 0
21 ZK_MIGRATION_STATE_RECORD 0 0 zkMigrationState:int8
22 REMOVE_USER_SCRAM_CREDENTIAL_RECORD 0 0 name:string mechanism:int8
23 BEGIN_TRANSACTION_RECORD 0 0 name:string?#0=null
24 END_TRANSACTION_RECORD 0 0
25 ABORT_TRANSACTION_RECORD 0 0 reason:string?#0=null
26 REMOVE_DELEGATION_TOKEN_RECORD 0 0 tokenId:string
27 REGISTER_CONTROLLER_RECORD 0 0
    controllerId:int32 incarnationId:uuid zkMigrationReady:bool endPoints:[]{ name:string host:string
    port:uint16 securityProtocol:int16 } features:[]{ name:string minSupportedVersion:int16
    maxSupportedVersion:int16 }
28 CLEAR_ELR_RECORD 0 0 topicName:string
29 UNREGISTER_CONTROLLER_RECORD 0 0 controllerId:int32
"""
