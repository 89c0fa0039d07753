"""A group of the consumer protocol: epochs, fencing, giving up and taking over, static members, sessions."""

from __future__ import annotations

import random

import pytest

from seglog_rescue.serve.assignors import ASSIGNORS
from seglog_rescue.serve.consumer_group import ConsumerGroup, HeartbeatAnswer, HeartbeatRequest
from seglog_rescue.serve.endpoint import Limits
from seglog_rescue.serve.groups import Outcome
from seglog_rescue.serve.partition_sets import PartitionSet

LIMITS = Limits()
SERVED = PartitionSet.of({"t": range(4), "u": range(3)})


def group_of(served: PartitionSet = SERVED) -> ConsumerGroup:
    return ConsumerGroup("g", LIMITS, served)


def join(group: ConsumerGroup, member_id: str, now: int = 0, instance_id: str | None = None) -> HeartbeatAnswer:
    names = frozenset(group.served.bits)
    nothing = PartitionSet()
    request = HeartbeatRequest(member_id, 0, instance_id, None, 5000, names, assignor="uniform", owned=nothing)
    return group.heartbeat(request, now)


def beat(
    group: ConsumerGroup, member_id: str, epoch: int, owned: PartitionSet | None = None, instance_id: str | None = None
) -> HeartbeatAnswer:
    return group.heartbeat(HeartbeatRequest(member_id, epoch, instance_id, owned=owned), 0)


def test_a_partition_is_given_to_the_next_member_only_when_the_last_has_given_it_up() -> None:
    group = group_of()
    first = join(group, "a")
    assert (first.epoch, first.assignment) == (1, SERVED)
    second = join(group, "b")
    assert second.epoch == 2 and not second.assignment
    told = beat(group, "a", 1)
    assert told.epoch == 1 and told.assignment is not None and len(told.assignment) == 4
    assert not beat(group, "b", 2).assignment and group.state == "Reconciling"
    assert beat(group, "a", 1, owned=SERVED).epoch == 1
    assert beat(group, "a", 1, owned=told.assignment).epoch == 2
    taken = beat(group, "b", 2)
    assert taken.assignment == SERVED - told.assignment and group.state == "Stable"
    assert beat(group, "a", 2).assignment is None


def test_a_wrong_epoch_is_fenced_and_a_repeated_one_is_not() -> None:
    group = group_of()
    join(group, "a")
    join(group, "b")
    kept = beat(group, "a", 1).assignment
    assert beat(group, "a", 1, owned=kept).epoch == 2
    assert beat(group, "a", 1, owned=kept).outcome is Outcome.NONE  # the last answer was lost
    assert beat(group, "a", 1, owned=SERVED).outcome is Outcome.FENCED_MEMBER_EPOCH
    assert beat(group, "a", 7).outcome is Outcome.FENCED_MEMBER_EPOCH
    assert beat(group, "c", 1).outcome is Outcome.UNKNOWN_MEMBER_ID
    assert group.offset_problem("a", 1) is Outcome.STALE_MEMBER_EPOCH
    assert group.offset_problem("a", 2) is Outcome.NONE


def test_a_static_member_comes_back_to_its_partitions() -> None:
    group = group_of()
    join(group, "a", instance_id="i")
    assert join(group, "b", instance_id="i").outcome is Outcome.UNRELEASED_INSTANCE_ID
    assert beat(group, "a", -2, instance_id="i").epoch == -2
    back = join(group, "b", instance_id="i")
    assert (back.epoch, back.assignment) == (1, SERVED)
    assert beat(group, "a", 1, instance_id="i").outcome is Outcome.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("names", "pattern"), [(frozenset(), None), (None, ""), (frozenset(), "")])
def test_a_member_may_join_before_it_knows_any_topic(names: frozenset[str] | None, pattern: str | None) -> None:
    """Java's consumer with a java.util.regex.Pattern joins with an empty list until its metadata has come."""
    group, nothing = group_of(), PartitionSet()
    joined = group.heartbeat(HeartbeatRequest("a", 0, None, None, 5000, names, pattern, owned=nothing), 0)
    assert (joined.outcome, joined.epoch, joined.assignment) == (Outcome.NONE, 1, nothing)
    named = HeartbeatRequest("a", 1, names=frozenset({"t"}), rebalance_timeout_ms=5000, owned=nothing)
    subscribed = group.heartbeat(named, 0)
    assert (subscribed.epoch, subscribed.assignment) == (2, SERVED.of_topics("t"))
    without = group.heartbeat(HeartbeatRequest("b", 0, None, None, 5000, owned=nothing), 0)
    assert without.outcome is Outcome.INVALID_REQUEST


def test_members_that_are_silent_or_give_nothing_up_are_removed() -> None:
    group = group_of()
    join(group, "a")
    join(group, "b")
    beat(group, "a", 1)
    group.tick(4999)
    assert set(group.members) == {"a", "b"}
    group.tick(5000)
    assert set(group.members) == {"b"} and beat(group, "b", 2).assignment == SERVED
    group.tick(LIMITS.consumer_session_ms)
    assert not group.members


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_is_ever_held_twice_and_all_are_held_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    group, owned, epochs = group_of(), dict[str, PartitionSet](), dict[str, int]()
    for step in range(300):
        name = chance.choice("abcde")
        if name not in epochs:
            answer = join(group, name)
        elif step < 200 and chance.random() < 0.1:
            assert beat(group, name, -1).outcome is Outcome.NONE
            del epochs[name], owned[name]
            continue
        else:
            answer = beat(group, name, epochs[name], owned[name])
        assert answer.outcome is Outcome.NONE
        epochs[name] = answer.epoch
        owned[name] = owned.get(name, PartitionSet()) if answer.assignment is None else answer.assignment
        everything = [place for each in owned.values() for place in each]
        assert len(everything) == len(set(everything))
    for name in [*epochs] * 4:
        answer = beat(group, name, epochs[name], owned[name])
        epochs[name] = answer.epoch
        owned[name] = owned[name] if answer.assignment is None else answer.assignment
    assert sorted(place for each in owned.values() for place in each) == list(SERVED)
    sizes = [len(each) for each in owned.values()]
    assert max(sizes) - min(sizes) <= 1


def test_the_assignors_share_out_as_kafkas_do() -> None:
    topics = {name: frozenset(SERVED.bits) for name in "ab"}
    ranges = ASSIGNORS["range"](topics, {}, SERVED)
    assert list(ranges["a"]) == [("t", 0), ("t", 1), ("u", 0), ("u", 1)]
    even = ASSIGNORS["uniform"](topics, {"a": SERVED}, SERVED)
    assert {len(even["a"]), len(even["b"])} == {3, 4} and even["a"] <= SERVED
    unlike = ASSIGNORS["uniform"]({"a": frozenset("t"), "b": frozenset("tu")}, {}, SERVED)
    assert (list(unlike["b"] & SERVED.of_topics("u")), len(unlike["a"])) == ([("u", 0), ("u", 1), ("u", 2)], 4)
