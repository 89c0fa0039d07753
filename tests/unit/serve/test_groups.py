"""A group's state machine: what members hear, and what always holds, whatever they do and however time goes."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seglog_rescue.serve.endpoint import Limits
from seglog_rescue.serve.groups import Group, Joined, JoinRequest, Outcome, Reply, State, Synced

LIMITS = Limits(group_members=5, first_join_ms=100)
SESSION_MS, REBALANCE_MS = 10_000, 20_000


def made_group() -> Group:
    numbers = iter(range(1_000_000))
    return Group("g", LIMITS, lambda client: f"{client}-{next(numbers)}")


def joining(member_id: str = "", *, protocols: Iterable[str] = ("range",), **more: object) -> JoinRequest:
    named = tuple((name, name.encode()) for name in protocols)
    request = JoinRequest(member_id, "consumer", named, SESSION_MS, REBALANCE_MS, client_id="c")
    return JoinRequest(**{field: more.get(field, getattr(request, field)) for field in JoinRequest.__slots__})


def answers(replies: Iterable[Reply]) -> dict[object, Joined | Synced]:
    return dict(replies)


def stable_group(count: int) -> tuple[Group, list[Joined]]:
    """A group of so many members that have joined and synced, at time 200."""
    group = made_group()
    for i in range(count):
        assert group.join(joining(), i, 0) == []
    joined = [answer for answer in answers(group.tick(200)).values() if isinstance(answer, Joined)]
    for each in joined:
        given = {one.member_id: one.member_id.encode() for one in joined} if each.members else {}
        group.sync(each.member_id, each.generation, given, each.member_id, 200)
    assert group.state is State.STABLE
    return group, joined


def test_members_that_join_together_are_one_generation_with_one_leader() -> None:
    group = made_group()
    for i in range(3):
        assert group.join(joining(protocols=("range", "sticky")[: i + 1]), i, 10 * i) == []
    assert group.tick(99) == []
    joined = answers(group.tick(120))
    assert sorted(joined) == [0, 1, 2]
    assert {each.generation for each in joined.values() if isinstance(each, Joined)} == {1}
    led = [each for each in joined.values() if isinstance(each, Joined) and each.members]
    assert len(led) == 1 and led[0].leader == led[0].member_id and len(led[0].members) == 3
    assert led[0].protocol == "range"


def test_followers_wait_for_what_the_leader_assigns() -> None:
    group = made_group()
    for i in range(2):
        group.join(joining(), i, 0)
    joined = answers(group.tick(100))
    first, second = (each for each in joined.values() if isinstance(each, Joined))
    leader, follower = (first, second) if first.members else (second, first)
    assert group.sync(follower.member_id, 1, {}, "f", 110) == []
    synced = answers(group.sync(leader.member_id, 1, {follower.member_id: b"its", leader.member_id: b"own"}, "l", 120))
    assert {token: each.assignment for token, each in synced.items() if isinstance(each, Synced)} == {
        "f": b"its",
        "l": b"own",
    }
    assert group.heartbeat(follower.member_id, 1, 130) is Outcome.NONE


def test_a_newcomer_makes_the_others_join_again() -> None:
    group, (one, two) = stable_group(2)
    assert group.join(joining(), "new", 300) == []
    assert group.heartbeat(one.member_id, 1, 310) is Outcome.REBALANCE_IN_PROGRESS
    assert group.join(joining(one.member_id), "one", 320) == []
    replies = answers(group.join(joining(two.member_id), "two", 330))
    assert sorted(map(str, replies)) == ["new", "one", "two"]
    assert group.heartbeat(one.member_id, 1, 340) is Outcome.ILLEGAL_GENERATION


def test_who_does_not_join_again_in_time_is_out() -> None:
    group, (one, two) = stable_group(2)
    group.join(joining(), "new", 300)
    group.join(joining(one.member_id), "one", 310)
    group.heartbeat(two.member_id, 1, 9_000)
    group.heartbeat(two.member_id, 1, 18_000)
    assert group.tick(300 + REBALANCE_MS - 1) == []
    assert sorted(map(str, answers(group.tick(300 + REBALANCE_MS)))) == ["new", "one"]
    assert group.heartbeat(two.member_id, 2, 21_000) is Outcome.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_when_its_session_ends() -> None:
    group, (one, two) = stable_group(2)
    assert group.heartbeat(one.member_id, 1, 10_000) is Outcome.NONE
    group.tick(200 + SESSION_MS)
    assert two.member_id not in group.members
    assert group.heartbeat(one.member_id, 1, 10_300) is Outcome.REBALANCE_IN_PROGRESS


def test_a_member_that_never_syncs_does_not_hold_the_others_up() -> None:
    group = made_group()
    for i in range(2):
        group.join(joining(), i, 0)
    joined = [each for each in answers(group.tick(100)).values() if isinstance(each, Joined)]
    follower = next(each for each in joined if not each.members)
    assert group.sync(follower.member_id, 1, {}, "f", 110) == []
    for now in range(5_000, 100 + REBALANCE_MS, 5_000):
        for each in joined:
            group.heartbeat(each.member_id, 1, now)
        assert group.tick(now) == []
    replies = answers(group.tick(100 + REBALANCE_MS))
    assert replies["f"] == Synced(Outcome.REBALANCE_IN_PROGRESS)
    assert list(group.members) == [follower.member_id]


def test_a_client_without_an_id_is_given_one_first() -> None:
    group = made_group()
    ((_, asked),) = group.join(joining(named_first=True), "first", 0)
    assert isinstance(asked, Joined) and asked.outcome is Outcome.MEMBER_ID_REQUIRED
    assert group.join(joining(asked.member_id, named_first=True), "again", 10) == []
    assert list(answers(group.tick(150))) == ["again"]


def test_refusals_are_kafkas() -> None:
    group, (one,) = stable_group(1)

    def outcome(request: JoinRequest) -> Outcome:
        ((_, answer),) = group.join(request, "x", 300)
        return answer.outcome

    assert outcome(joining("stranger")) is Outcome.UNKNOWN_MEMBER_ID
    assert outcome(joining(protocols=("other",))) is Outcome.INCONSISTENT_GROUP_PROTOCOL
    assert outcome(joining(protocol_type="connect")) is Outcome.INCONSISTENT_GROUP_PROTOCOL
    assert outcome(joining(protocols=())) is Outcome.INCONSISTENT_GROUP_PROTOCOL
    assert outcome(joining(session_timeout_ms=1)) is Outcome.INVALID_SESSION_TIMEOUT
    assert group.commit_problem(one.member_id, 7, 300) is Outcome.ILLEGAL_GENERATION
    assert group.commit_problem("", -1, 300) is Outcome.UNKNOWN_MEMBER_ID
    full, _ = stable_group(LIMITS.group_members)
    ((_, answer),) = full.join(joining(), "x", 300)
    assert answer.outcome is Outcome.GROUP_MAX_SIZE_REACHED


def test_a_static_member_takes_its_own_place_and_fences_the_former_one() -> None:
    group = made_group()
    group.join(joining(instance_id="i"), "old", 0)
    (old,) = (each for each in answers(group.tick(100)).values() if isinstance(each, Joined))
    group.sync(old.member_id, 1, {}, "s", 110)
    replies = answers(group.join(joining(instance_id="i"), "new", 200))
    assert len(group.members) == 1 and isinstance(replies["new"], Joined)
    assert group.heartbeat(old.member_id, 2, 210, "i") is Outcome.FENCED_INSTANCE_ID
    assert group.leave("", 220, "i")[0] is Outcome.NONE and not group.members


def test_a_member_that_is_about_to_join_cannot_share_a_static_members_instance() -> None:
    group = made_group()
    ((_, given),) = group.join(joining(named_first=True), "named", 0)
    group.join(joining(instance_id="i"), "static", 0)
    for protocols in (["other"], ["range"]):
        ((_, refused),) = group.join(joining(given.member_id, instance_id="i", protocols=protocols), "x", 10)
        assert refused.outcome in (Outcome.INCONSISTENT_GROUP_PROTOCOL, Outcome.FENCED_INSTANCE_ID)
    group.join(joining(given.member_id), "joins", 20)
    assert {"static", "joins"} == answers(group.tick(300)).keys()


class GroupMachine(RuleBasedStateMachine):
    """Clients that do anything at any time. Every request is answered once, at once or later."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.now, self.tokens = made_group(), 0, 0
        self.waiting: set[int] = set()
        self.ids: list[str] = ["stranger"]
        self.generation = 0

    def hear(self, replies: Iterable[Reply]) -> None:
        for token, answer in replies:
            assert isinstance(token, int) and token in self.waiting, "answered twice"
            self.waiting.remove(token)
            if isinstance(answer, Joined) and answer.outcome in (Outcome.NONE, Outcome.MEMBER_ID_REQUIRED):
                self.ids.append(answer.member_id)

    def token(self) -> int:
        self.tokens += 1
        self.waiting.add(self.tokens)
        return self.tokens

    @rule(data=st.data(), known=st.booleans(), static=st.sampled_from([None, None, "i", "j"]), first=st.booleans())
    def join(self, data: st.DataObject, known: bool, static: str | None, first: bool) -> None:
        member_id = data.draw(st.sampled_from(self.ids)) if known else ""
        names = data.draw(st.sampled_from([("range",), ("sticky", "range"), ("range", "sticky"), ("odd",)]))
        request = joining(member_id, protocols=names, instance_id=static, named_first=first)
        self.hear(self.group.join(request, self.token(), self.now))

    @rule(data=st.data(), generation=st.integers(0, 3), static=st.sampled_from([None, None, "i"]))
    def sync(self, data: st.DataObject, generation: int, static: str | None) -> None:
        member_id = data.draw(st.sampled_from(self.ids))
        given = dict.fromkeys(self.group.members, b"a")
        current = self.group.generation - generation
        self.hear(self.group.sync(member_id, current, given, self.token(), self.now, instance_id=static))

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        member_id = data.draw(st.sampled_from(self.ids))
        outcome = self.group.heartbeat(member_id, self.group.generation, self.now)
        assert (outcome is Outcome.UNKNOWN_MEMBER_ID) == (member_id not in self.group.members)

    @rule(data=st.data(), static=st.sampled_from([None, "i"]))
    def leave(self, data: st.DataObject, static: str | None) -> None:
        member_id = data.draw(st.sampled_from([*self.ids, ""]))
        _, replies = self.group.leave(member_id, self.now, static)
        self.hear(replies)
        assert not member_id or static is not None or member_id not in self.group.members

    @rule(milliseconds=st.sampled_from([1, 50, 100, 5_000, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.hear(self.group.tick(self.now))

    @precondition(lambda self: self.waiting)
    @rule()
    def end(self) -> None:
        """With time alone nobody waits for ever."""
        for _ in range(6):
            self.now += REBALANCE_MS
            self.hear(self.group.tick(self.now))
        assert not self.waiting and not self.group.members and not self.group.pending

    @invariant()
    def holds(self) -> None:
        group = self.group
        assert (group.state is State.EMPTY) == (not group.members)
        assert group.generation >= self.generation
        self.generation = group.generation
        assert len(group.members) + len(group.pending) <= LIMITS.group_members
        assert self.waiting == {
            token for each in group.members.values() for token in (each.joining, each.syncing) if token is not None
        }
        if group.state in (State.COMPLETING, State.STABLE):
            assert group.leader in group.members
            assert all(each.joining is None and group.protocol in each.names for each in group.members.values())
        if group.state is not State.COMPLETING:
            assert all(each.syncing is None for each in group.members.values())


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
