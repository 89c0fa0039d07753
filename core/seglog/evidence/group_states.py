"""What `__consumer_offsets` says of the groups themselves: kind, state, epoch, members and what they were assigned.

Kafka: GroupMetadataManager.replay. A group's state is not stored: it follows from its members, as a broker that loads
the group concludes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seglog.evidence.coordinator_replay import Stored
from seglog.format import message_tables
from seglog.format.coordinator import OFFSETS, decode_coordinator_record, is_offset_commit
from seglog.format.wire import WireError, decode_message
from seglog.model import TopicPartition

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"

_CLASSIC_GROUP = 2
_EPOCHS = {3: CONSUMER, 11: SHARE, 17: STREAMS}
_MEMBERS = (5, 10, 19)
_ASSIGNMENT_EPOCHS = (6, 12, 20)
_CURRENT_ASSIGNMENTS = (8, 14, 22)
_STABLE_MEMBER = 0  # Kafka: MemberState.STABLE
_VERSION_BYTES = 2
_CONSUMER_PROTOCOL = "consumer"


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. `epoch` is its own, of a classic group's member the generation."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    epoch: int = -1
    stable: bool = True
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(slots=True)
class GroupState:
    """A group as its own records tell it: `epoch` is a classic group's generation; `assignment_epoch` the one that its
    members are to reach.
    """

    kind: str = CLASSIC
    epoch: int = -1
    assignment_epoch: int = -1
    protocol: str | None = None
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """As Kafka calls it."""
        if not self.members:
            return "Empty"
        if self.kind in (CLASSIC, SHARE):
            return "Stable"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reached = all(one.stable and one.epoch == self.assignment_epoch for one in self.members.values())
        return "Stable" if reached else "Reconciling"


TopicOf = Callable[[str], str | None]


def group_states(values: Iterable[Stored], topic_of: TopicOf, problems: list[str]) -> dict[str, GroupState]:
    """The groups that have records of their own, by name. `topic_of` gives the name of a topic id.

    What cannot be decoded is passed over, with a sentence in `problems`.
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
            found[name].members[member_id] = _with_assignment(known, value, topic_of)
    return found


def _take_classic(group: GroupState, value: Mapping[str, Any]) -> None:
    group.epoch, group.protocol = int(value["generation"]), value.get("protocol")
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
    """What the leader of a group of consumers assigned to a member; nothing where it is in a form of its own."""
    message = message_tables.messages(message_tables.CONSUMER_PROTOCOL)[0, "assignment"]
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
    """A member of the newer protocols: what it holds now. A topic without a name is called by its id."""
    partitions = tuple(
        TopicPartition(topic_of(str(one["topicId"])) or str(one["topicId"]), int(number))
        for one in value.get("assignedPartitions") or ()
        for number in one["partitions"]
    )
    stable = int(value["state"]) == _STABLE_MEMBER
    return Member(
        member.member_id, member.client_id, member.host, member.instance_id, int(value["memberEpoch"]), stable,
        partitions,
    )  # fmt: skip
