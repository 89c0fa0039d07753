"""Refuses requests that would write: the authorization for the topic or the cluster has failed.

These codes end a producer or an administrator's command at once, in every client; clients retry after other codes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from seglog_rescue.serve import protocol
from seglog_rescue.serve.protocol import NO_OFFSET, ErrorCode, Values

REASON = "seglog serves these files for reading only"


def _produce(body: Any) -> Values:
    return {
        "responses": [
            {
                "name": topic.name,
                "partition_responses": [
                    {
                        "index": each.index,
                        "error_code": ErrorCode.topic_authorization_failed,
                        "base_offset": NO_OFFSET,
                        "record_errors": (),
                        "error_message": REASON,
                    }
                    for each in topic.partition_data
                ],
            }
            for topic in body.topic_data
        ],
    }


def _init_producer_id(body: Any) -> Values:
    failed = ErrorCode.cluster_authorization_failed
    if body.transactional_id is not None:
        failed = ErrorCode.transactional_id_authorization_failed
    return {"error_code": failed, "producer_epoch": -1}


def _topic(name: str, **more: object) -> Values:
    failed = ErrorCode.topic_authorization_failed
    return {"name": name, "error_code": failed, "error_message": REASON, **more}


def _create_topics(body: Any) -> Values:
    topics = [_topic(each.name, topic_id=None, configs=()) for each in body.topics]
    return {"topics": topics}


def _delete_topics(body: Any) -> Values:
    return {"responses": [_topic(name) for name in body.topic_names]}


def _create_partitions(body: Any) -> Values:
    return {"results": [_topic(each.name) for each in body.topics]}


def _delete_records(body: Any) -> Values:
    failed = {"low_watermark": NO_OFFSET, "error_code": ErrorCode.topic_authorization_failed}
    topics = [
        {"name": topic.name, "partitions": [{"partition_index": p.partition_index, **failed} for p in topic.partitions]}
        for topic in body.topics
    ]
    return {"topics": topics}


def _other_protocol(what: str, instead: str, no_member: str | None) -> Callable[[object, Any, int], Values]:
    """Makes the refusal of a protocol that this endpoint does not speak, in words that clients show. Other fields are
    as in a broker's refusals, null where there null is."""
    reason = f"seglog serves no {what}, because it writes no state of theirs: {instead}"

    def refuse(_endpoint: object, _body: Any, _version: int) -> Values:
        return {
            "error_code": ErrorCode.invalid_request,  # clients end at it, and show the message
            "error_message": reason,
            "member_id": no_member,
            "member_epoch": 0,
            "heartbeat_interval": datetime.timedelta(0),
            "task_offset_interval": datetime.timedelta(0),
            "assignment": None,
            "acceptable_recovery_lag": 0,
            "status": (),
            **dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks")),
            "endpoint_information_epoch": 0,
            "partitions_by_user_endpoint": None,
        }

    return refuse


_refuse_share = _other_protocol("share groups", "read with a consumer (group.protocol=consumer or classic)", None)
_refuse_streams = _other_protocol("groups of the streams protocol", "set group.protocol=classic", "")

OTHER_PROTOCOLS: Mapping[int, Callable[[Any, Any, int], Values]] = MappingProxyType(
    {
        protocol.SHARE_GROUP_HEARTBEAT: _refuse_share,
        protocol.STREAMS_GROUP_HEARTBEAT: _refuse_streams,
    }
)

REFUSALS: Mapping[int, Callable[[Any], Values]] = MappingProxyType(
    {
        protocol.PRODUCE: _produce,
        protocol.INIT_PRODUCER_ID: _init_producer_id,
        protocol.CREATE_TOPICS: _create_topics,
        protocol.DELETE_TOPICS: _delete_topics,
        protocol.CREATE_PARTITIONS: _create_partitions,
        protocol.DELETE_RECORDS: _delete_records,
    }
)
