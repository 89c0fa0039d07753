"""One group of the consumer protocol (KIP-848), as a state machine without sockets or time (Kafka: ConsumerGroup).

Members only send heartbeats. Each change of members or subscriptions raises the group's epoch and gives every member a
target, made by an assignor. A heartbeat brings its member one step nearer to its target (Kafka:
CurrentAssignmentBuilder): it is told to give up what others are to have, then it gets the group's epoch, and what
nobody else holds any more.

    STABLE → UNREVOKED (has to give up partitions) → UNRELEASED (waits for partitions of others) → STABLE

Times are milliseconds of the caller's clock; `tick` ends sessions, and members that give nothing up in time. Unlike in
Kafka, members of the classic protocol cannot be in the same group at the same time: there is no gradual migration of a
group that reads a dead disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from seglog_rescue.serve.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from seglog_rescue.serve.endpoint import Limits
from seglog_rescue.serve.groups import Outcome, Reply
from seglog_rescue.serve.partition_sets import PartitionSet

JOINING, LEAVING, LEAVING_FOR_NOW = 0, -1, -2  # member epochs in requests
_MEMBER_BYTES = 1024
_NAME_BYTES = 64
_NOTHING = PartitionSet()


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A heartbeat. None stands for what has not changed since the last one; a pattern "" for none any more.

    `matched` are the topics that the pattern matches.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    names: frozenset[str] | None = None
    pattern: str | None = None
    matched: frozenset[str] = frozenset()
    assignor: str | None = None
    owned: PartitionSet | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """True for one that says everything, and is told everything: a join, or the first after a lost answer."""
        subscribed = self.names is not None or self.pattern is not None
        return self.epoch == JOINING or (subscribed and None not in (self.rebalance_timeout_ms, self.owned))

    @property
    def size(self) -> int:
        """The bytes kept of it."""
        texts = (self.member_id, self.instance_id, self.rack_id, self.pattern, self.client_id, self.client_host)
        names = sum(len(each) + _NAME_BYTES for each in self.names or ())
        return _MEMBER_BYTES + names + len(self.matched) * _NAME_BYTES + sum(len(each or "") for each in texts)


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat; `assignment` is None if it has not changed. A refusal names no member."""

    outcome: Outcome
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    assignment: PartitionSet | None = None


class MemberState(Enum):
    """How far a member is on the way to its target (Kafka: MemberState)."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member. It may use `assigned`, has to give up `revoking`, and is to have `target`."""

    request: HeartbeatRequest  # the last full one, with later changes
    deadline: int
    epoch: int = JOINING
    previous_epoch: int = LEAVING
    state: MemberState = MemberState.STABLE
    assigned: PartitionSet = _NOTHING
    revoking: PartitionSet = _NOTHING
    target: PartitionSet = _NOTHING
    revoke_by: int = 0

    @property
    def member_id(self) -> str:
        return self.request.member_id

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it is subscribed to."""
        return (self.request.names or frozenset()) | self.request.matched

    @property
    def size(self) -> int:
        """The bytes kept of it."""
        return self.request.size + self.assigned.size + self.revoking.size + self.target.size


class _RefusedError(Exception):
    """Raised within a heartbeat that is answered by an error."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome, self.message = outcome, message


@dataclass(slots=True)
class ConsumerGroup:
    """One group over the partitions `served`; `rebalances` counts the targets made."""

    group_id: str
    limits: Limits
    served: PartitionSet
    epoch: int = 0
    assignor: str = DEFAULT_ASSIGNOR
    rebalances: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    _held: PartitionSet = _NOTHING  # by any member: assigned, or not yet given up
    _size: int | None = None

    @property
    def pending(self) -> Mapping[str, int]:
        """Ids without members: there are none, unlike in a group of the classic protocol."""
        return {}

    @property
    def size(self) -> int:
        """The bytes kept of its members."""
        if self._size is None:
            self._size = len(self.group_id) + sum(each.size for each in self.members.values())
        return self._size

    @property
    def state(self) -> str:
        """Kafka's name of the state: Empty, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        settled = all(m.state is MemberState.STABLE and m.epoch == self.epoch for m in self.members.values())
        return "Stable" if settled else "Reconciling"

    # --- heartbeats ---------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now: int) -> HeartbeatAnswer:
        """Joins, keeps alive, brings nearer to its target, or removes a member."""
        try:
            refuse_invalid(request)
            if request.epoch < JOINING:
                return self._leave(request, now)
            member = self._joined(request, now) if request.epoch == JOINING else self._known(request)
        except _RefusedError as error:
            return HeartbeatAnswer(error.outcome, error.message)
        return self._advance(member, request, now)

    def _advance(self, member: ConsumerMember, request: HeartbeatRequest, now: int) -> HeartbeatAnswer:
        before = member.assigned
        if member.epoch != LEAVING_FOR_NOW:
            member.deadline = now + self.limits.consumer_session_ms
        if self._update(member, request):
            self._make_targets()
        self._reconcile(member, request.owned, now)
        changed = request.is_full or member.assigned != before
        assignment = member.assigned if changed else None
        return HeartbeatAnswer(Outcome.NONE, None, member.member_id, member.epoch, assignment)

    def _joined(self, request: HeartbeatRequest, now: int) -> ConsumerMember:
        """Returns the joining member: a new one, one that joins again, or the successor of a static one."""
        same = self._instance(request.instance_id)
        if same is None or same.member_id == request.member_id:
            member = self.members.get(request.member_id)
            if member is not None:
                if member.epoch == LEAVING_FOR_NOW:
                    member.epoch = JOINING
                return member
            if len(self.members) >= self.limits.group_members:
                raise _RefusedError(Outcome.GROUP_MAX_SIZE_REACHED, f"at most {self.limits.group_members} members")
            member = ConsumerMember(request, now)
            self.members[request.member_id] = member
            self._make_targets()
            return member
        if same.epoch != LEAVING_FOR_NOW:
            reason = f"the static member {request.instance_id} is still there, as member {same.member_id}"
            raise _RefusedError(Outcome.UNRELEASED_INSTANCE_ID, reason)
        if request.member_id in self.members:
            raise _RefusedError(Outcome.INVALID_REQUEST, "the member id is that of another member")
        self._release(same.revoking)
        changed = same.topics != (request.names or frozenset()) | request.matched
        del self.members[same.member_id]
        member = ConsumerMember(request, now, assigned=same.assigned, target=same.target)
        self.members[request.member_id] = member
        if changed or same.request.assignor != request.assignor:
            self._make_targets()
        return member

    def _known(self, request: HeartbeatRequest) -> ConsumerMember:
        """Returns the member of a heartbeat after its join, if its epoch is right."""
        static = self._instance(request.instance_id)
        if static is not None and static.member_id != request.member_id:
            raise _RefusedError(Outcome.FENCED_INSTANCE_ID, f"the static member is now member {static.member_id}")
        member = self.members.get(request.member_id)
        if member is None:
            raise _RefusedError(Outcome.UNKNOWN_MEMBER_ID, "the group has no such member: join again")
        # An answer that was lost leaves the member with the epoch before; it may go on if it has got nothing new.
        repeats = request.epoch == member.previous_epoch and request.owned is not None
        if request.epoch != member.epoch and not (repeats and request.owned <= member.assigned):  # type: ignore[operator]
            reason = f"the member's epoch is {member.epoch}, not {request.epoch}: give everything up and join again"
            raise _RefusedError(Outcome.FENCED_MEMBER_EPOCH, reason)
        return member

    def _update(self, member: ConsumerMember, request: HeartbeatRequest) -> bool:
        """Notes what a heartbeat changes of a member; returns True if targets have to be made anew."""
        old = member.request
        new = HeartbeatRequest(
            old.member_id,
            JOINING,
            request.instance_id or old.instance_id,
            request.rack_id or old.rack_id,
            old.rebalance_timeout_ms if request.rebalance_timeout_ms is None else request.rebalance_timeout_ms,
            old.names if request.names is None else request.names,
            old.pattern if request.pattern is None else request.pattern,
            old.matched if request.pattern is None else request.matched,
            request.assignor or old.assignor,
            None,
            request.client_id,
            request.client_host,
        )
        before, member.request = member.topics, new
        if new.size != old.size:
            self._size = None
        return member.topics != before or new.assignor != old.assignor

    def _leave(self, request: HeartbeatRequest, now: int) -> HeartbeatAnswer:
        static = self._instance(request.instance_id)
        if static is not None and static.member_id != request.member_id:
            raise _RefusedError(Outcome.FENCED_INSTANCE_ID, f"the static member is now member {static.member_id}")
        member = self.members.get(request.member_id)
        if member is None:
            raise _RefusedError(Outcome.UNKNOWN_MEMBER_ID, "the group has no such member")
        if request.epoch == LEAVING_FOR_NOW:
            member.epoch, member.deadline = LEAVING_FOR_NOW, now + self.limits.consumer_session_ms
        else:
            self._remove([member])
        return HeartbeatAnswer(Outcome.NONE, None, request.member_id, request.epoch)

    def _instance(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.request.instance_id == instance_id), None)

    # --- targets ------------------------------------------------------------------------------------------

    def _make_targets(self) -> None:
        """Begins a new epoch, with a target for every member by the assignor that most of them name."""
        self.epoch += 1
        self.rebalances += 1
        self._size = None
        named = Counter(each.request.assignor for each in self.members.values() if each.request.assignor)
        self.assignor = named.most_common(1)[0][0] if named else DEFAULT_ASSIGNOR
        ordered = sorted(self.members.values(), key=lambda each: (each.request.instance_id or "", each.member_id))
        subscriptions = {each.member_id: each.topics for each in ordered}
        last = {each.member_id: each.target for each in ordered}
        targets = ASSIGNORS[self.assignor](subscriptions, last, self.served)
        for member_id, target in targets.items():
            self.members[member_id].target = target

    def _reconcile(self, member: ConsumerMember, owned: PartitionSet | None, now: int) -> None:
        """Brings a member one step nearer to its target (Kafka: CurrentAssignmentBuilder)."""
        if member.state is MemberState.STABLE and member.epoch == self.epoch:
            return
        if member.state is MemberState.UNREVOKED and (owned is None or owned & member.revoking):
            return
        self._size = None
        self._release(member.revoking)
        member.revoking = _NOTHING
        staying = member.assigned & member.target
        revoking = member.assigned - staying
        if revoking and (owned is None or owned & revoking):
            member.assigned, member.revoking, member.state = staying, revoking, MemberState.UNREVOKED
            member.revoke_by = now + (member.request.rebalance_timeout_ms or 0)
            return
        self._release(revoking)
        missing = member.target - staying
        free = missing - self._held
        self._held |= free
        member.assigned = staying | free
        member.state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch

    def _release(self, partitions: PartitionSet) -> None:
        if partitions:
            self._held -= partitions

    # --- commits, time ------------------------------------------------------------------------------------

    def offset_problem(self, member_id: str | None, epoch: int, *, knows_epochs: bool = True) -> Outcome:
        """Returns why offsets of a member with an epoch may not be committed or fetched, NONE if they may. Requests of
        versions before the protocol's do not know epochs.
        """
        if epoch < 0 and not self.members:
            return Outcome.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return Outcome.UNKNOWN_MEMBER_ID
        if not knows_epochs:
            return Outcome.UNSUPPORTED_VERSION
        return Outcome.NONE if epoch == member.epoch else Outcome.STALE_MEMBER_EPOCH

    def tick(self, now: int) -> list[Reply]:
        """Removes members whose sessions have ended, and those that do not give up partitions in time. No request of
        theirs waits."""
        gone = [
            each
            for each in self.members.values()
            if each.deadline <= now or (each.state is MemberState.UNREVOKED and each.revoke_by <= now)
        ]
        if gone:
            self._remove(gone)
        return []

    def close(self) -> list[Reply]:
        """Forgets all members."""
        self.members, self._size = {}, None
        return []

    def _remove(self, gone: list[ConsumerMember]) -> None:
        for member in gone:
            del self.members[member.member_id]
            self._release(member.assigned | member.revoking)
        self._make_targets()


def refuse_invalid(request: HeartbeatRequest) -> None:
    """Raises _RefusedError for a heartbeat that no right client sends (Kafka:
    throwIfConsumerGroupHeartbeatRequestIsInvalid)."""
    problem = None
    if not request.member_id:
        problem = "the member id is empty"
    elif "" in (request.instance_id, request.rack_id):
        problem = "an instance id or rack id is empty"
    elif request.epoch < LEAVING_FOR_NOW:
        problem = f"a member epoch of {request.epoch}"
    elif request.epoch == LEAVING_FOR_NOW and request.instance_id is None:
        problem = "only a static member leaves for a while"
    elif request.epoch == JOINING:
        if request.rebalance_timeout_ms is None:
            problem = "a join has a rebalance timeout"
        elif request.owned is None or request.owned:
            problem = "a joining member owns no partitions"
        elif request.names is None and request.pattern is None:
            # Empty ones are allowed: Java's consumer joins before it knows the topics that its pattern matches.
            problem = "a join names its topics or a pattern of topics, if only empty ones"
    if problem is not None:
        raise _RefusedError(Outcome.INVALID_REQUEST, problem)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        reason = f"the assignor {request.assignor[:100]} is not there; the assignors are {', '.join(ASSIGNORS)}"
        raise _RefusedError(Outcome.UNSUPPORTED_ASSIGNOR, reason)
