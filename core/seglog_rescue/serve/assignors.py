"""Server-side assignors of the consumer protocol: which member gets which partitions (Kafka: PartitionAssignor).

`uniform` gives every member as many partitions as any other, as far as their subscriptions allow, and moves as few as
possible. `range` gives every member neighbouring partitions, the same numbers of each topic of one subscription.
Unlike in Kafka, racks count for nothing, because one endpoint serves everything; and partitions without a directory
are assigned to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heapreplace
from types import MappingProxyType

from seglog_rescue.serve.partition_sets import PartitionSet

Subscriptions = Mapping[str, frozenset[str]]  # topics by member
Assignments = dict[str, PartitionSet]
Shares = Mapping[str, dict[str, list[int]]]  # numbers by member and topic
Assignor = Callable[[Subscriptions, Mapping[str, PartitionSet], PartitionSet], Assignments]

_MOST_ROUNDS = 16  # of balancing; like subscriptions need one, and one more to see that


def assign_uniformly(subscriptions: Subscriptions, last: Mapping[str, PartitionSet], all_: PartitionSet) -> Assignments:
    """Assigns all partitions of subscribed topics. `last` is the assignment so far, by member; it is kept as far as
    the balance allows (Kafka: UniformAssignor).
    """
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    free = {topic: all_.bits[topic] for topic in all_.bits}
    for member, topics in subscriptions.items():
        for topic, bits in last.get(member, PartitionSet()).bits.items():
            kept = bits & free.get(topic, 0) if topic in topics else 0
            if kept:
                shares[member][topic] = PartitionSet({topic: kept}).numbers(topic)
                free[topic] &= ~kept
    loads = {member: sum(map(len, topics.values())) for member, topics in shares.items()}
    subscribers = _subscribers(subscriptions, all_)
    for topic, members in sorted(subscribers.items(), key=lambda entry: len(entry[1])):
        _hand_out(topic, PartitionSet(free).numbers(topic), members, shares, loads)
    for _ in range(_MOST_ROUNDS):
        moves = [_balance(topic, members, shares, loads) for topic, members in subscribers.items()]
        if not any(moves):
            break
    return {member: PartitionSet.of(topics) for member, topics in shares.items()}


def _hand_out(topic: str, numbers: list[int], members: list[str], shares: Shares, loads: dict[str, int]) -> None:
    """Gives each partition to the subscriber that has the fewest."""
    queue = [(loads[each], each) for each in members]
    heapify(queue)
    for number in numbers:
        load, member = queue[0]
        shares[member].setdefault(topic, []).append(number)
        loads[member] = load + 1
        heapreplace(queue, (load + 1, member))


def _balance(topic: str, members: list[str], shares: Shares, loads: dict[str, int]) -> bool:
    """Moves partitions of a topic from the subscriber that has the most to the one that has the fewest, until they
    differ by at most one; returns True if any was moved."""
    fewest = [(loads[each], each) for each in members]
    most = [(-loads[each], each) for each in members if shares[each].get(topic)]
    heapify(fewest)
    heapify(most)
    moved = False
    while most and loads[most[0][1]] > loads[fewest[0][1]] + 1:
        giver, taker = most[0][1], fewest[0][1]
        shares[taker].setdefault(topic, []).append(shares[giver][topic].pop())
        loads[giver] -= 1
        loads[taker] += 1
        heapreplace(fewest, (loads[taker], taker))  # the giver still has at least as many as the taker
        if shares[giver][topic]:
            heapreplace(most, (-loads[giver], giver))
        else:
            heappop(most)
        moved = True
    return moved


def assign_ranges(subscriptions: Subscriptions, _last: Mapping[str, PartitionSet], all_: PartitionSet) -> Assignments:
    """Assigns each topic's partitions as ranges, in the order of the members (Kafka: RangeAssignor)."""
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    for topic, members in _subscribers(subscriptions, all_).items():
        numbers, start = all_.numbers(topic), 0
        least, more = divmod(len(numbers), len(members))
        for i, member in enumerate(members):
            end = start + least + (i < more)
            shares[member][topic] = numbers[start:end]
            start = end
    return {member: PartitionSet.of(topics) for member, topics in shares.items()}


def _subscribers(subscriptions: Subscriptions, all_: PartitionSet) -> dict[str, list[str]]:
    """Returns the members of each topic that has partitions, in the order that `subscriptions` has them."""
    found: dict[str, list[str]] = {}
    for member, topics in subscriptions.items():
        for topic in topics:
            if topic in all_.bits:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
DEFAULT_ASSIGNOR = "uniform"  # the first of group.consumer.assignors
