"""The groups in `__consumer_offsets`: kind, state, epoch, members and their assignments.

Kafka: GroupMetadataManager.replay. A group's state is not stored: a broker that loads the group derives it from the
members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seglog.format.coordinator import CONSUMER_PROTOCOL, OFFSETS, decode_coordinator_record, is_offset_commit
from seglog.format.message_tables import messages
from seglog.format.wire import WireError, decode_message
from seglog.model import TopicPartition
from seglog_rescue.groups.coordinator_replay import StoredRecord

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
STREAMS_PROTOCOL = "stream"  # of a classic group (Kafka: StreamsPartitionAssignor)

_CLASSIC_GROUP = 2
_EPOCHS = {3: CONSUMER, 11: SHARE, 17: STREAMS}
_MEMBERS = (5, 10, 19)
_ASSIGNMENT_EPOCHS = (6, 12, 20)
_CURRENT_ASSIGNMENTS = (8, 14, 22)
_STABLE_MEMBER = 0  # Kafka: MemberState.STABLE
_VERSION_BYTES = 2
_STREAMS_TOPOLOGY = 23
_CONSUMER_PROTOCOL = "consumer"
_TASKS = ("activeTasks", "activeTasksPendingRevocation")  # a member still holds what it is to give up


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. `epoch` is the member's own epoch, or the generation of a classic group. `tasks` are the
    active ones of a streams group's member, as Streams names them (`0_3`: subtopology and partition).
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    epoch: int = -1
    stable: bool = True
    assigned: tuple[TopicPartition, ...] = ()
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """The topology of a streams group (KIP-1071). `sources` has the topics that each subtopology reads, `changelogs`
    those that keep the state of all.
    """

    epoch: int
    sources: Mapping[str, tuple[str, ...]]
    changelogs: tuple[str, ...]


@dataclass(slots=True)
class GroupState:
    """A group by its own records. `epoch` is the generation of a classic group; `assignment_epoch` is the epoch that
    the members are to reach. `protocol_type` is that of a classic group: consumer, connect, …
    """

    kind: str = CLASSIC
    epoch: int = -1
    assignment_epoch: int = -1
    protocol: str | None = None
    protocol_type: str | None = None
    topology: Topology | None = None
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The group's state, by Kafka's name."""
        if not self.members:
            return "Empty"
        if self.kind in (CLASSIC, SHARE):
            return "Stable"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reached = all(one.stable and one.epoch == self.assignment_epoch for one in self.members.values())
        return "Stable" if reached else "Reconciling"


TopicOf = Callable[[str], str | None]


def group_states(values: Iterable[StoredRecord], topic_of: TopicOf, problems: list[str]) -> dict[str, GroupState]:
    """Returns the groups that have records of their own, by name. `topic_of` returns the name of a topic id.

    Records that cannot be decoded are skipped, with a message in `problems`.
    """
    found: dict[str, GroupState] = {}
    assigned: dict[tuple[str, str], Mapping[str, Any]] = {}
    for stored in values:
        if is_offset_commit(stored.key):
            continue
        try:
            record = decode_coordinator_record(OFFSETS, stored.key, stored.value)
        except WireError as error:
            problems.append(f"offset {stored.offset}: {error}")
            continue
        if record.value is None:
            continue
        name = str(record.key.get("groupId", record.key.get("group")))
        group = found.setdefault(name, GroupState())
        if record.type == _CLASSIC_GROUP:
            _take_classic(group, record.value)
        elif record.type in _EPOCHS:
            group.kind, group.epoch = _EPOCHS[record.type], int(record.value["epoch"])
        elif record.type == _STREAMS_TOPOLOGY:
            group.topology = _topology(record.value)
        elif record.type in _ASSIGNMENT_EPOCHS:
            group.assignment_epoch = int(record.value["assignmentEpoch"])
        elif record.type in _MEMBERS:
            member_id, value = str(record.key["memberId"]), record.value
            client, host = str(value["clientId"]), str(value["clientHost"])
            group.members[member_id] = Member(member_id, client, host, value.get("instanceId"))
        elif record.type in _CURRENT_ASSIGNMENTS:
            assigned[name, str(record.key["memberId"])] = record.value
    for (name, member_id), value in assigned.items():
        known = found[name].members.get(member_id)
        if known is not None:
            found[name].members[member_id] = (
                _with_tasks(known, value, found[name].topology)
                if found[name].kind == STREAMS
                else _with_assignment(known, value, topic_of)
            )
    return found


def newer_kinds(keys: Iterable[bytes]) -> set[str]:
    """Returns the kinds of the groups with these keys in `__consumer_offsets` that are of a newer protocol."""
    return {_EPOCHS[kind] for key in keys if (kind := int.from_bytes(key[:_VERSION_BYTES], "big")) in _EPOCHS}


def _take_classic(group: GroupState, value: Mapping[str, Any]) -> None:
    group.epoch, group.protocol = int(value["generation"]), value.get("protocol")
    group.protocol_type = str(value["protocolType"])
    is_consumer = value["protocolType"] == _CONSUMER_PROTOCOL
    for one in value["members"]:
        member_id = str(one["memberId"])
        group.members[member_id] = Member(
            member_id,
            str(one["clientId"]),
            str(one["clientHost"]),
            one.get("groupInstanceId"),
            group.epoch,
            assigned=_classic_assignment(one["assignment"]) if is_consumer else (),
        )


def _classic_assignment(content: bytes) -> tuple[TopicPartition, ...]:
    """Decodes the partitions that a classic group's leader assigned to a member; () if the format is a custom one."""
    message = messages(CONSUMER_PROTOCOL)[0, "assignment"]
    version = min(int.from_bytes(content[:_VERSION_BYTES], "big", signed=True), message.last_version)
    if len(content) < _VERSION_BYTES or version < 0:
        return ()
    try:
        found = decode_message(message, content, version, _VERSION_BYTES)
    except WireError:
        return ()
    topics = found["assignedPartitions"]
    return tuple(TopicPartition(str(one["topic"]), int(number)) for one in topics for number in one["partitions"])


def _with_assignment(member: Member, value: Mapping[str, Any], topic_of: TopicOf) -> Member:
    """Returns a member of the newer protocols with its current assignment. A topic without a name appears by its id."""
    partitions = tuple(
        TopicPartition(topic_of(str(one["topicId"])) or str(one["topicId"]), int(number))
        for field in ("assignedPartitions", "partitionsPendingRevocation")  # it still holds what it is to give up
        for one in value.get(field) or ()
        for number in one["partitions"]
    )
    stable = int(value["state"]) == _STABLE_MEMBER
    return replace(member, epoch=int(value["memberEpoch"]), stable=stable, assigned=partitions)


def _topology(value: Mapping[str, Any]) -> Topology:
    parts = value["subtopologies"]
    sources = {
        str(part["subtopologyId"]): tuple(
            map(str, (*part["sourceTopics"], *(topic["name"] for topic in part["repartitionSourceTopics"])))
        )
        for part in parts
    }
    changelogs = tuple(str(topic["name"]) for part in parts for topic in part["stateChangelogTopics"])
    return Topology(int(value["epoch"]), sources, changelogs)


def _with_tasks(member: Member, value: Mapping[str, Any], topology: Topology | None) -> Member:
    """Returns a member of a streams group with its active tasks, and the partitions that these read by the topology."""
    tasks = [
        (str(one["subtopologyId"]), int(number))
        for name in _TASKS
        for one in value.get(name) or ()
        for number in one["partitions"]
    ]
    sources = {} if topology is None else topology.sources
    partitions = tuple(TopicPartition(topic, number) for part, number in tasks for topic in sources.get(part, ()))
    stable = int(value["state"]) == _STABLE_MEMBER
    names = tuple(f"{part}_{number}" for part, number in tasks)
    return replace(member, epoch=int(value["memberEpoch"]), stable=stable, assigned=partitions, tasks=names)
