"""Answers requests about topics: metadata, offsets by time, leader epochs, configuration (KafkaApis, ReplicaManager).

Each function takes kio's request and returns the fields of the answer, for all supported versions.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from seglog.configuration.keys import INT_MAX, KEYS, Key, LogConfig, text_of
from seglog.errors import CorruptionError
from seglog.format.filenames import topic_name_problem
from seglog.log.log import Log
from seglog.model import NO_LEADER_EPOCH, NO_TIMESTAMP, Isolation
from seglog_rescue.serve.catalog import ServedPartition
from seglog_rescue.serve.endpoint import NODE_ID, Endpoint
from seglog_rescue.serve.protocol import (
    CLUSTER_OPERATIONS,
    NO_NODE,
    NO_OFFSET,
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    ErrorCode,
    Values,
    each_once,
    isolation_of,
)

_TOPIC_IDS_FROM = 12  # Metadata; versions 10 and 11 can carry an id instead of a name, but no answer to it
_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
_SPECIAL_FROM = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}  # versions
_BROKERS, _CONTROLLERS = 1, 2  # DescribeCluster: the type of endpoint
_MOST_PARTITIONS = 2000  # max.request.partition.size.limit
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_RESOURCES_WITHOUT_VALUES = (_BROKER_RESOURCE, 8, 32)  # broker loggers and groups, too: nothing is known of them
_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5  # sources
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7  # types of configuration values
# A broker answers lists, if empty ones: Java's admin client does not look for null (4.3.0).
_NO_ELIGIBLE_REPLICAS: Values = {"eligible_leader_replicas": (), "last_known_elr": ()}
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")  # Kafka: Topic.INTERNAL_TOPICS


def metadata(endpoint: Endpoint, body: Any, version: int) -> Values:
    """Describes all topics, or those asked for. One node leads everything."""
    topics = endpoint.catalog.topics
    asked = body.topics
    operations = TOPIC_OPERATIONS if getattr(body, "include_topic_authorized_operations", False) else NO_OPERATIONS
    if asked is None or (version == 0 and not asked):
        found = [_topic(endpoint, name, None, operations) for name in sorted(topics)]
    elif version < _TOPIC_IDS_FROM and any(each.name is None for each in asked):
        invalid = {"error_code": ErrorCode.invalid_request, "topic_id": None, "partitions": ()}
        found = [invalid | {"name": each.name or ""} for each in each_once(asked)]
    else:
        found = [_topic(endpoint, each.name, getattr(each, "topic_id", None), operations) for each in each_once(asked)]
    address = endpoint.advertised
    return {
        "error_code": ErrorCode.none,
        "brokers": [{"node_id": NODE_ID, "host": address.host, "port": address.port}],
        "cluster_id": endpoint.cluster_id,
        "controller_id": NODE_ID,
        "topics": found,
        **_cluster_operations(body),
    }


def _cluster_operations(body: Any) -> Values:
    asked = getattr(body, "include_cluster_authorized_operations", False)
    return {"cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NO_OPERATIONS}


def describe_cluster(endpoint: Endpoint, body: Any, _version: int) -> Values:
    """Describes the one node (Kafka: KafkaApis.handleDescribeCluster)."""
    asked = int(getattr(body, "endpoint_type", _BROKERS))
    if asked != _BROKERS:
        return {
            "error_code": (
                ErrorCode.mismatched_endpoint_type if asked == _CONTROLLERS else ErrorCode.unsupported_endpoint_type
            ),
            "error_message": "this endpoint is a broker's, not a controller's",
            "cluster_id": "",
            "brokers": (),
        }
    address = endpoint.advertised
    broker = {"broker_id": NODE_ID, "host": address.host, "port": address.port, "rack": None, "is_fenced": False}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": endpoint.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [broker],
        **_cluster_operations(body),
    }


def describe_topic_partitions(endpoint: Endpoint, body: Any, _version: int) -> Values:
    """Describes topics in the order of their names, page by page (Kafka: DescribeTopicPartitionsRequestHandler)."""
    cursor = body.cursor
    if cursor is not None and int(cursor.partition_index) < 0:
        wrong = {"error_code": ErrorCode.invalid_request, "topic_id": None, "partitions": ()}
        return {"topics": [wrong | {"name": each.name} for each in each_once(body.topics)], "next_cursor": None}
    names = {each.name for each in body.topics} or set(endpoint.catalog.topics)
    first = (cursor.topic_name, int(cursor.partition_index)) if cursor is not None else ("", 0)
    room = max(1, min(int(body.response_partition_limit), _MOST_PARTITIONS))
    answers: list[Values] = []
    for name in sorted(each for each in names if each >= first[0]):
        if room <= 0:
            return {"topics": answers, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = dict(_topic(endpoint, name, None, TOPIC_OPERATIONS))
        start = first[1] if name == first[0] else 0
        end = start + room
        count, topic["partitions"] = len(topic["partitions"]), topic["partitions"][start:end]
        answers.append(topic)
        room -= max(len(topic["partitions"]), 1)  # an unknown topic takes a place too
        if end < count:
            return {"topics": answers, "next_cursor": {"topic_name": name, "partition_index": end}}
    return {"topics": answers, "next_cursor": None}


def _topic(endpoint: Endpoint, name: str | None, topic_id: UUID | None, operations: int) -> Values:
    topics = endpoint.catalog.topics
    told = {"topic_authorized_operations": operations}
    if name is None:
        name = endpoint.catalog.topic_of(topic_id)
    if name is None:
        return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id, "partitions": ()}
    if name not in topics:
        return told | {"error_code": _unserved(name), "name": name, "topic_id": topic_id, "partitions": ()}
    partitions = topics[name]
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": endpoint.catalog.topic_id(name),
        "is_internal": name in _INTERNAL_TOPICS,
        "partitions": [_partition(partitions.get(number), number) for number in range(max(partitions) + 1)],
        **told,
    }


def _unserved(name: str) -> ErrorCode:
    """Returns the error for a topic that is not served: no topic can have some names (Kafka: Topic.validate)."""
    invalid = topic_name_problem(name) is not None
    return ErrorCode.invalid_topic_exception if invalid else ErrorCode.unknown_topic_or_partition


def _partition(partition: ServedPartition | None, number: int) -> Values:
    """Describes a partition. A missing one has no leader: clients expect all numbers below the highest."""
    if partition is None:
        return {
            "error_code": ErrorCode.leader_not_available,
            "partition_index": number,
            "leader_id": NO_NODE,
            "replica_nodes": (NODE_ID,),
            "offline_replicas": (NODE_ID,),
            **_NO_ELIGIBLE_REPLICAS,
        }
    return {
        "error_code": ErrorCode.none,
        "partition_index": number,
        "leader_id": NODE_ID,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": (NODE_ID,),
        "isr_nodes": (NODE_ID,),
        **_NO_ELIGIBLE_REPLICAS,
    }


def list_offsets(endpoint: Endpoint, body: Any, version: int) -> Values:
    """Looks up offsets by time (Kafka: UnifiedLog.fetchOffsetByTimestamp, ReplicaManager.fetchOffset)."""
    isolation = isolation_of(body)

    def find(partition: ServedPartition, asked: Any, log: Log) -> Values:
        stamp = int(asked.timestamp)
        if stamp < _EARLIEST_PENDING_UPLOAD or version < _SPECIAL_FROM.get(stamp, 0):
            return {"error_code": ErrorCode.unsupported_version}
        return _offset_at(partition, log, stamp, isolation)

    return _by_partition(endpoint, body.topics, "name", "partition_index", find)


def _offset_at(partition: ServedPartition, log: Log, stamp: int, isolation: Isolation) -> Values:
    limit = log.view.limit(isolation)
    if stamp == _LATEST:
        return {"timestamp": NO_TIMESTAMP, "offset": limit, "leader_epoch": partition.leader_epoch}
    if stamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):  # as in a broker without tiered storage
        return {"timestamp": NO_TIMESTAMP, "offset": NO_OFFSET}
    if stamp == _EARLIEST_LOCAL:
        stamp = _EARLIEST
    found = log.offset_for_timestamp(stamp)
    if found is None or (stamp != _EARLIEST and found.offset >= limit):
        return {"timestamp": NO_TIMESTAMP, "offset": NO_OFFSET}
    return {"timestamp": found.timestamp, "offset": found.offset, "leader_epoch": found.leader_epoch}


def offsets_for_leader_epochs(endpoint: Endpoint, body: Any, _version: int) -> Values:
    """Looks up the end offsets of leader epochs (KIP-101, KIP-320).

    A leader notes its epoch at the log end before it writes, but opening the log drops an epoch without records, and
    the checkpoint may be lost: later epochs than it names, up to the partition's, end with the log. If they counted as
    unknown, consumers would take the log for truncated, and begin anew.
    """

    def find(partition: ServedPartition, asked: Any, log: Log) -> Values:
        wanted, latest, end = int(asked.leader_epoch), log.leader_epochs.latest_epoch, log.log_end_offset
        if latest < wanted <= partition.leader_epoch:
            is_current = wanted == partition.leader_epoch or latest == NO_LEADER_EPOCH
            return {"leader_epoch": wanted if is_current else latest, "end_offset": end}
        epoch, offset = log.leader_epochs.end_offset_for(wanted, end)
        return {"leader_epoch": epoch, "end_offset": offset}

    return _by_partition(endpoint, body.topics, "topic", "partition", find)


def _by_partition(
    endpoint: Endpoint,
    topics: Any,
    topic_field: str,
    number_field: str,
    find: Callable[[ServedPartition, Any, Log], Values],
) -> Values:
    """Makes an answer with one entry for each partition of the request."""
    answers = []
    for topic in topics:
        name = getattr(topic, topic_field)
        entries = []
        for asked in topic.partitions:
            number = int(getattr(asked, number_field))
            partition = endpoint.catalog.find(name, number)
            entry: dict[str, Any] = {number_field: number, "error_code": ErrorCode.none}
            if partition is None:
                entry["error_code"] = ErrorCode.unknown_topic_or_partition
            else:
                entry["error_code"] = epoch_problem(partition, asked)
                if entry["error_code"] is ErrorCode.none:
                    entry |= _answered(endpoint, partition, partial(find, partition, asked))
            entries.append(entry)
        answers.append({topic_field: name, "partitions": entries})
    return {"topics": answers}


def _answered(endpoint: Endpoint, partition: ServedPartition, find: Callable[[Log], Values]) -> Values:
    """Returns what `find` gives for a partition's log, or the error after reporting it."""
    log = endpoint.log_of(partition)
    if log is None:
        return {"error_code": ErrorCode.kafka_storage_error}
    try:
        return find(log)
    except CorruptionError as error:
        endpoint.report(error)
        return {"error_code": ErrorCode.corrupt_message}
    except OSError as error:
        endpoint.report_unreadable(partition.directory, error)
        return {"error_code": ErrorCode.kafka_storage_error}


def epoch_problem(partition: ServedPartition, asked: Any) -> ErrorCode:
    """Checks the leader epoch that a client knows (Kafka: Partition.checkCurrentLeaderEpoch)."""
    current_epoch = int(getattr(asked, "current_leader_epoch", NO_LEADER_EPOCH))
    if current_epoch in (NO_LEADER_EPOCH, partition.leader_epoch):
        return ErrorCode.none
    lower = current_epoch < partition.leader_epoch
    return ErrorCode.fenced_leader_epoch if lower else ErrorCode.unknown_leader_epoch


def describe_configs(endpoint: Endpoint, body: Any, _version: int) -> Values:
    """Describes the configuration of topics as far as it is known; all of it is read-only."""
    return {"results": [_resource(endpoint, each) for each in each_once(body.resources)]}


def _resource(endpoint: Endpoint, asked: Any) -> Values:
    answer: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "error_message": "",
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": (),
    }
    kind, name = int(asked.resource_type), asked.resource_name
    if kind == _BROKER_RESOURCE and name not in ("", str(NODE_ID)):
        return answer | {"error_code": ErrorCode.invalid_request, "error_message": f"the only broker is {NODE_ID}"}
    if kind not in (_TOPIC_RESOURCE, *_RESOURCES_WITHOUT_VALUES):
        return answer | {
            "error_code": ErrorCode.invalid_request,
            "error_message": f"no resources of type {kind} are here",
        }
    if kind != _TOPIC_RESOURCE:
        return answer
    partition = next(iter(endpoint.catalog.topics.get(name, {}).values()), None)
    if partition is None:
        return answer | {"error_code": _unserved(name)}
    wanted, config = asked.configuration_keys, endpoint.catalog.config_of(partition)
    topic_keys = (key for key in KEYS if key.topic_level and (not wanted or key.name in wanted))
    answer["configs"] = [_config(key, getattr(config, key.field)) for key in topic_keys]
    return answer


def _config(key: Key, value: object) -> Values:
    is_default = value == getattr(LogConfig(), key.field)
    return {
        "name": key.name,
        "value": text_of(value),
        "read_only": True,
        "config_source": _DEFAULT_CONFIG if is_default else _TOPIC_CONFIG,
        "is_default": is_default,
        "is_sensitive": False,
        "synonyms": (),
        "config_type": _config_type(key, value),
        "documentation": None,
    }


def _config_type(key: Key, value: object) -> int:
    """Returns the type of a key's values, by Kafka's number (ConfigDef.Type, DescribeConfigsResponse)."""
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, int) and not isinstance(value, Enum):
        return _INT if key.maximum <= INT_MAX else _LONG
    return _DOUBLE if isinstance(value, float) else _LIST if isinstance(value, frozenset) else _STRING
