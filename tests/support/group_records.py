"""Records of `__consumer_offsets` and `__share_group_state`, as a coordinator writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from seglog.format import coordinator, message_tables
from seglog.format.wire import encode_message
from seglog.model import Record, TopicPartition

ORDERS = TopicPartition("orders", 3)
TOPIC_ID = UUID(int=77)


def text(value: str) -> bytes:
    """A string of the old form."""
    return struct.pack(">h", len(value.encode())) + value.encode()


def group_key(kind: int, group: str) -> bytes:
    """The key of a group's own record; `kind` is its type (2: classic, 3: consumer, 11: share, 17: streams)."""
    return struct.pack(">h", kind) + text(group)


def commit_key(group: str, partition: TopicPartition = ORDERS) -> bytes:
    """The key of a committed offset."""
    return struct.pack(">h", 1) + text(group) + text(partition.topic) + struct.pack(">i", partition.partition)


def commit(group: str, offset: int, *, partition: TopicPartition = ORDERS, timestamp: int = 1000) -> Record:
    """A committed offset."""
    value = struct.pack(">hqi", 3, offset, -1) + text("") + struct.pack(">q", timestamp)
    return Record(value, commit_key(group, partition), timestamp)


def _share_key(kind: int, group: str, partition: int = ORDERS.partition) -> bytes:
    return struct.pack(">h", kind) + text(group) + TOPIC_ID.bytes + struct.pack(">i", partition)


def _batches(batches: Iterable[tuple[int, int]]) -> bytes:
    rows = [struct.pack(">qqbh", first, last, 2, 1) + b"\0" for first, last in batches]
    return bytes([len(rows) + 1]) + b"".join(rows)


def _delivered(count: int) -> bytes:
    """The tagged field, which is left out where it has its default."""
    return b"\0" if count == -1 else b"\x01\x00\x04" + struct.pack(">i", count)


def share_snapshot(
    group: str,
    *,
    start: int,
    delivered: int,
    batches: Iterable[tuple[int, int]],
    partition: int = ORDERS.partition,
) -> Record:
    """The whole state of a share group in a partition."""
    value = struct.pack(">hiiiqqq", 0, 1, 1, 1, start, 1000, 1000) + _batches(batches) + _delivered(delivered)
    return Record(value, _share_key(0, group, partition), 1000)


def share_update(group: str, *, start: int, delivered: int, batches: Iterable[tuple[int, int]]) -> Record:
    """A change of it."""
    value = struct.pack(">hiiq", 0, 1, 1, start) + _batches(batches) + _delivered(delivered)
    return Record(value, _share_key(1, group), 1000)


def group_record(kind: int, group: str, value: Mapping[str, Any], *, member: str | None = None) -> Record:
    """A record of a group, of a type of the table of messages; `member` is given for those of members."""
    message = message_tables.messages(coordinator.OFFSETS)[kind, "value"]
    key = group_key(kind, group) + (b"" if member is None else text(member))
    return Record(struct.pack(">h", 0) + encode_message(message, value, 0), key, 1000)


def classic_group(group: str, protocol_type: str, protocol: str | None = None, client: str | None = None) -> Record:
    """A classic group, empty or with one member."""
    member = {"memberId": "m", "clientId": client, "clientHost": "/h", "rebalanceTimeout": 1, "sessionTimeout": 1}
    members = [] if client is None else [{**member, "subscription": b"", "assignment": b""}]
    about = {"protocolType": protocol_type, "generation": 1, "protocol": protocol, "leader": None}
    return group_record(2, group, {**about, "members": members})


def streams_group(group: str) -> list[Record]:
    """A streams group (KIP-1071) with a topology of two parts, and a member that has a task of each."""
    no_configs: dict[str, Any] = {"replicationFactor": 0, "topicConfigs": []}
    part = {"sourceTopicRegex": [], "repartitionSinkTopics": [], "copartitionGroups": []}
    first = {**part, "subtopologyId": "0", "sourceTopics": ["orders", "few"], "repartitionSourceTopics": [],
             "stateChangelogTopics": []}  # fmt: skip
    second = {**part, "subtopologyId": "1", "sourceTopics": [],
              "repartitionSourceTopics": [{"name": f"{group}-by-city-repartition", "partitions": 4, **no_configs}],
              "stateChangelogTopics": [{"name": f"{group}-n-changelog", "partitions": 0, **no_configs}]}  # fmt: skip
    member = {"instanceId": None, "rackId": None, "clientId": "c", "clientHost": "/h", "rebalanceTimeoutMs": 1,
              "topologyEpoch": 7, "processId": "p", "userEndpoint": None, "clientTags": []}  # fmt: skip
    kinds = ("activeTasks", "standbyTasks", "warmupTasks")
    tasks = {"activeTasks": [("0", [2, 3])], "activeTasksPendingRevocation": [("1", [3])], "standbyTasks": [("1", [0])]}
    current = {
        name: [{"subtopologyId": number, "partitions": partitions} for number, partitions in tasks.get(name, [])]
        for kind in kinds
        for name in (kind, f"{kind}PendingRevocation")
    }
    return [
        group_record(17, group, {"epoch": 4, "metadataHash": 0}),
        group_record(20, group, {"assignmentEpoch": 4}),
        group_record(23, group, {"epoch": 7, "subtopologies": [first, second]}),
        group_record(19, group, member, member="m"),
        group_record(22, group, {"memberEpoch": 4, "previousMemberEpoch": 3, "state": 0, **current}, member="m"),
    ]
