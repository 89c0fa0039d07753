"""Answers requests about groups: finding the coordinator, joining, syncing, heartbeats, leaving, committed offsets.

Each coroutine takes kio's request and returns the fields of the answer, for all supported versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog_rescue.groups.states import CLASSIC
from seglog_rescue.serve import consumer_requests, protocol
from seglog_rescue.serve.committed import Commit, CommittedOffsets, OffsetsFile
from seglog_rescue.serve.consumer_group import ConsumerGroup
from seglog_rescue.serve.coordinator import Coordinator
from seglog_rescue.serve.endpoint import NODE_ID, Endpoint
from seglog_rescue.serve.groups import Group, Joined, JoinRequest, Outcome, State
from seglog_rescue.serve.patterns import PatternError
from seglog_rescue.serve.protocol import (
    GROUP_OPERATIONS,
    NO_NODE,
    NO_OFFSET,
    NO_OPERATIONS,
    ErrorCode,
    Values,
    each_once,
)

Answerer = Callable[["GroupRequests", Any, int, str, str], Awaitable[Values]]

_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_COORDINATOR_ERRORS = {
    _GROUP_KEY: ErrorCode.none,
    _TRANSACTION_KEY: ErrorCode.transactional_id_authorization_failed,
}
_KINDS_NEEDED_FROM = 5  # SyncGroup: KIP-559
_NAMED_FIRST_FROM = 4  # JoinGroup: KIP-394
_EPOCHS_FROM = 9  # OffsetCommit: KIP-848
_TOPIC_IDS_FROM = 10  # OffsetFetch and OffsetCommit: KIP-848
_NOT_FOUND_FROM = 6  # DescribeGroups: KIP-1043


class GroupRequests:
    """Answers the requests about groups. Checks commits and keeps them in `offsets`, and in `file` if there is one."""

    def __init__(
        self, endpoint: Endpoint, coordinator: Coordinator, offsets: CommittedOffsets, file: OffsetsFile | None
    ) -> None:
        self._endpoint, self._coordinator, self._offsets, self._file = endpoint, coordinator, offsets, file
        self._writing = asyncio.Lock()

    async def answer(self, request: protocol.Request, host: str) -> Values:
        """Returns the fields of the answer."""
        return await _ANSWERS[request.api_key](self, request.body, request.version, request.client_id or "", host)

    async def find_coordinator(self, body: Any, version: int, _client: str, _host: str) -> Values:
        """Answers with this node for groups; transactions are not supported."""
        kind = int(getattr(body, "key_type", _GROUP_KEY))
        address, is_group = self._endpoint.advertised, kind == _GROUP_KEY
        message = "" if version >= 4 else "NONE"  # a broker's words for no error
        found = {
            "node_id": NODE_ID if is_group else NO_NODE,
            "host": address.host if is_group else "",
            "port": address.port if is_group else -1,
            "error_code": _COORDINATOR_ERRORS.get(kind, ErrorCode.invalid_request),
            "error_message": message if is_group else "seglog coordinates groups of consumers only",
        }
        return found if version < 4 else {"coordinators": [{"key": key, **found} for key in body.coordinator_keys]}

    async def join(self, body: Any, version: int, client: str, host: str) -> Values:
        """Waits for the rebalance."""
        session_ms = _ms(body.session_timeout)
        rebalance_ms = _ms(body.rebalance_timeout) if version >= 1 else session_ms
        request = JoinRequest(
            body.member_id,
            body.protocol_type,
            tuple((each.name, bytes(each.metadata)) for each in body.protocols),
            session_ms,
            min(max(rebalance_ms, 0), self._endpoint.limits.session_most_ms),
            getattr(body, "group_instance_id", None),
            client,
            host,
            named_first=version >= _NAMED_FIRST_FROM,
        )
        if body.group_id:
            joined = await self._coordinator.join(body.group_id, request)
        else:
            joined = Joined(Outcome.INVALID_GROUP_ID, body.member_id)
        members = [{"member_id": name, "group_instance_id": at, "metadata": said} for name, at, said in joined.members]
        return {
            "error_code": ErrorCode(joined.outcome),
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": joined.protocol if joined.protocol is not None or version >= 7 else "",
            "leader": joined.leader,
            "member_id": joined.member_id,
            "members": members,
        }

    async def sync(self, body: Any, version: int, _client: str, _host: str) -> Values:
        """Waits for the leader's assignments."""
        if version >= _KINDS_NEEDED_FROM and None in (body.protocol_type, body.protocol_name):
            return {**_NOT_SYNCED, "error_code": ErrorCode.inconsistent_group_protocol}
        if not body.group_id:
            return {**_NOT_SYNCED, "error_code": ErrorCode.invalid_group_id}
        synced = await self._coordinator.sync(
            body.group_id,
            body.member_id,
            int(body.generation_id),
            {each.member_id: bytes(each.assignment) for each in body.assignments},
            instance_id=getattr(body, "group_instance_id", None),
            protocol=(getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)),
        )
        return {
            "error_code": ErrorCode(synced.outcome),
            "protocol_type": synced.protocol_type,
            "protocol_name": synced.protocol,
            "assignment": synced.assignment,
        }

    async def heartbeat(self, body: Any, _version: int, _client: str, _host: str) -> Values:
        """Notes that a member lives."""
        if not body.group_id:
            return {"error_code": ErrorCode.invalid_group_id}
        instance = getattr(body, "group_instance_id", None)
        outcome = self._coordinator.heartbeat(body.group_id, body.member_id, int(body.generation_id), instance)
        return {"error_code": ErrorCode(outcome)}

    async def leave(self, body: Any, version: int, _client: str, _host: str) -> Values:
        """Removes a member, or several from version 3 on."""
        if not body.group_id:
            return {"error_code": ErrorCode.invalid_group_id, "members": ()}
        if version < 3:
            outcome = self._coordinator.leave(body.group_id, body.member_id, None)
            return {"error_code": ErrorCode(outcome)}
        gone = []
        for each in body.members:
            outcome = self._coordinator.leave(body.group_id, each.member_id, each.group_instance_id)
            names = {"member_id": each.member_id, "group_instance_id": each.group_instance_id}
            gone.append({**names, "error_code": ErrorCode(outcome)})
        return {"error_code": ErrorCode.none, "members": gone}

    async def consumer_heartbeat(self, body: Any, version: int, client: str, host: str) -> Values:
        """Takes a heartbeat of the consumer protocol. A thread matches a pattern, so that others need not wait."""
        pattern = getattr(body, "subscribed_topic_regex", None)
        if pattern:
            with suppress(PatternError):  # `heartbeat` answers it
                loop, catalog = asyncio.get_running_loop(), self._endpoint.catalog
                await loop.run_in_executor(None, consumer_requests.matched_topics, catalog, pattern)
        return consumer_requests.heartbeat(self._endpoint, self._coordinator, body, (client, host), version)

    # --- offsets ------------------------------------------------------------------------------------------

    async def fetch_offsets(self, body: Any, version: int, _client: str, _host: str) -> Values:
        """Answers with groups' committed offsets: of the given partitions, or of all."""
        if version < 8:
            topics = self._committed(body.group_id, body.topics)
            return {"topics": topics, "error_code": ErrorCode.none}
        return {
            "groups": [self._committed_of(each, by_id=version >= _TOPIC_IDS_FROM) for each in each_once(body.groups)]
        }

    def _committed_of(self, asked: Any, *, by_id: bool) -> Values:
        """Answers for one group. Who says which member it is gets offsets in the member's epoch only (KIP-848)."""
        member_id, epoch = getattr(asked, "member_id", None), int(getattr(asked, "member_epoch", -1))
        problem = self._coordinator.fetch_problem(asked.group_id, member_id, epoch)
        if problem is not Outcome.NONE:
            return {"group_id": asked.group_id, "topics": (), "error_code": ErrorCode(problem)}
        if not by_id:
            return {"group_id": asked.group_id, "topics": self._committed(asked.group_id, asked.topics)}
        return {"group_id": asked.group_id, "topics": self._committed_by_id(asked.group_id, asked.topics)}

    def _committed_by_id(self, group: str, asked: Any) -> list[Values]:
        """Returns the commits by topic ids: of all served topics, or of those asked for."""
        catalog = self._endpoint.catalog
        if asked is None:
            served = [topic for topic in self._committed(group, None) if topic["name"] in catalog.topics]
            return [{**topic, "topic_id": catalog.topic_id(topic["name"])} for topic in served]
        commits = self._offsets.of(group)
        answers: list[Values] = []
        for topic in asked:
            name = catalog.topic_of(topic.topic_id)
            numbers = [int(number) for number in each_once(topic.partition_indexes)]
            entries = [_entry(each, commits.get(TopicPartition(name or "", each))) for each in numbers]
            if name is None:
                entries = [{**entry, "error_code": ErrorCode.unknown_topic_id} for entry in entries]
            answers.append({"topic_id": topic.topic_id, "partitions": entries})
        return answers

    def _committed(self, group: str, asked: Any) -> list[Values]:
        commits = self._offsets.of(group)
        numbers_of: dict[str, list[int]] = {}
        if asked is None:
            for partition in sorted(commits):
                numbers_of.setdefault(partition.topic, []).append(partition.partition)
        else:
            numbers_of = {topic.name: [int(number) for number in topic.partition_indexes] for topic in asked}
        return [
            {"name": topic, "partitions": [_entry(each, commits.get(TopicPartition(topic, each))) for each in numbers]}
            for topic, numbers in numbers_of.items()
        ]

    async def commit_offsets(self, body: Any, version: int, _client: str, _host: str) -> Values:
        """Commits offsets of a member, or of a consumer without a group's assignment."""
        generation, instance = int(body.generation_id_or_member_epoch), getattr(body, "group_instance_id", None)
        problem = self._coordinator.commit_problem(
            body.group_id, body.member_id, generation, instance, knows_epochs=version >= _EPOCHS_FROM
        )
        refusal = ErrorCode(problem)
        taken: list[tuple[str, TopicPartition, Commit]] = []
        topics: list[dict[str, Any]] = []
        for topic in body.topics:
            entries = []
            by_id = version >= _TOPIC_IDS_FROM
            name = self._endpoint.catalog.topic_of(topic.topic_id) if by_id else topic.name
            for each in topic.partitions:
                partition = TopicPartition(name or "", int(each.partition_index))
                commit = Commit(
                    int(each.committed_offset),
                    int(getattr(each, "committed_leader_epoch", NO_LEADER_EPOCH)),
                    each.committed_metadata or "",
                )
                error = refusal or self._commit_problem(body.group_id, partition, commit)
                if name is None and not refusal:
                    error = ErrorCode.unknown_topic_id
                if error is ErrorCode.none:
                    taken.append((body.group_id, partition, commit))
                entries.append({"partition_index": partition.partition, "error_code": error})
            named = {"topic_id": topic.topic_id} if by_id else {"name": name}
            topics.append({**named, "partitions": entries})
        if taken and not await self._keep(taken):
            for entry in (each for topic in topics for each in topic["partitions"] if not each["error_code"]):
                entry["error_code"] = ErrorCode.coordinator_not_available
        return {"topics": topics}

    def _commit_problem(self, group: str, partition: TopicPartition, commit: Commit) -> ErrorCode:
        limits = self._endpoint.limits
        if len(commit.metadata.encode()) > limits.commit_metadata_bytes:
            return ErrorCode.offset_metadata_too_large
        if self._endpoint.catalog.find(partition.topic, partition.partition) is None:
            return ErrorCode.unknown_topic_or_partition
        if commit.offset < 0:
            return ErrorCode.invalid_commit_offset_size
        if partition not in self._offsets.of(group) and self._offsets.count >= limits.commits:
            return ErrorCode.group_max_size_reached
        growth = self._offsets.growth(group, partition, commit)
        if growth > 0 and self._offsets.size + growth > limits.commits_bytes:
            return ErrorCode.group_max_size_reached
        return ErrorCode.none

    async def _keep(self, taken: list[tuple[str, TopicPartition, Commit]]) -> bool:
        """Writes commits to the file, if there is one, and to memory; False if the file cannot be written."""
        if self._file is not None:
            async with self._writing:
                try:
                    kind_of = {group: self._coordinator.kind_of(group) for group, _, _ in taken}.__getitem__
                    await asyncio.get_running_loop().run_in_executor(None, self._file.append, taken, kind_of)
                except OSError as error:
                    self._endpoint.observer.offsets_not_kept(self._file.path, error)
                    return False
        for entry in taken:
            self._offsets.put(*entry)
        self._endpoint.metrics.commits_total += len(taken)
        return True

    # --- listing ------------------------------------------------------------------------------------------

    async def list_groups(self, body: Any, _version: int, _client: str, _host: str) -> Values:
        """Lists groups with members here, those with committed offsets, and those of the directories."""
        living = self._coordinator.groups
        listed = {name: self._coordinator.kind_of(name) for name in sorted({*living, *self._offsets.groups})}
        states = {name: _state(living.get(name)) for name in listed}
        states_filter, types_filter = (
            {each.lower() for each in getattr(body, f, ())} for f in ("states_filter", "types_filter")
        )
        return {
            "error_code": ErrorCode.none,
            "groups": [
                {
                    "group_id": name,
                    "protocol_type": kind.protocol_type,
                    "group_state": states[name],
                    "group_type": kind.group_type,
                }
                for name, kind in listed.items()
                if (not states_filter or states[name].lower() in states_filter)
                and (not types_filter or kind.group_type in types_filter)
            ],
        }

    async def describe_consumer_groups(self, body: Any, _version: int, _client: str, _host: str) -> Values:
        """Describes groups of the consumer protocol."""
        return consumer_requests.describe(self._endpoint, self._coordinator, body)

    async def describe_groups(self, body: Any, version: int, _client: str, _host: str) -> Values:
        """Describes the members of groups of the classic protocol."""
        asked = getattr(body, "include_authorized_operations", False)
        operations = {"authorized_operations": GROUP_OPERATIONS if asked else NO_OPERATIONS}
        described = [self._described(name, version) for name in each_once(body.groups)]
        return {"groups": [each if each["error_code"] else each | operations for each in described]}

    def _described(self, name: str, version: int) -> dict[str, Any]:
        group, kind = self._coordinator.groups.get(name), self._coordinator.kind_of(name)
        if isinstance(group, ConsumerGroup) or kind.group_type != CLASSIC or not self._coordinator.knows(name):
            return {
                "error_code": ErrorCode.group_id_not_found if version >= _NOT_FOUND_FROM else ErrorCode.none,
                "error_message": f"no group {name} of the classic protocol is here",
                "group_id": name,
                "group_state": "Dead",
                "protocol_type": "",
                "protocol_data": "",
                "members": (),
            }
        members = [] if group is None else group.members.values()
        protocol = group.protocol if group is not None and group.state is State.STABLE else None  # as a broker
        return {
            "error_code": ErrorCode.none,
            "group_id": name,
            "group_state": _state(group),
            "protocol_type": kind.protocol_type,
            "protocol_data": protocol or "",
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.request.instance_id,
                    "client_id": each.request.client_id,
                    "client_host": f"/{each.request.client_host}",
                    "member_metadata": each.metadata(protocol),
                    "member_assignment": each.assignment,
                }
                for each in members
            ],
        }


_ANSWERS: Mapping[int, Answerer] = MappingProxyType(
    {
        protocol.FIND_COORDINATOR: GroupRequests.find_coordinator,
        protocol.JOIN_GROUP: GroupRequests.join,
        protocol.SYNC_GROUP: GroupRequests.sync,
        protocol.HEARTBEAT: GroupRequests.heartbeat,
        protocol.LEAVE_GROUP: GroupRequests.leave,
        protocol.OFFSET_FETCH: GroupRequests.fetch_offsets,
        protocol.OFFSET_COMMIT: GroupRequests.commit_offsets,
        protocol.LIST_GROUPS: GroupRequests.list_groups,
        protocol.DESCRIBE_GROUPS: GroupRequests.describe_groups,
        protocol.CONSUMER_GROUP_HEARTBEAT: GroupRequests.consumer_heartbeat,
        protocol.CONSUMER_GROUP_DESCRIBE: GroupRequests.describe_consumer_groups,
    }
)
GROUP_APIS = frozenset(_ANSWERS)
_NOT_SYNCED: Values = {"protocol_type": None, "protocol_name": None, "assignment": b""}


def _ms(duration: Any) -> int:
    milliseconds: int = round(duration.total_seconds() * 1000)
    return milliseconds


def _state(group: Group | ConsumerGroup | None) -> str:
    if isinstance(group, ConsumerGroup):
        return group.state
    return "Empty" if group is None else group.state.value


def _entry(number: int, commit: Commit | None) -> Values:
    found = Commit(NO_OFFSET) if commit is None else commit
    return {
        "partition_index": number,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": ErrorCode.none,
    }
