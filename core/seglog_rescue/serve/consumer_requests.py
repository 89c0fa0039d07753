"""Answers requests about groups of the consumer protocol (KIP-848): heartbeats and descriptions.

On the wire, partitions of an assignment have topic ids; in here, names.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from seglog_rescue.groups.states import CONSUMER
from seglog_rescue.serve.assignors import DEFAULT_ASSIGNOR
from seglog_rescue.serve.catalog import Catalog
from seglog_rescue.serve.consumer_group import ConsumerGroup, ConsumerMember, HeartbeatAnswer, HeartbeatRequest
from seglog_rescue.serve.coordinator import Coordinator
from seglog_rescue.serve.endpoint import Endpoint
from seglog_rescue.serve.groups import Outcome
from seglog_rescue.serve.partition_sets import PartitionSet
from seglog_rescue.serve.patterns import PatternError, compiled
from seglog_rescue.serve.protocol import GROUP_OPERATIONS, NO_OPERATIONS, ErrorCode, Values, each_once

_CONSUMER_MEMBER = 1  # a member's type
_MOST_NUMBER = 1 << 16


def heartbeat(endpoint: Endpoint, coordinator: Coordinator, body: Any, client: tuple[str, str], version: int) -> Values:
    """Answers ConsumerGroupHeartbeat; `client` is its id and host."""
    try:
        request = _request(endpoint.catalog, body, client, version)
    except PatternError as error:
        reason = f"the pattern {body.subscribed_topic_regex[:200]!r} of topics is refused: {error}"
        answer = HeartbeatAnswer(Outcome.INVALID_REGULAR_EXPRESSION, reason)
    else:
        if body.group_id:
            answer = coordinator.consumer_heartbeat(body.group_id, request)
        else:
            answer = HeartbeatAnswer(Outcome.INVALID_REQUEST, "the group id is empty")
    goes_on = answer.outcome is Outcome.NONE and answer.epoch >= 0
    interval_ms = endpoint.limits.consumer_heartbeat_ms if goes_on else 0
    assignment = None
    if answer.assignment is not None:
        assignment = {"topic_partitions": _by_id(endpoint.catalog, answer.assignment)}
    return {
        "error_code": ErrorCode(answer.outcome),
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": datetime.timedelta(milliseconds=interval_ms),
        "assignment": assignment,
    }


def _request(catalog: Catalog, body: Any, client: tuple[str, str], version: int) -> HeartbeatRequest:
    """Returns the state machine's form of a heartbeat. Raises PatternError."""
    pattern = getattr(body, "subscribed_topic_regex", None)
    timeout_ms = round(body.rebalance_timeout.total_seconds() * 1000)
    owned = None
    if body.topic_partitions is not None:
        topics: dict[str, set[int]] = {}
        for each in body.topic_partitions:
            topic = catalog.topic_of(each.topic_id)
            if topic is not None:
                numbers = (int(number) for number in each.partitions)
                topics.setdefault(topic, set()).update(number for number in numbers if 0 <= number <= _MOST_NUMBER)
        owned = PartitionSet.of(topics)
    member_id = body.member_id
    if version == 0 and not member_id and int(body.member_epoch) == 0:
        member_id = str(uuid.uuid4())  # from version 1 on, clients make their ids
    return HeartbeatRequest(
        member_id,
        int(body.member_epoch),
        body.instance_id,
        body.rack_id,
        None if timeout_ms < 0 else timeout_ms,
        None if body.subscribed_topic_names is None else frozenset(body.subscribed_topic_names),
        pattern,
        matched_topics(catalog, pattern) if pattern else frozenset(),
        body.server_assignor,
        owned,
        *client,
    )


@lru_cache(maxsize=64)
def matched_topics(catalog: Catalog, pattern: str) -> frozenset[str]:
    """Returns the topics that a pattern matches, as in Kafka internal ones too. With many topics it can take a second.

    Raises PatternError.
    """
    automaton = compiled(pattern)
    return frozenset(filter(automaton.matches, catalog.topics))


def describe(endpoint: Endpoint, coordinator: Coordinator, body: Any) -> Values:
    """Answers ConsumerGroupDescribe."""
    operations = GROUP_OPERATIONS if body.include_authorized_operations else NO_OPERATIONS
    names = each_once(body.group_ids)
    return {"groups": [_described(endpoint.catalog, coordinator, name, operations) for name in names]}


def _described(catalog: Catalog, coordinator: Coordinator, name: str, operations: int) -> Values:
    kind, group = coordinator.kind_of(name), coordinator.groups.get(name)
    if kind.group_type != CONSUMER:  # Kafka's clients then ask for a group of the classic protocol
        return {
            "error_code": ErrorCode.group_id_not_found if name else ErrorCode.invalid_group_id,
            "error_message": f"no group {name} of the consumer protocol is here",
            "group_id": name,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": (),
        }
    members: Iterable[ConsumerMember] = ()
    state, assignor = "Empty", DEFAULT_ASSIGNOR
    if isinstance(group, ConsumerGroup):
        state, assignor, members = group.state, group.assignor, group.members.values()
    return {
        "error_code": ErrorCode.none,
        "group_id": name,
        "group_state": state,
        "group_epoch": kind.epoch,
        "assignment_epoch": kind.assignment_epoch,
        "assignor_name": assignor,
        "members": [_member(catalog, each) for each in members],
        "authorized_operations": operations,
    }


def _member(catalog: Catalog, member: ConsumerMember) -> Values:
    request = member.request
    return {
        "member_id": member.member_id,
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "member_epoch": member.epoch,
        "client_id": request.client_id,
        "client_host": f"/{request.client_host}",
        "subscribed_topic_names": tuple(sorted(request.names or ())),
        "subscribed_topic_regex": request.pattern or "",
        "assignment": {"topic_partitions": _by_id(catalog, member.assigned)},
        "target_assignment": {"topic_partitions": _by_id(catalog, member.target)},
        "member_type": _CONSUMER_MEMBER,
    }


def _by_id(catalog: Catalog, partitions: PartitionSet) -> list[Values]:
    return [
        {"topic_id": catalog.topic_id(topic), "topic_name": topic, "partitions": tuple(partitions.numbers(topic))}
        for topic in sorted(partitions.bits)
    ]
