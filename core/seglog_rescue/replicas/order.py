"""In which order to start the brokers, so that each partition gets the leader whose copy loses the least.

When nobody leads a partition, the controller elects the first replica in sync (or eligible, or the last leader:
KIP-966) that registers; a topic with unclean.leader.election.enable takes any. But a broker that registers anew is
taken out of the in-sync replicas first, unless it is the last one, and after a crash out of the eligible ones, too. So
it is certain to lead by itself only as the last one in sync. For every other one there is an unclean election by hand
as soon as it is there: it takes a replica in sync, else the first one of the assignment that is alive.

Kafka: ReplicationControlManager.handleBrokerShutdown, .handleBrokerUnfenced, PartitionChangeBuilder.electLeader (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, takewhile

from seglog_rescue.rebuild.known import KnownPartition
from seglog_rescue.replicas.comparison import Acknowledged, Choice, PartitionVerdict

_TRIED_IN_FULL = 6  # brokers: 720 orders

Cost = tuple[int, int, int]  # acknowledged offsets lost, those that perhaps were, all


@dataclass(frozen=True, slots=True)
class Start:
    """The order of starting brokers, and the leader that each partition in question then gets.

    `elected` are the partitions that need an unclean election, by the broker after whose start it is made. `leaders`
    maps a verdict's partition, as text, to its leader; where Kafka's state decides between several brokers, that is the
    one that loses the most, and `in_question` has all of them.
    Those of which the controller may elect nobody are `late`: when all brokers run, an election by hand takes one that
    loses no more, if the brokers named there are stopped for it.
    """

    order: tuple[int, ...]
    leaders: dict[str, int]
    elected: dict[int, list[str]]
    in_question: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    late: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def cost_of(choice: Choice | None) -> Cost:
    """Returns what a choice loses, as numbers of offsets; the higher ones come first."""
    losses = () if choice is None else choice.lost
    spans = [(loss.acknowledged, loss.end - loss.first) for loss in losses]
    certain = sum(span for word, span in spans if word is Acknowledged.YES)
    perhaps = sum(span for word, span in spans if word is Acknowledged.PERHAPS)
    return certain, perhaps, sum(span for _, span in spans)


def _cost(choice: Choice, verdict: PartitionVerdict) -> Cost:
    """Returns what a leader loses; nothing for the one to choose, as the rule goes before numbers: what an election had
    given up may be more than what was written since."""
    return (0, 0, 0) if choice.node == verdict.choice else cost_of(choice)


def best_start(verdicts: Sequence[PartitionVerdict], nodes: Iterable[int], unclean: Iterable[str]) -> Start:
    """Returns the order that loses the least; among such ones, the one in which the fewest damaged copies start before
    their leaders. `unclean` are the topics that elect any replica by themselves."""
    every, topics = sorted(set(nodes)), frozenset(unclean)
    asked = [_Question.of(verdict, topics) for verdict in verdicts if verdict.choice is not None]
    tried: Iterable[tuple[int, ...]]
    if len(every) <= _TRIED_IN_FULL:
        tried = permutations(every)
    else:
        choices = [question.choice for question in asked]
        tried = [tuple(sorted(every, key=lambda node: (-choices.count(node), node))), tuple(every)]
    groups = _grouped(asked)
    best = min(tried, key=lambda order: (_rank(groups, order), order))
    leaders: dict[str, int] = {}
    elected: dict[int, list[str]] = {}
    in_question: dict[str, tuple[int, ...]] = {}
    late: dict[str, tuple[int, ...]] = {}
    for question in asked:
        possible, by_hand = question.election(best)
        leaders[question.name] = question.worst(possible)
        if len(possible) > 1:
            in_question[question.name] = possible
            if not by_hand:
                stopped, leader = question.late_election(best, leaders[question.name])
                late[question.name] = stopped
                in_question[question.name] = tuple(dict.fromkeys((*possible, leader)))
        if by_hand:
            elected.setdefault(possible[0], []).append(question.name)
    return Start(best, leaders, elected, in_question, late)


@dataclass(frozen=True, slots=True)
class _Question:
    """A partition as the controller sees it: who may be elected when it registers (`electable`), who surely is
    (`certain`), and what each leader loses; `whole` is what one without a copy does. `damaged` are the brokers whose
    copies are to be made anew if others lead."""

    name: str
    choice: int
    electable: tuple[int, ...]
    certain: tuple[int, ...]
    assignment: tuple[int, ...]
    costs: tuple[tuple[int, Cost], ...]
    whole: int
    damaged: tuple[int, ...]

    @classmethod
    def of(cls, verdict: PartitionVerdict, unclean: frozenset[str]) -> _Question:
        entry, nodes = verdict.entry, [choice.node for choice in verdict.choices]
        assert verdict.choice is not None
        electable, certain = _electable(entry, nodes)
        if verdict.partition.topic in unclean and entry is not None:
            electable = certain = tuple(entry.replicas)
        costs = tuple((choice.node, _cost(choice, verdict)) for choice in verdict.choices)
        assignment = tuple(nodes if entry is None else entry.replicas)
        logs = [each.copy.facts for each in verdict.copies if not each.copy.facts.problem]
        whole = 1 + max((facts.disk_end - facts.start for facts in logs), default=0)
        damaged = tuple(sorted(each.copy.node for each in verdict.copies if each.holes and not each.copy.facts.problem))
        return cls(str(verdict.partition), verdict.choice, electable, certain, assignment, costs, whole, damaged)

    def election(self, order: Sequence[int]) -> tuple[tuple[int, ...], bool]:
        """Returns who may lead after the brokers were started in this order (several if Kafka's state decides it), and
        whether an election is held by hand after the start of the first of them.

        Without one the controller may pass over a broker that registers, and take one that comes later. So one is held
        unless it may give a worse leader.
        """
        for number, node in enumerate(order):
            if node in self.certain:
                return (node,), False
            if node in self.electable or node == self.choice:
                alive = order[: number + 1]
                elected = next((each for each in self.assignment if each in alive), node)
                if elected == node or node not in self.electable:
                    return (elected,), True
                waiting = (node, *(each for each in order[number + 1 :] if each in self.electable))
                by_hand = self.cost(self.worst(waiting)) >= self.cost(elected) or len(waiting) == 1
                return (node, elected) if by_hand else waiting, by_hand
        return (self.choice,), True

    def late_election(self, order: Sequence[int], worst: int) -> tuple[tuple[int, ...], int]:
        """Returns which brokers an election by hand, when all run, must not find, as it would take them and they lose
        more than the `worst` of those that may be elected without it; and whom it takes then."""
        alive = [node for node in self.assignment if node in order]
        passed = list(takewhile(lambda node: self.cost(node) > self.cost(worst), alive))
        return tuple(passed), next(iter(alive[len(passed) :]), worst)

    def worst(self, leaders: Sequence[int]) -> int:
        """Returns who of them loses the most as the leader."""
        return max(leaders, key=self.cost)

    def cost(self, leader: int) -> Cost:
        """Returns what a leader loses; one without a copy loses all, and more than any that has one."""
        cost = dict(self.costs).get(leader)
        return (self.whole, 0, self.whole) if cost is None else cost


def _electable(entry: KnownPartition | None, nodes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns who may be elected without anybody's help when it registers, and who surely is."""
    if entry is None:
        return tuple(nodes), ()
    electable = dict.fromkeys((*entry.isr, *entry.eligible, *entry.last_known))
    return tuple(electable), tuple(electable) if len(electable) == 1 else ()


def _grouped(questions: Iterable[_Question]) -> list[tuple[_Question, int]]:
    """Returns questions that have the same answers once, with their number: thousands of partitions are alike."""
    counted: dict[_Question, tuple[_Question, int]] = {}
    for question in questions:
        key = replace(question, name="")
        counted[key] = (question, counted.get(key, (question, 0))[1] + 1)
    return list(counted.values())


def _rank(groups: Iterable[tuple[_Question, int]], order: Sequence[int]) -> tuple[int, ...]:
    """Returns what an order loses, and last how many damaged copies start before their leaders: their brokers must be
    stopped once more."""
    loss, early = [0, 0, 0], 0
    for question, number in groups:
        leader = question.worst(question.election(order)[0])
        loss = [total + part * number for total, part in zip(loss, question.cost(leader), strict=True)]
        before = order[: order.index(leader)] if leader in order else order
        early += number * sum(node in before for node in question.damaged)
    return (*loss, early)


def leader_choice(verdict: PartitionVerdict, start: Start) -> Choice | None:
    """Returns what the leader that a partition gets by this order loses; None if that broker has no copy of it."""
    leader = start.leaders.get(str(verdict.partition), verdict.choice)
    return next((choice for choice in verdict.choices if choice.node == leader), None)


def in_doubt(verdicts: Iterable[PartitionVerdict], start: Start) -> Iterator[PartitionVerdict]:
    """Yields the partitions whose leader, by this order, is not the one to choose, and loses something."""
    for verdict in verdicts:
        choice = leader_choice(verdict, start)
        if verdict.choice is not None and (choice is None or (choice.node != verdict.choice and choice.lost)):
            yield verdict
