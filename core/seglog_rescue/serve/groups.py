"""One consumer group of the classic protocol, as a state machine without sockets or time (Kafka: ClassicGroup).

    EMPTY → PREPARING (members join) → COMPLETING (they wait for the leader's assignments) → STABLE → PREPARING → …

Requests that must wait carry a token; each call returns the replies that are due, each with its token. Times are
milliseconds of the caller's clock; `tick` does what time alone causes: it ends sessions, and rebalances that have
waited long enough. A group without members forgets everything: committed offsets are kept elsewhere (`committed`).

Unlike in Kafka, a static member that returns under a new id always causes a rebalance, and one that misses a rebalance
is removed like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from seglog_rescue.serve.endpoint import Limits

Token = Hashable
NO_GENERATION = -1
_PROTOCOL_BYTES = 192


class Outcome(IntEnum):
    """The outcome of a group's request, by Kafka's error codes."""

    NONE = 0
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


class State(Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join, with the client's protocols, best first, and its timeouts. With `named_first` a client without
    an id is given one and must join again with it (KIP-394).
    """

    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    named_first: bool = False

    @property
    def size(self) -> int:
        """The bytes kept of it, with the objects around a protocol: an empty one takes memory too."""
        named = sum(len(name) + len(metadata) + _PROTOCOL_BYTES for name, metadata in self.protocols)
        return named + len(self.member_id) + len(self.instance_id or "") + len(self.client_id)


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join; only the leader gets `members` (id, instance id, metadata)."""

    outcome: Outcome
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a sync: the leader's assignment to this member."""

    outcome: Outcome
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(slots=True, eq=False)
class Member:
    """A member; `joining` and `syncing` are the tokens of its waiting requests."""

    request: JoinRequest
    member_id: str
    deadline: int
    joining: Token | None = None
    syncing: Token | None = None
    assignment: bytes = b""

    @property
    def size(self) -> int:
        """The bytes kept of it."""
        return self.request.size + len(self.member_id) + len(self.assignment)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.request.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for a protocol."""
        return dict(self.request.protocols).get(protocol or "", b"")


Reply = tuple[Token, Joined | Synced]


@dataclass(slots=True)
class Group:
    """One group; `rebalances` counts the completed ones. `new_id` makes a member id from a client id."""

    group_id: str
    limits: Limits
    new_id: Callable[[str], str]
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    rebalances: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)  # ids given out to clients, with their deadlines
    _earliest: int = 0  # a rebalance is completed between these two times
    _latest: int = 0

    @property
    def size(self) -> int:
        """The bytes kept of clients' requests."""
        return len(self.group_id) + sum(map(len, self.pending)) + sum(each.size for each in self.members.values())

    # --- joining ------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: Token, now: int) -> list[Reply]:
        """Takes an old or new member into the next generation."""
        refusal = self._refusal(request)
        if refusal is not Outcome.NONE:
            return [(token, Joined(refusal, request.member_id))]
        if request.member_id:
            return self._join_known(request, token, now)
        same = self._instance(request.instance_id)
        member_id = self.new_id(request.instance_id or request.client_id)
        if same is not None:
            replies = self._replace(same, Member(request, member_id, now))
            return replies + self._rejoin(self.members[member_id], token, now)
        if request.named_first and request.instance_id is None:
            self.pending[member_id] = now + request.session_timeout_ms
            return [(token, Joined(Outcome.MEMBER_ID_REQUIRED, member_id))]
        return self._admit(request, member_id, token, now)

    def _refusal(self, request: JoinRequest) -> Outcome:
        limits = self.limits
        if not limits.session_least_ms <= request.session_timeout_ms <= limits.session_most_ms:
            return Outcome.INVALID_SESSION_TIMEOUT
        replaced = None if request.member_id else self._instance(request.instance_id)
        others = [m for m in self.members.values() if m is not replaced and m.member_id != request.member_id]
        is_new = request.member_id not in self.members and replaced is None
        if is_new and len(self.members) + len(self.pending.keys() - {request.member_id}) >= limits.group_members:
            return Outcome.GROUP_MAX_SIZE_REACHED
        names = {name for name, _ in request.protocols}
        for member in others:
            names &= set(member.names)
        matches = not others or request.protocol_type == self.protocol_type
        if not (names and request.protocol_type and matches):
            return Outcome.INCONSISTENT_GROUP_PROTOCOL
        return Outcome.NONE

    def _join_known(self, request: JoinRequest, token: Token, now: int) -> list[Reply]:
        member_id = request.member_id
        if member_id in self.pending and self._instance(request.instance_id) is None:
            del self.pending[member_id]
            return self._admit(request, member_id, token, now)
        problem = self._problem(member_id, request.instance_id)
        if problem is not Outcome.NONE:
            return [(token, Joined(problem, member_id))]
        member = self.members[member_id]
        same = member.request.protocols == request.protocols
        member.request = request
        unchanged = same and member_id != self.leader and self.state is State.STABLE
        if unchanged or (same and self.state is State.COMPLETING):
            member.deadline = now + request.session_timeout_ms
            return [(token, self._joined(member))]
        return self._rejoin(member, token, now)

    def _admit(self, request: JoinRequest, member_id: str, token: Token, now: int) -> list[Reply]:
        self.members[member_id] = member = Member(request, member_id, now)
        self.protocol_type = request.protocol_type
        if self.state is State.PREPARING and self._earliest > now:
            self._earliest = min(now + self.limits.first_join_ms, self._latest)  # others may follow
        return self._rejoin(member, token, now)

    def _rejoin(self, member: Member, token: Token, now: int) -> list[Reply]:
        replies: list[Reply] = []
        if member.joining is not None:
            replies.append((member.joining, Joined(Outcome.REBALANCE_IN_PROGRESS, member.member_id)))
        member.joining, member.deadline = token, now + member.request.session_timeout_ms
        return replies + self._prepare(now) + self._complete_if_ready(now)

    def _replace(self, old: Member, new: Member) -> list[Reply]:
        """Puts a static member with a new id in the place of the old one."""
        replies = self._dismiss(old, Outcome.FENCED_INSTANCE_ID)
        self.members = {m.member_id: m for m in (new if each is old else each for each in self.members.values())}
        if self.leader == old.member_id:
            self.leader = new.member_id
        return replies

    # --- rebalancing --------------------------------------------------------------------------------------

    def _prepare(self, now: int) -> list[Reply]:
        if self.state is State.PREPARING:
            return []
        first = self.state is State.EMPTY
        self.state = State.PREPARING
        self._latest = now + max(member.request.rebalance_timeout_ms for member in self.members.values())
        self._earliest = min(now + self.limits.first_join_ms, self._latest) if first else now
        replies: list[Reply] = []
        for member in self.members.values():
            if member.syncing is not None:
                replies.append((member.syncing, Synced(Outcome.REBALANCE_IN_PROGRESS)))
                member.syncing = None
        return replies

    def _complete_if_ready(self, now: int) -> list[Reply]:
        all_joined = not self.pending and all(member.joining is not None for member in self.members.values())
        if self.state is State.PREPARING and now >= self._earliest and (all_joined or now >= self._latest):
            return self._complete(now)
        return []

    def _complete(self, now: int) -> list[Reply]:
        self.members = {name: member for name, member in self.members.items() if member.joining is not None}
        self.generation += 1
        self.rebalances += 1
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, None, None
            return []
        self.state = State.COMPLETING
        self.protocol = self._select_protocol()
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self._latest = now + max(member.request.rebalance_timeout_ms for member in self.members.values())
        replies: list[Reply] = []
        for member in self.members.values():
            replies.append((member.joining, self._joined(member)))
            member.joining, member.assignment = None, b""
            member.deadline = now + member.request.session_timeout_ms
        return replies

    def _select_protocol(self) -> str:
        """Returns the protocol with the most votes among those that all members know (Kafka: selectProtocol)."""
        members = list(self.members.values())
        known = set(members[0].names).intersection(*(member.names for member in members))
        votes = Counter(next(name for name in member.names if name in known) for member in members)
        return votes.most_common(1)[0][0]

    def _joined(self, member: Member) -> Joined:
        everyone = self.members.values() if member.member_id == self.leader else ()
        listed = tuple((each.member_id, each.request.instance_id, each.metadata(self.protocol)) for each in everyone)
        return Joined(
            Outcome.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            listed,
        )

    # --- in a generation ----------------------------------------------------------------------------------

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        token: Token,
        now: int,
        *,
        instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> list[Reply]:
        """Returns a member's assignment; the leader brings them all. `protocol` is (type, name), None if unknown."""
        problem = self._problem(member_id, instance_id, generation)
        pairs = zip(protocol, (self.protocol_type, self.protocol), strict=True)
        if problem is Outcome.NONE and any(given not in (None, own) for given, own in pairs):
            problem = Outcome.INCONSISTENT_GROUP_PROTOCOL
        if problem is Outcome.NONE and self.state is State.PREPARING:
            problem = Outcome.REBALANCE_IN_PROGRESS
        if problem is not Outcome.NONE:
            return [(token, Synced(problem))]
        member = self.members[member_id]
        member.deadline = now + member.request.session_timeout_ms
        if self.state is State.STABLE:
            return [(token, self._synced(member))]
        replies: list[Reply] = []
        if member.syncing is not None:
            replies.append((member.syncing, Synced(Outcome.REBALANCE_IN_PROGRESS)))
        member.syncing = token
        if member_id == self.leader:
            self.state = State.STABLE
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
                if each.syncing is not None:
                    replies.append((each.syncing, self._synced(each)))
                    each.syncing = None
        return replies

    def _synced(self, member: Member) -> Synced:
        return Synced(Outcome.NONE, member.assignment, self.protocol_type, self.protocol)

    def heartbeat(self, member_id: str, generation: int, now: int, instance_id: str | None = None) -> Outcome:
        """Notes that a member lives; the outcome says if it must join again."""
        problem = self._problem(member_id, instance_id, generation)
        if problem is not Outcome.NONE:
            return problem
        member = self.members[member_id]
        member.deadline = now + member.request.session_timeout_ms
        return Outcome.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else Outcome.NONE

    def commit_problem(self, member_id: str, generation: int, now: int, instance_id: str | None = None) -> Outcome:
        """Returns why a member may not commit offsets now, NONE if it may. One that never joined may if the group is
        empty."""
        if not self.members and generation < 0:
            return Outcome.NONE
        problem = self._problem(member_id, instance_id, generation)
        if problem is Outcome.NONE:
            member = self.members[member_id]
            member.deadline = now + member.request.session_timeout_ms
            return Outcome.REBALANCE_IN_PROGRESS if self.state is State.COMPLETING else Outcome.NONE
        return problem

    def leave(self, member_id: str, now: int, instance_id: str | None = None) -> tuple[Outcome, list[Reply]]:
        """Removes a member by its id, or a static one by its instance id."""
        if self.pending.pop(member_id, None) is not None:
            return Outcome.NONE, self._complete_if_ready(now)
        if not member_id:
            found = self._instance(instance_id)
            member_id = "" if found is None else found.member_id
        problem = self._problem(member_id, instance_id)
        if problem is not Outcome.NONE:
            return problem, []
        return Outcome.NONE, self._remove([self.members[member_id]], now)

    # --- time ---------------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[Reply]:
        """Does what is due by `now`."""
        self.pending = {name: deadline for name, deadline in self.pending.items() if deadline > now}
        replies: list[Reply] = []
        gone = [m for m in self.members.values() if m.joining is None and m.deadline <= now]
        if self.state is State.COMPLETING and now >= self._latest:
            gone += [m for m in self.members.values() if m.syncing is None and m not in gone]
            replies += self._prepare(now) if len(gone) < len(self.members) else []
        if gone:
            replies += self._remove(gone, now)
        return replies + self._complete_if_ready(now)

    def close(self) -> list[Reply]:
        """Answers all waiting requests: there is no coordinator here any more."""
        replies = [reply for each in self.members.values() for reply in self._dismiss(each, Outcome.NOT_COORDINATOR)]
        self.members, self.pending, self.state = {}, {}, State.EMPTY
        return replies

    def _remove(self, gone: list[Member], now: int) -> list[Reply]:
        replies: list[Reply] = []
        for member in gone:
            del self.members[member.member_id]
            replies += self._dismiss(member, Outcome.UNKNOWN_MEMBER_ID)
        if self.leader not in self.members:
            self.leader = None
        if not self.members:
            self.generation += 1
            self.state, self.protocol = State.EMPTY, None
            return replies
        return replies + self._prepare(now) + self._complete_if_ready(now)

    def _dismiss(self, member: Member, outcome: Outcome) -> list[Reply]:
        """Answers the waiting requests of a member."""
        replies: list[Reply] = []
        if member.joining is not None:
            replies.append((member.joining, Joined(outcome, member.member_id)))
        if member.syncing is not None:
            replies.append((member.syncing, Synced(outcome)))
        member.joining = member.syncing = None
        return replies

    def _instance(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.request.instance_id == instance_id), None)

    def _problem(self, member_id: str, instance_id: str | None, generation: int | None = None) -> Outcome:
        """Returns why a request's member or generation is wrong, NONE if they are right."""
        static = self._instance(instance_id)
        if static is not None and static.member_id != member_id:
            return Outcome.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return Outcome.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return Outcome.ILLEGAL_GENERATION
        return Outcome.NONE
