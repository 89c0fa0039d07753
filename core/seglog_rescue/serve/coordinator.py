"""All groups of the endpoint: made by the first join, forgotten without members (Kafka: GroupCoordinator).

A group is of the classic protocol or of the consumer protocol (KIP-848), as its first member is. Both kinds share
names, bounds, time and committed offsets, with which it stays known what a group was. A join or sync waits for a
future; a ticker tells the groups the time. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping

from seglog_rescue.groups.states import CLASSIC, CONSUMER
from seglog_rescue.serve.committed import CommittedOffsets, GroupKind
from seglog_rescue.serve.consumer_group import JOINING, ConsumerGroup, HeartbeatAnswer, HeartbeatRequest
from seglog_rescue.serve.endpoint import Endpoint
from seglog_rescue.serve.groups import Group, Joined, JoinRequest, Outcome, Reply, Synced
from seglog_rescue.serve.partition_sets import PartitionSet

_TICK_S = 0.05
_MAX_MEMBERS = 10_000  # of all groups


class Coordinator:
    """Groups by name. `close` answers all waiting requests."""

    def __init__(self, endpoint: Endpoint, offsets: CommittedOffsets) -> None:
        self._endpoint, self._offsets = endpoint, offsets
        self.groups: dict[str, Group | ConsumerGroup] = {}
        self._served = PartitionSet.of(endpoint.catalog.topics)
        self._members = 0
        self._sizes: dict[str, int] = {}  # of groups, in bytes
        self._size = 0
        self._ticker: asyncio.Task[None] | None = None
        self._closed = False

    async def join(self, group_id: str, request: JoinRequest) -> Joined:
        """Waits for the member's rebalance."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return Joined(Outcome.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        full = group is None and len(self.groups) >= self._endpoint.limits.groups
        known = None if group is None else group.members.get(request.member_id)
        more = request.size - known.request.size if known is not None else request.size + len(group_id)
        full = full or not self._fits(more)
        if full or (self._members >= _MAX_MEMBERS and not request.member_id):
            return Joined(Outcome.GROUP_MAX_SIZE_REACHED, request.member_id)
        if self._closed:
            return Joined(Outcome.NOT_COORDINATOR, request.member_id)
        if group is None:
            group = self.groups[group_id] = Group(
                group_id, self._endpoint.limits, lambda client: f"{client}-{uuid.uuid4()}"
            )
        waiting: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        self._settle(group, group.join(request, waiting, self._now()))
        self._tell_time()
        return await waiting

    def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Takes a heartbeat of a member of the consumer protocol, which joins, stays and leaves by nothing else."""
        group = self.groups.get(group_id)
        problem, reason = Outcome.NONE, ""
        if self._closed:
            problem, reason = Outcome.NOT_COORDINATOR, "the endpoint stops"
        elif isinstance(group, Group):
            problem, reason = Outcome.GROUP_ID_NOT_FOUND, "the group has members of the classic protocol"
        elif not self._has_room(group, request):
            problem, reason = Outcome.GROUP_MAX_SIZE_REACHED, "this endpoint keeps no more groups and members"
        if problem is not Outcome.NONE:
            return HeartbeatAnswer(problem, reason)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id, self._endpoint.limits, self._served)
        answer = group.heartbeat(request, self._now())
        self._settle(group, ())
        self._tell_time()
        return answer

    def _has_room(self, group: ConsumerGroup | Group | None, request: HeartbeatRequest) -> bool:
        """True if what a heartbeat brings may be kept: its texts, and three sets of the partitions it asks for."""
        if request.epoch != JOINING and request.names is None and request.pattern is None:
            return True
        topics = (request.names or frozenset()) | request.matched
        more = request.size + 3 * self._served.of_topics(topics).size
        is_new = group is None or request.member_id not in group.members
        if is_new and (
            self._members >= _MAX_MEMBERS or len(self.groups) - (group is not None) >= self._endpoint.limits.groups
        ):
            return False
        return self._fits(more)

    async def sync(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        *,
        instance_id: str | None,
        protocol: tuple[str | None, str | None],
    ) -> Synced:
        """Waits for the leader's assignment."""
        group = self._classic(group_id)
        if group is None:
            return Synced(Outcome.UNKNOWN_MEMBER_ID)
        if not self._fits(sum(map(len, assignments.values()))):
            return Synced(Outcome.GROUP_MAX_SIZE_REACHED)
        waiting: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        replies = group.sync(
            member_id, generation, assignments, waiting, self._now(), instance_id=instance_id, protocol=protocol
        )
        self._settle(group, replies)
        return await waiting

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> Outcome:
        """Notes that a member lives; returns what it must do."""
        group = self._classic(group_id)
        if group is None:
            return Outcome.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, generation, self._now(), instance_id)

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> Outcome:
        """Removes a member."""
        group = self._classic(group_id)
        if group is None:
            return Outcome.UNKNOWN_MEMBER_ID
        outcome, replies = group.leave(member_id, self._now(), instance_id)
        self._settle(group, replies)
        return outcome

    def commit_problem(
        self, group_id: str, member_id: str, generation: int, instance_id: str | None, *, knows_epochs: bool = True
    ) -> Outcome:
        """Returns why a member may not commit offsets, NONE if it may.

        A group without members may have had some before a restart: a member of it has to join again, as in a broker,
        which remembers groups.
        """
        group = self.groups.get(group_id)
        if group is None:
            return Outcome.NONE if generation < 0 else Outcome.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            return group.offset_problem(member_id, generation, knows_epochs=knows_epochs)
        return group.commit_problem(member_id, generation, self._now(), instance_id)

    def fetch_problem(self, group_id: str, member_id: str | None, epoch: int) -> Outcome:
        """Returns why a member may not fetch committed offsets, NONE if it may. Who names no member may."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or (member_id is None and epoch < 0):
            return Outcome.NONE
        return group.offset_problem(member_id, epoch)

    def knows(self, group_id: str) -> bool:
        """True for a group with members, with commits, or of the directories."""
        return group_id in self.groups or self._offsets.knows(group_id)

    def kind_of(self, group_id: str) -> GroupKind:
        """Returns what a group is: as its members are, else as its last ones were."""
        group = self.groups.get(group_id)
        return self._offsets.kind_of(group_id) if group is None else _kind(group)

    def close(self) -> None:
        """Ends all groups."""
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for group in list(self.groups.values()):
            self._deliver(group, group.close())
        self._count()

    def _classic(self, group_id: str) -> Group | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, Group) else None

    def _tell_time(self) -> None:
        """Begins to tell the groups the time, if nobody does."""
        if self._ticker is None and self.groups:
            self._ticker = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while self.groups:
            await asyncio.sleep(_TICK_S)
            now = self._now()
            for group in list(self.groups.values()):
                before = len(group.members), len(group.pending)
                replies = group.tick(now)
                if replies or before != (len(group.members), len(group.pending)):
                    self._deliver(group, replies)
            self._count()
        self._ticker = None

    def _settle(self, group: Group | ConsumerGroup, replies: Iterable[Reply]) -> None:
        self._deliver(group, replies)
        self._count()

    def _deliver(self, group: Group | ConsumerGroup, replies: Iterable[Reply]) -> None:
        for token, answer in replies:
            if isinstance(token, asyncio.Future) and not token.done():
                token.set_result(answer)
        size = group.size
        if not group.members and not group.pending:
            self.groups.pop(group.group_id, None)
            size = 0
            self._remember(group)
        self._size += size - self._sizes.pop(group.group_id, 0)
        if size:
            self._sizes[group.group_id] = size
        self._endpoint.metrics.rebalances_total += group.rebalances
        group.rebalances = 0

    def _remember(self, group: Group | ConsumerGroup) -> None:
        """Takes note of what a group with commits was, as long as there is room for it."""
        kind, room = _kind(group), self._endpoint.limits.commits_bytes - self._offsets.size
        if self._offsets.knows(group.group_id) and len(kind.protocol_type) <= room:
            self._offsets.set_kind(group.group_id, kind)

    def _count(self) -> None:
        metrics = self._endpoint.metrics
        self._members = sum(len(each.members) + len(each.pending) for each in self.groups.values())
        metrics.groups, metrics.members = len(self.groups), self._members

    def _fits(self, size: int) -> bool:
        """True if the groups may keep `size` more bytes."""
        return size <= 0 or self._size + size <= self._endpoint.limits.groups_bytes

    def _now(self) -> int:
        return int(self._endpoint.clock.monotonic() * 1000)


def _kind(group: Group | ConsumerGroup) -> GroupKind:
    if isinstance(group, ConsumerGroup):
        return GroupKind(CONSUMER, CONSUMER, group.epoch, group.epoch)
    return GroupKind(CLASSIC, group.protocol_type or "")
