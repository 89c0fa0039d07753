"""All groups of the endpoint: made by the first join, forgotten without members (Kafka: GroupCoordinator).

A join or sync waits for a future; a ticker tells the groups the time. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping

from seglog.serve.endpoint import Endpoint
from seglog.serve.groups import Group, Joined, JoinRequest, Outcome, Reply, Synced

_TICK_S = 0.05
_MAX_MEMBERS = 10_000  # of all groups


class Coordinator:
    """Groups by name. `close` answers all waiting requests."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.groups: dict[str, Group] = {}
        self._members = 0
        self._sizes: dict[str, int] = {}  # of groups, in bytes
        self._size = 0
        self._ticker: asyncio.Task[None] | None = None
        self._closed = False

    async def join(self, group_id: str, request: JoinRequest) -> Joined:
        """Waits for the member's rebalance."""
        group = self.groups.get(group_id)
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
        if self._ticker is None and self.groups:
            self._ticker = asyncio.create_task(self._tick())
        return await waiting

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
        group = self.groups.get(group_id)
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
        group = self.groups.get(group_id)
        if group is None:
            return Outcome.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, generation, self._now(), instance_id)

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> Outcome:
        """Removes a member."""
        group = self.groups.get(group_id)
        if group is None:
            return Outcome.UNKNOWN_MEMBER_ID
        outcome, replies = group.leave(member_id, self._now(), instance_id)
        self._settle(group, replies)
        return outcome

    def commit_problem(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> Outcome:
        """Returns why a member may not commit offsets, NONE if it may."""
        group = self.groups.get(group_id)
        if group is None:
            return Outcome.NONE if generation < 0 else Outcome.ILLEGAL_GENERATION
        return group.commit_problem(member_id, generation, self._now(), instance_id)

    def close(self) -> None:
        """Ends all groups."""
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for group in list(self.groups.values()):
            self._deliver(group, group.close())
        self._count()

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

    def _settle(self, group: Group, replies: Iterable[Reply]) -> None:
        self._deliver(group, replies)
        self._count()

    def _deliver(self, group: Group, replies: Iterable[Reply]) -> None:
        for token, answer in replies:
            if isinstance(token, asyncio.Future) and not token.done():
                token.set_result(answer)
        size = group.size
        if not group.members and not group.pending:
            self.groups.pop(group.group_id, None)
            size = 0
        self._size += size - self._sizes.pop(group.group_id, 0)
        if size:
            self._sizes[group.group_id] = size
        self._endpoint.metrics.rebalances_total += group.rebalances
        group.rebalances = 0

    def _count(self) -> None:
        metrics = self._endpoint.metrics
        self._members = sum(len(each.members) + len(each.pending) for each in self.groups.values())
        metrics.groups, metrics.members = len(self.groups), self._members

    def _fits(self, size: int) -> bool:
        """True if the groups may keep `size` more bytes."""
        return size <= 0 or self._size + size <= self._endpoint.limits.groups_bytes

    def _now(self) -> int:
        return int(self._endpoint.clock.monotonic() * 1000)
